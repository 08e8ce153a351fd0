"""A flood of garbage leaves a few lines and exact counts, and hides no new kind of trouble."""

import math
from collections import Counter

import pytest

from broker.console import format_report
from broker.core import GatewayCore
from broker.events import GatewayEffect, Reported
from broker.open_gateway import GatewayEntropy
from broker.refusals import (
    LINES_IN_ALL,
    LINES_PER_SOURCE,
    LONGEST_SPAN_S,
    SHORTEST_SPAN_S,
)
from broker.settings import GatewaySettings
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, seal_envelope
from edgefl.protocol.service_messages import Hello
from edgefl.storage.memory import MemoryStore
from edgefl.transport.core_events import Arrived, LinkRestored, Woken
from edgefl.types import DeviceId, FleetName
from firmware_sim.gateway import MemoryLedger
from tests.epoch_harness import signing_key

FLEET = FleetName("home")
FLOOD = 5_000


class Gateway:
    """A real core, and what it reported."""

    def __init__(self) -> None:
        self.core = GatewayCore(
            settings=GatewaySettings(
                fleet=FLEET, signing_key=signing_key("gateway"), least_agent_version="0.0.1"
            ),
            store=MemoryStore(),
            ledger=MemoryLedger(),
            entropy=GatewayEntropy(),
        )
        self.now_s = 1000.0
        self.lines: list[Reported] = []
        self.carry(self.core.handle(LinkRestored(), self.now_s))

    def carry(self, effects: list[GatewayEffect]) -> None:
        self.lines += [effect for effect in effects if isinstance(effect, Reported)]

    def hear(self, payload: bytes, device: str = "d1") -> None:
        topic = topics.uplink(FLEET, DeviceId(device))
        self.carry(self.core.handle(Arrived(topic=topic, payload=payload), self.now_s))

    def pass_time(self, seconds: float) -> None:
        """Let time pass as the shell does, waking the core when it asks for it."""
        end_s = self.now_s + seconds
        while (wakeup_s := self.core.wakeup_s) is not None and wakeup_s <= end_s:
            assert wakeup_s > self.now_s, "a wish in the past would be granted for ever"
            self.now_s = wakeup_s
            self.carry(self.core.handle(Woken(), self.now_s))
        self.now_s = end_s

    def shown(self) -> Counter[str]:
        return Counter(str(line.fields["code"]) for line in self.lines if line.kind == "refused")

    def counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for line in self.lines:
            if line.kind == "refused-more":
                more = line.fields["more"]
                assert isinstance(more, int)
                found[str(line.fields["code"])] += more
        return found

    def sources(self) -> Counter[str]:
        return Counter(str(line.fields["from"]) for line in self.lines if line.kind == "refused")


def forged() -> bytes:
    """Return a hello that somebody else signed."""
    hello = Hello(identity_key=signing_key("d1").public_key, agent_version="1.0")
    topic = topics.uplink(FLEET, DeviceId("d1"))
    return seal_envelope(signing_key("other"), topic, Header(sender="d1"), hello)


def test_a_flood_of_one_source_leaves_a_few_lines_and_an_exact_count() -> None:
    gateway = Gateway()
    for number in range(FLOOD):
        gateway.hear(b"garbage %d" % number)
    assert sum(gateway.shown().values()) == LINES_PER_SOURCE
    assert gateway.counted() == Counter()
    gateway.pass_time(SHORTEST_SPAN_S)
    assert gateway.shown() + gateway.counted() == Counter({next(iter(gateway.shown())): FLOOD})
    assert len(gateway.lines) == LINES_PER_SOURCE + 1
    assert "refused 4,995 more within 60.0 s: E-WIRE" in format_report(gateway.lines[-1])


def test_a_flood_of_many_sources_leaves_a_bounded_number_of_lines() -> None:
    gateway = Gateway()
    for number in range(FLOOD):
        gateway.hear(b"garbage", f"d{number}")
    assert len(gateway.lines) == LINES_IN_ALL
    assert set(gateway.sources().values()) == {1}
    gateway.pass_time(SHORTEST_SPAN_S)
    assert sum((gateway.shown() + gateway.counted()).values()) == FLOOD


def test_the_first_of_each_kind_is_reported_within_a_flood() -> None:
    gateway = Gateway()
    for number in range(FLOOD):
        gateway.hear(b"garbage", f"d{number}")
    before = gateway.shown()
    gateway.hear(forged())
    gateway.hear(forged())
    new = gateway.shown() - before
    assert list(new.values()) == [1]
    topic = "efl/1/home/nothing/of/ours"
    gateway.carry(gateway.core.handle(Arrived(topic=topic, payload=b""), gateway.now_s))
    assert gateway.sources()[topic] == 1


def test_a_flood_does_not_silence_another_source() -> None:
    gateway = Gateway()
    for number in range(FLOOD):
        gateway.hear(b"garbage %d" % number, "loud")
    gateway.hear(b"garbage", "quiet")
    assert gateway.sources()[topics.uplink(FLEET, DeviceId("quiet"))] == 1


def test_a_flood_of_a_day_leaves_a_bounded_log() -> None:
    gateway = Gateway()
    total = 0
    for second in range(0, 86_400, 4):
        gateway.hear(b"garbage", f"d{second}")
        total += 1
        gateway.pass_time(4)
    # The first spans double from the shortest to the longest.
    spans = 86_400 / LONGEST_SPAN_S + math.log2(LONGEST_SPAN_S / SHORTEST_SPAN_S) + 2
    assert LINES_IN_ALL < len(gateway.lines) <= spans * (LINES_IN_ALL + 1)
    gateway.pass_time(LONGEST_SPAN_S)
    assert sum((gateway.shown() + gateway.counted()).values()) == total


def test_after_a_flood_single_refusals_are_lines_of_their_own_again() -> None:
    gateway = Gateway()
    for number in range(FLOOD):
        gateway.hear(b"garbage", f"d{number}")
    gateway.pass_time(3 * SHORTEST_SPAN_S)
    before = len(gateway.lines)
    for _ in range(10):
        gateway.hear(b"garbage")
        gateway.pass_time(2 * SHORTEST_SPAN_S)
    assert [line.kind for line in gateway.lines[before:]] == ["refused"] * 10
    assert gateway.core.wakeup_s is None


def test_a_topic_cannot_steer_the_operators_terminal() -> None:
    gateway = Gateway()
    topic = "efl/1/home/d/\x1b[2J\r\u202e/q"
    gateway.carry(gateway.core.handle(Arrived(topic=topic, payload=b""), gateway.now_s))
    (line,) = gateway.lines
    assert format_report(line).isprintable()
    assert line.fields["from"] == "efl/1/home/d/?[2J??/q"


@pytest.mark.parametrize("count", [1, LINES_PER_SOURCE])
def test_a_few_refusals_are_not_held_back(count: int) -> None:
    gateway = Gateway()
    for _ in range(count):
        gateway.hear(b"garbage")
    assert len(gateway.lines) == count
    gateway.pass_time(10 * SHORTEST_SPAN_S)
    assert len(gateway.lines) == count


def test_a_crowd_of_new_devices_leaves_some_lines_and_their_number() -> None:
    gateway = Gateway()
    crowd = 300
    for index in range(crowd):
        name = f"board-{index}"
        key = signing_key(name)
        hello = Hello(
            identity_key=key.public_key, agent_version="99.0", roster_number=0, key_epoch=0
        )
        header = Header(sender=name)
        topic = topics.uplink(FLEET, DeviceId(name))
        gateway.hear(seal_envelope(key, topic, header, hello), name)
    gateway.pass_time(2 * SHORTEST_SPAN_S)
    told = [line for line in gateway.lines if line.kind == "device-new"]
    more = [line for line in gateway.lines if line.kind == "devices-more"]
    assert 10 <= len(told) <= LINES_IN_ALL
    assert [line.fields["code"] for line in more] == ["device-new"]
    assert len(told) + sum(int(str(line.fields["more"])) for line in more) == crowd
    assert "more within" in format_report(more[0])
