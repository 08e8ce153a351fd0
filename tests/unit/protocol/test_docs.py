"""docs/protocol.md says what the code does: messages, arrays, keys, labels, sizes, transitions."""

import functools
import inspect
import itertools
import re
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as HypothesisPhase

from edgefl.protocol import graph, topics
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.aggregator_epoch import AggregatorEpoch
from edgefl.protocol.certificate import CertificateSignature
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.envelope import AGGREGATOR, Header, open_envelope, seal_envelope
from edgefl.protocol.messages import AGGREGATOR_MESSAGES, DEVICE_MESSAGES, Message
from edgefl.protocol.peer_proof import MemberProof
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import OPEN_PHASES, AdversaryClass
from edgefl.protocol.round_phases import ROUND_PHASES
from edgefl.protocol.thresholds import GRINDING_BITS, LEAST_SPARSE_BASE, thresholds_for
from edgefl.protocol.wire import decode
from edgefl.types import DeviceId
from tests.epoch_harness import FLEET, EpochFleet, signing_key
from tests.round_boards import opened_epoch, privacy_plan
from tests.round_harness import RoundHarness
from tests.strategies import BY_TYPE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
CURIOUS, LIAR = AdversaryClass.HONEST_BUT_CURIOUS, AdversaryClass.MALICIOUS


def table(*columns: str) -> list[list[str]]:
    """Return the rows of the one table whose head starts with these columns."""
    head = "| " + " | ".join(columns) + " |"
    assert PAGE.count("\n" + head) == 1, head
    lines = PAGE[PAGE.index("\n" + head) + 1 :].splitlines()[2:]
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def in_code(cell: str) -> list[str]:
    """Return what a cell sets in code letters."""
    return re.findall(r"`([^`]+)`", cell)


# ------------------------------------------------------------ messages


def _note(sizes: dict[str, int], message: Message, payload: bytes) -> None:
    name = type(message).__name__
    sizes[name] = max(len(payload), sizes.get(name, 0))


@functools.cache
def finished_round(adversary: AdversaryClass) -> tuple[SessionPlan, dict[str, int]]:
    """Return the plan of a round of 16 devices, and the largest payload of each kind."""
    harness = RoundHarness(16, floor=12, dimension=1911, is_rotated=True, adversary=adversary)
    sizes: dict[str, int] = {}
    while harness.outcome is None or harness.packets:
        for packet in harness.packets:
            make = topics.uplink if packet.goes_up else topics.downlink
            envelope = open_envelope(make(FLEET, DeviceId(packet.device)), packet.payload)
            _note(sizes, envelope.message, packet.payload)
        harness.progress()
    plan = harness.aggregator.plan
    assert plan is not None
    return plan, sizes


@functools.cache
def set_up_sizes() -> dict[str, int]:
    """Return the largest payload of each kind while a key epoch of 16 devices opens."""
    sizes: dict[str, int] = {}
    key, fleet = signing_key("gateway"), EpochFleet(16, mask_keys=64)

    def note(sender: str, message: Message) -> None:
        _note(sizes, message, seal_envelope(key, "topic", Header(sender=sender), message))

    down, up = fleet.deliver_down, fleet.deliver_up

    def deliver_down() -> None:
        note(AGGREGATOR, fleet.down[0][1])
        down()

    def deliver_up() -> None:
        note(*fleet.up[0])
        up()

    fleet.deliver_down, fleet.deliver_up = deliver_down, deliver_up  # type: ignore[method-assign]
    fleet.open_epoch()
    return sizes


MESSAGE_ROWS = {row[0]: row for row in table("message", "kind", "keys of the body")}


def test_every_message_is_listed() -> None:
    kinds = {*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES}
    assert list(MESSAGE_ROWS) == [
        kind.__name__ for kind in sorted(kinds, key=lambda message: message.kind)
    ]


@pytest.mark.parametrize("kind", dict.fromkeys([*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES]))
def test_kind_sender_and_keys_are_right(kind: type[Message]) -> None:
    _, number, keys, sender, _ = MESSAGE_ROWS[kind.__name__]
    assert int(number) == kind.kind
    senders = {"device": kind in DEVICE_MESSAGES, "aggregator": kind in AGGREGATOR_MESSAGES}
    assert sender.split(", ") == [name for name, is_sender in senders.items() if is_sender]
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
    plan, sizes = finished_round(LIAR)
    assert (plan.ring_bits, plan.privacy.rotation_block) == (20, 2048)
    assert plan.thresholds.to_list()[:4] == [15, 9, 16, 9]
    listed = {name: int(row[4]) for name, row in MESSAGE_ROWS.items() if row[4] != "-"}
    assert listed == sizes | set_up_sizes()


@pytest.mark.parametrize("adversary", [CURIOUS, AdversaryClass.SEMI_MALICIOUS])
def test_sizes_differ_in_other_classes_as_the_page_says(adversary: AdversaryClass) -> None:
    _, sizes = finished_round(adversary)
    _, strongest = finished_round(LIAR)
    (listed,) = re.findall(r"an UnmaskRequest has (\d+) bytes", PAGE)
    differ = {name for name, size in strongest.items() if sizes.get(name) != size}
    assert differ == {"UnmaskRequest", "SurvivorProposal", "SurvivorVote"}
    assert sizes["UnmaskRequest"] == int(listed)


def test_topics_are_right() -> None:
    for name, path, _ in table("topic", "path"):
        make = getattr(topics, name.strip("`"))
        parameters = inspect.signature(make).parameters
        assert path.strip("`") == make(*(parameter.upper() for parameter in parameters))


# ------------------------------------------------------------ arrays and plan


@functools.cache
def arrays() -> dict[str, Any]:
    """Return one value of each class that travels as an array."""
    keys, _ = opened_epoch(16)
    index, device = 3, keys.devices[0]
    boards = EpochFleet(16, mask_keys=8)
    boards.open_epoch()
    machine = boards.boards[device].machine
    machine.reserve_index(index, bytes(32))
    proof = keys.require_mask_key(device, machine.keys.mask_proof(index), index)
    plan, _ = finished_round(CURIOUS)
    return {
        "RosterEntry": proof.entry,
        "RosterEpoch": keys.roster.epoch,
        "KeyBundle": proof.bundle,
        "MaskKeyProof": proof.mask_key,
        "EpochRecord": keys.epoch.record,
        "MemberProof": proof.member,
        "PeerProof": proof,
        "CertificateSignature": CertificateSignature(
            entry=proof.entry,
            roster_position=proof.roster_position,
            roster_path=proof.roster_path,
            signature=bytes(64),
        ),
        "Thresholds": plan.thresholds,
        "TrainingPlan": plan.training,
    }


def as_wire(value: Any) -> Any:
    """Return a field's value as it travels."""
    if hasattr(value, "to_list"):
        return value.to_list()
    if hasattr(value, "to_wire"):
        return value.to_wire()
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return b"".join(number.to_bytes(4, "big") for pair in value for number in pair)
    return list(value) if isinstance(value, tuple) else value


def test_every_array_is_listed() -> None:
    rows = table("array", "fields")
    assert [row[0] for row in rows] == list(arrays())
    for name, fields in rows:
        value = arrays()[name]
        assert [as_wire(getattr(value, field)) for field in in_code(fields)] == value.to_list()


def test_the_plans_fields_are_right() -> None:
    plan, _ = finished_round(LIAR)
    encoded = decode(plan.to_bytes())
    assert isinstance(encoded, dict)
    listed = {int(key): in_code(cell) for key, cell in table("key", "plan field")}
    found = {key: [as_wire(getattr(plan, name)) for name in names] for key, names in listed.items()}
    assert {
        key: values if len(values) > 1 else values[0] for key, values in found.items()
    } == encoded


# ------------------------------------------------------------ graph and thresholds


def test_the_graph_is_drawn_as_its_own_file_says() -> None:
    def steps(text: str) -> list[str]:
        found = re.findall(r"^\d\. .*?(?=^\d\. |\n\n)", text, re.MULTILINE | re.DOTALL)
        return [" ".join(step.split()) for step in found]

    section = PAGE.split("## Graph and committee, byte by byte")[1].split("\n## ")[0]
    assert graph.__doc__ is not None
    assert steps(section) == steps(graph.__doc__)
    assert len(steps(section)) == 5


def test_the_thresholds_are_right() -> None:
    rows = table("on the ring, corrupt, dropped", "class")
    for case, adversary, *numbers in rows:
        size, corrupt, dropped = (int(number) for number in re.findall(r"\d+", case))
        found = thresholds_for(
            adversary=AdversaryClass[adversary],
            base_size=size,
            roster_size=size,
            corrupt_permille=10 * corrupt,
            drop_permille=10 * dropped,
            survivor_floor=size,
        )
        degree, neighbourhood, members, certificate, window, _ = found.to_list()
        assert [int(number) for number in numbers] == [
            degree,
            neighbourhood,
            members,
            certificate,
            window,
        ]
    assert len(rows) == 9
    assert f"Below {LEAST_SPARSE_BASE} devices" in PAGE
    assert f"tightened by {GRINDING_BITS} bits" in PAGE
    assert [row[0] for row in table("class", "the ring is drawn over")] == [
        adversary.name for adversary in AdversaryClass
    ]


def test_the_vectors_parts_are_right() -> None:
    privacy = privacy_plan(16, 12, 1911, 0.0, 256, is_rotated=True)
    parts = [int(row[2]) for row in table("part", "values")]
    assert parts[0] == privacy.padded_dimension
    assert sum(parts) == privacy.vector_length


def test_every_member_proof_names_a_member() -> None:
    # The page calls the two proofs by what they add to each other.
    assert isinstance(arrays()["MemberProof"], MemberProof)
    assert arrays()["PeerProof"].to_list()[:4] == arrays()["MemberProof"].to_list()


# ------------------------------------------------------------ transitions


def test_the_devices_transitions_are_right() -> None:
    listed = [(row[0], row[1]) for row in table("in phase", "on")]
    assert listed == [(phase.name, on.__name__) for phase, on in DeviceRound._TRANSITIONS]


def test_the_aggregators_transitions_are_right() -> None:
    listed = [(row[0], row[1]) for row in table("in phase", "on message")]
    takes = [
        (phase.phase.name, phase.takes.__name__)
        for phase in ROUND_PHASES
        if isinstance(phase.takes, type)
    ]
    assert listed == takes
    events = [row[0] for row in table("on event", "it does")]
    assert events == [event.__name__ for event in AggregatorRound._EVENTS]


def _named(function: Callable[..., object], what: str) -> set[str]:
    return set(re.findall(rf"{what}\.([A-Z_]+)", inspect.getsource(function)))


def test_the_phases_are_right() -> None:
    needed, closes = table("phase", "needed to go on"), table("phase that closes", "with enough")
    names = [phase.name for phase in OPEN_PHASES]
    assert [row[0] for row in needed] == [row[0] for row in closes] == names
    for row, phase in zip(needed, ROUND_PHASES, strict=True):
        assert set(row[2].split(", ")) == _named(phase.close, "AbortReason")
    by_class = {phase.__name__: phase.phase.name for phase in ROUND_PHASES}
    for row, phase in zip(closes[:-1], ROUND_PHASES, strict=False):
        made = re.findall(r"(\w+Phase)\(", inspect.getsource(phase.next))
        followers = {by_class[name] for name in made}
        assert set(re.findall(r"[A-Z_]{8,}", row[1])) == followers


def test_the_key_epoch_machines_are_right() -> None:
    device = [row[0] for row in table("on epoch message", "it does")]
    assert device == [message.__name__ for message in DeviceEpoch._TRANSITIONS]
    aggregator = [row[0] for row in table("on epoch event", "it does")]
    assert aggregator == [event.__name__ for event in AggregatorEpoch._HANDLERS]


def test_error_codes_on_the_page_exist() -> None:
    folders = (ROOT / "edgefl", ROOT / "broker")
    source = "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))
    for code in set(re.findall(r"E-[A-Z]+(?:-[A-Z]+)+", PAGE)):
        assert f'"{code}"' in source, code
