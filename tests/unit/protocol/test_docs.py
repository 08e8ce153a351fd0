"""docs/protocol.md says what the code does: message keys, sizes, transitions."""

import functools
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as HypothesisPhase

from edgefl.protocol import topics
from edgefl.protocol.aggregator import _SHORTFALL, AggregatorRound
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.messages import AGGREGATOR_MESSAGES, DEVICE_MESSAGES, Message
from edgefl.protocol.reasons import OPEN_PHASES
from edgefl.types import DeviceId
from tests.round_harness import FLEET, RoundHarness
from tests.strategies import BY_TYPE

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")


def table(first_column: str, second_column: str) -> list[list[str]]:
    """Return the rows of the table whose head starts with two column names."""
    head = f"| {first_column} | {second_column} |"
    assert PAGE.count(head) == 1, head
    lines = PAGE[PAGE.index(head) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


@functools.cache
def measured_sizes() -> dict[str, int]:
    """Return the largest payload of each kind in a round of 16 devices."""
    harness = RoundHarness(16, floor=12, dimension=1907)
    sizes: dict[str, int] = {}
    while harness.outcome is None or harness.packets:
        for packet in harness.packets:
            make = topics.uplink if packet.goes_up else topics.downlink
            envelope = open_envelope(make(FLEET, DeviceId(packet.device)), packet.payload)
            name = type(envelope.message).__name__
            sizes[name] = max(len(packet.payload), sizes.get(name, 0))
        harness.progress()
    assert harness.aggregator.plan is not None
    assert harness.aggregator.plan.ring_bits == 20
    return sizes


MESSAGE_ROWS = {row[0]: row for row in table("message", "kind")}


def test_every_message_is_listed() -> None:
    assert set(MESSAGE_ROWS) == {kind.__name__ for kind in (*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES)}


@pytest.mark.parametrize("kind", [*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES])
def test_kind_sender_and_keys_are_right(kind: type[Message]) -> None:
    _, number, keys, sender, _ = MESSAGE_ROWS[kind.__name__]
    assert int(number) == kind.kind
    assert sender == ("device" if kind in DEVICE_MESSAGES else "aggregator")
    listed = [int(key) for key in re.findall(r"(?:^|, )(\d+) (?=[a-zA-Z])", keys)]

    @settings(
        max_examples=1,
        database=None,
        phases=[HypothesisPhase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(message=BY_TYPE[kind])
    def keys_agree(message: Message) -> None:
        assert sorted(message.to_body()) == listed

    keys_agree()


def test_sizes_are_right() -> None:
    listed = {name: int(row[4]) for name, row in MESSAGE_ROWS.items() if row[4] != "-"}
    assert listed == measured_sizes()


def test_the_devices_transitions_are_right() -> None:
    listed = sorted((row[0], row[1]) for row in table("in phase", "on"))
    assert listed == sorted((phase.name, on.__name__) for phase, on in DeviceRound._TRANSITIONS)


def test_the_aggregators_transitions_are_right() -> None:
    listed = sorted((row[0], row[1]) for row in table("in phase", "on message"))
    assert listed == sorted((phase.name, on.__name__) for phase, on in AggregatorRound._MESSAGES)
    events = sorted(row[0] for row in table("on event", "it does"))
    assert events == sorted(event.__name__ for event in AggregatorRound._EVENTS)


def test_the_phases_are_right() -> None:
    needed = table("phase", "needed to go on")
    assert [row[0] for row in needed] == [phase.name for phase in OPEN_PHASES]
    assert [row[2] for row in needed] == [_SHORTFALL[phase].name for phase in OPEN_PHASES]
    closes = table("phase that closes", "with enough")
    assert [row[0] for row in closes] == [phase.name for phase in OPEN_PHASES]
    for row, following in zip(closes, OPEN_PHASES[1:], strict=False):
        assert following.name in row[1]
