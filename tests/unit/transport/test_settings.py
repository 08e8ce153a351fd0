"""Settings refuse links without the TLS that their addresses ask for, and values out of range."""

from pathlib import Path

import pytest

from edgefl.errors import ConfigError
from edgefl.transport.base import Inbound, Will
from edgefl.transport.broker_url import BrokerAddress, BrokerScheme, plain_broker
from edgefl.transport.settings import MqttSettings
from edgefl.transport.tls import TlsSettings

BROKERS = (plain_broker(1883),)
TLS = TlsSettings(ca_file=Path("ca.pem"))


def test_tls_is_needed_exactly_where_the_address_says_so():
    address = BrokerAddress(scheme=BrokerScheme.MQTTS, host="example.org", port=8883)
    assert MqttSettings(brokers=(address,), client_id="a", tls=TLS).tls is TLS
    with pytest.raises(ConfigError, match="E-TLS-SETTINGS"):
        MqttSettings(brokers=(address,), client_id="a")


def test_a_fail_over_never_gives_up_tls():
    secure = BrokerAddress(scheme=BrokerScheme.MQTTS, host="localhost", port=8883)
    with pytest.raises(ConfigError, match="E-BROKER-URL"):
        MqttSettings(brokers=(secure, plain_broker(1883)), client_id="a", tls=TLS)


@pytest.mark.parametrize(
    "bad",
    [
        {"brokers": ()},
        {"brokers": BROKERS * 9},
        {"client_id": ""},
        {"client_id": "a\nb"},
        {"client_id": "x" * 200},
        {"keepalive_s": 0},
        {"keepalive_s": 901},
        {"session_expiry_s": -1},
        {"receive_maximum": 0},
        {"connect_timeout_s": float("nan")},
        {"max_inbox_messages": 0},
        {"max_in_flight": 0},
    ],
)
def test_values_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError):
        MqttSettings(**{"brokers": BROKERS, "client_id": "a", **bad})


def test_a_will_needs_a_proper_topic():
    with pytest.raises(ConfigError, match="E-TOPIC"):
        Will(topic="a/#", payload=b"")


def test_payloads_stay_out_of_the_repr():
    assert "secret" not in repr(Inbound(topic="t", payload=b"secret", retained=False))
    assert "secret" not in repr(Will(topic="t", payload=b"secret"))


@pytest.mark.parametrize("delay_s", [-1, 90_000])
def test_a_will_waits_for_a_day_at_most(delay_s):
    with pytest.raises(ConfigError, match="E-TRANSPORT-SETTING"):
        Will(topic="a", payload=b"", delay_s=delay_s)
