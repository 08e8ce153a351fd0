"""Devices follow their gateway to another address, and never to one that is less safe."""

import pytest

from edgefl.transport.broker_url import MAX_BROKERS, parse_broker_urls
from edgefl.transport.moved import with_moved

OLD = parse_broker_urls("mqtts://old.example:8883,wss://old.example:443")


def shown(*moved_to: str, old: str = "mqtts://old.example:8883,wss://old.example:443") -> list[str]:
    return [str(one) for one in with_moved(parse_broker_urls(old), moved_to)]


def test_the_new_address_comes_first_and_the_old_ones_stay() -> None:
    assert shown("mqtts://new.example") == ["mqtts://new.example:8883", *map(str, OLD)]
    assert shown() == [str(one) for one in OLD]
    assert shown(str(OLD[1])) == [str(OLD[1]), str(OLD[0])]


def test_addresses_are_bounded() -> None:
    assert len(shown(*(f"mqtts://n{number}.example" for number in range(20)))) == MAX_BROKERS


@pytest.mark.parametrize(
    "url", ["mqtt://new.example", "mqtt://127.0.0.1:1", "nonsense://x", "", " "]
)
def test_tls_is_not_given_up(url: str) -> None:
    assert shown(url) == [str(one) for one in OLD]


def test_without_tls_no_address_leads_off_this_machine() -> None:
    old = "mqtt://127.0.0.1:1883"
    assert shown("mqtt://new.example:1883", "mqtts://new.example", old=old) == [old]
    assert shown("mqtt://localhost:1884", old=old) == ["mqtt://localhost:1884", old]
