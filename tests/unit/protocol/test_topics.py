"""Topic names: who may be named, and what a topic names."""

import pytest

from edgefl.errors import ConfigError, WireError
from edgefl.protocol import topics
from edgefl.types import DeviceId, FleetName

FLEET, DEVICE = FleetName("home"), DeviceId("board-1.a_b")


@pytest.mark.parametrize("text", ["a", "0", "board-1.a_b", "x" * 64])
def test_names_that_are_accepted(text: str) -> None:
    assert topics.parse_device_id(text) == text
    assert topics.parse_fleet(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "A", "a/b", "+", "#", "a+", "-a", ".a", "_a", "x" * 65, "a b", "a\n", "ä", "a\x00"],
)
def test_names_that_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="E-DEVICE-ID"):
        topics.parse_device_id(text)
    with pytest.raises(ConfigError, match="E-FLEET-NAME"):
        topics.parse_fleet(text)


@pytest.mark.parametrize("text", ["aggregator", "claim-", "claim-abcdef"])
def test_no_device_is_called_as_the_aggregator_or_a_claim(text: str) -> None:
    with pytest.raises(ConfigError, match="E-DEVICE-ID"):
        topics.parse_device_id(text)


def test_a_claims_topic_names_it_and_no_other_topic_does() -> None:
    claim = "claim-abcd"
    assert topics.claim_of(topics.claim_uplink(FLEET, claim)) == claim
    for topic in (
        topics.claim_downlink(FLEET, claim),
        topics.uplink(FLEET, DeviceId(claim)),
        topics.claim_uplink(FLEET, "board"),
        topics.claim_uplink(FLEET, "claim-A"),
        topics.claim_uplink(FLEET, claim) + "/q",
    ):
        assert topics.claim_of(topic) is None


def test_topics_of_a_device_name_it() -> None:
    for make in (topics.status, topics.uplink, topics.downlink):
        topic = make(FLEET, DEVICE)
        assert topics.device_of(topic) == DEVICE
        assert topic.count("/") <= 6
        assert not set("+#") & set(topic)


def test_all_topics_differ() -> None:
    made = [make(FLEET, DEVICE) for make in (topics.status, topics.uplink, topics.downlink)]
    made += [topics.calls(FLEET), topics.aggregator(FLEET)]
    assert len(set(made)) == len(made)


def test_filters_differ_from_topics_by_the_device_alone() -> None:
    assert topics.all_status(FLEET).replace("+", DEVICE) == topics.status(FLEET, DEVICE)
    assert topics.all_uplinks(FLEET).replace("+", DEVICE) == topics.uplink(FLEET, DEVICE)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "efl/1/home/agg",
        "efl/1/home/r/all/call",
        "efl/1/home/d/UPPER/q",
        "efl/1/home/d//q",
        "efl/1/home/d/board/q/more",
    ],
)
def test_topics_of_no_device_are_refused(topic: str) -> None:
    with pytest.raises(WireError, match="E-WIRE-TOPIC"):
        topics.device_of(topic)
