"""Settings refuse plaintext beyond this machine and values out of range."""

import pytest

from edgefl.errors import ConfigError
from edgefl.transport.base import Inbound, Will
from edgefl.transport.settings import MqttSettings


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.9.1"])
def test_loopback_is_taken(host):
    assert MqttSettings(host=host, port=1883, client_id="a").host == host


@pytest.mark.parametrize("host", ["192.168.1.2", "0.0.0.0", "example.org", "", "localhost.example"])  # noqa: S104 - refused, not bound
def test_other_hosts_need_tls(host):
    with pytest.raises(ConfigError) as caught:
        MqttSettings(host=host, port=1883, client_id="a")
    assert caught.value.code == "E-PLAINTEXT-REMOTE"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"port": 0},
        {"port": 70_000},
        {"client_id": ""},
        {"client_id": "a\nb"},
        {"client_id": "x" * 200},
        {"keepalive_s": 0},
        {"connect_timeout_s": float("nan")},
        {"max_inbox_messages": 0},
        {"max_in_flight": 0},
    ],
)
def test_values_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError):
        MqttSettings(**{"host": "localhost", "port": 1883, "client_id": "a", **bad})


def test_a_will_needs_a_proper_topic():
    with pytest.raises(ConfigError, match="E-TOPIC"):
        Will(topic="a/#", payload=b"")


def test_payloads_stay_out_of_the_repr():
    assert "secret" not in repr(Inbound(topic="t", payload=b"secret", retained=False))
    assert "secret" not in repr(Will(topic="t", payload=b"secret"))
