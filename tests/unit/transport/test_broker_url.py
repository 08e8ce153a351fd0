"""URLs of brokers: what may be written, and that nothing without TLS leaves this machine."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import ConfigError
from edgefl.transport.broker_url import (
    BrokerAddress,
    BrokerScheme,
    parse_broker_url,
    parse_broker_urls,
    plain_broker,
)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1", "mqtt://127.0.0.1:1883"),
        ("localhost:1900", "mqtt://localhost:1900"),
        ("::1", "mqtt://[::1]:1883"),
        ("[::1]:1999", "mqtt://[::1]:1999"),
        ("mqtt://127.8.9.1", "mqtt://127.8.9.1:1883"),
        ("mqtts://gateway.local", "mqtts://gateway.local:8883"),
        ("mqtts://192.0.2.7:1/", "mqtts://192.0.2.7:1"),
        ("ws://localhost:8083", "ws://localhost:8083/mqtt"),
        ("wss://broker.example.org", "wss://broker.example.org:443/mqtt"),
        ("wss://broker.example.org/edge/mqtt", "wss://broker.example.org:443/edge/mqtt"),
        ("MQTTS://Gateway.Local:8883", "mqtts://gateway.local:8883"),
    ],
)
def test_what_may_be_written(text, url):
    address = parse_broker_url(text)
    assert str(address) == url
    assert parse_broker_url(url) == address


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E-BROKER-URL"),
        (" , ", "E-BROKER-URL"),
        ("http://127.0.0.1", "E-BROKER-URL"),
        ("mqtt://", "E-BROKER-URL"),
        ("mqtt://:1883", "E-BROKER-URL"),
        ("127.0.0.1:port", "E-BROKER-URL"),
        ("127.0.0.1:", "E-BROKER-URL"),
        ("127.0.0.1:0", "E-TRANSPORT-SETTING"),
        ("127.0.0.1:70000", "E-BROKER-URL"),
        ("mqtts://host:8883/path", "E-BROKER-URL"),
        ("mqtts://host?tls=no", "E-BROKER-URL"),
        ("wss://host/a b", "E-BROKER-URL"),
        ("mqtts://exa mple", "E-BROKER-URL"),
        ("mqtts://-a", "E-BROKER-URL"),
        ("192.0.2.7", "E-PLAINTEXT-REMOTE"),
        ("mqtt://example.org:1883", "E-PLAINTEXT-REMOTE"),
        ("ws://example.org", "E-PLAINTEXT-REMOTE"),
        ("localhost.example", "E-PLAINTEXT-REMOTE"),
        ("mqtts://localhost,mqtt://localhost", "E-BROKER-URL"),
        (",".join(["localhost"] * 9), "E-BROKER-URL"),
    ],
)
def test_what_may_not(text, code):
    with pytest.raises(ConfigError) as caught:
        parse_broker_urls(text)
    assert caught.value.code == code


def test_a_password_in_a_url_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        parse_broker_urls("mqtts://user:hunter2@example.org")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value)


def test_several_keep_their_order():
    addresses = parse_broker_urls("mqtts://b.example, wss://a.example")
    assert [address.scheme for address in addresses] == [BrokerScheme.MQTTS, BrokerScheme.WSS]
    assert [address.host for address in addresses] == ["b.example", "a.example"]


def test_a_plain_broker_is_on_this_machine():
    assert str(plain_broker(1883)) == "mqtt://127.0.0.1:1883"
    with pytest.raises(ConfigError, match="E-PLAINTEXT-REMOTE"):
        plain_broker(1883, "192.0.2.1")
    with pytest.raises(ConfigError, match="E-PLAINTEXT-REMOTE"):
        BrokerAddress(scheme=BrokerScheme.WS, host="192.0.2.1", port=80)


@given(st.text(alphabet=string.printable, max_size=60))
def test_any_text_is_an_address_or_a_config_error(text):
    try:
        addresses = parse_broker_urls(text)
    except ConfigError:
        return
    assert parse_broker_urls(",".join(map(str, addresses))) == addresses
