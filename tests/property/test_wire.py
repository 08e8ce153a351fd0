"""A peer's bytes give a message or a `WireError`/`RemoteProtocolError`, and nothing else."""

import contextlib
import functools
import time
from collections.abc import Callable

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgefl._native import Seed, SigningKey
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.envelope import Header, open_envelope, seal_envelope
from edgefl.protocol.messages import AGGREGATOR_MESSAGES, DEVICE_MESSAGES, Message
from edgefl.protocol.plan import SessionPlan, TrainingPlan
from edgefl.protocol.reasons import OPEN_PHASES, AdversaryClass, Phase
from edgefl.protocol.round_messages import SharedKeys
from edgefl.protocol.session_graph import SessionGraph
from edgefl.protocol.thresholds import check_thresholds
from tests.round_boards import opened_epoch
from tests.round_harness import RoundHarness
from tests.strategies import BODIES, BY_TYPE, MESSAGES, PLAIN_VALUES

KEY = SigningKey.from_seed(Seed.from_bytes(b"\x07" * 32))
TOPIC = "efl/1/fleet/d/device/q"
ALL_MESSAGES = tuple(dict.fromkeys([*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES]))
HEADERS = st.builds(
    Header,
    session_id=st.binary(min_size=32, max_size=32),
    round_number=st.integers(0, 1_000_000),
    attempt=st.integers(0, 1_000_000),
    sender=st.text(max_size=64),
)
Parser = Callable[[bytes], object]


def refuses(parse: Parser, payload: bytes) -> bool:
    """Tell whether a parser refuses bytes; any other exception than the two goes through."""
    try:
        parse(payload)
    except (WireError, RemoteProtocolError):
        return True
    return False


def open_here(payload: bytes) -> object:
    return open_envelope(TOPIC, payload)


@functools.cache
def valid_plan() -> bytes:
    harness = RoundHarness(3, noise=0.4)
    harness.run_until(Phase.SHARE_KEYS)
    assert harness.aggregator.plan is not None
    return harness.aggregator.plan.to_bytes()


@functools.cache
def valid_snapshots() -> tuple[tuple[bytes, bytes | None], ...]:
    """Return what a device had persisted in each phase: snapshot and spooled vector."""
    harness = RoundHarness(3, adversary=AdversaryClass.MALICIOUS)
    snapshots = []
    for phase in (*OPEN_PHASES[1:], Phase.COMMITTED):
        harness.run_until(phase)
        device = harness.devices["d00"]
        if device.flash is not None:
            snapshots.append((device.flash, device.spool))
    assert len(set(snapshots)) >= 4
    return tuple(snapshots)


def read_snapshot(snapshot: bytes) -> object:
    return DeviceState.from_bytes(snapshot, valid_snapshots()[-1][1])


@functools.cache
def valid_envelope() -> bytes:
    """Return a signed message of a real round, with ciphertexts in it."""
    harness = RoundHarness(3)
    harness.run_until(Phase.MASKED_INPUT)
    shared = next(
        message for _, message in harness.devices["d00"].sent if isinstance(message, SharedKeys)
    )
    return seal_envelope(KEY, TOPIC, Header(sender="d00"), shared)


PARSERS: dict[str, tuple[Parser, Callable[[], bytes]]] = {
    "envelope": (open_here, valid_envelope),
    "plan": (SessionPlan.from_bytes, valid_plan),
    "snapshot": (read_snapshot, lambda: valid_snapshots()[-1][0]),
    "value": (wire.decode, lambda: wire.encode({0: [1, b"two", "three", 4.5, None, True]})),
}


# ---------------------------------------------------------------- round trips


@given(message=MESSAGES, header=HEADERS)
def test_every_message_comes_back_as_it_was(message: Message, header: Header) -> None:
    envelope = open_envelope(TOPIC, seal_envelope(KEY, TOPIC, header, message))
    envelope.require_signed_by(KEY.public_key)
    assert envelope.message == message
    assert envelope.header == header


@pytest.mark.parametrize("kind", ALL_MESSAGES)
def test_every_kind_of_message_has_a_strategy_and_a_number_of_its_own(kind: type[Message]) -> None:
    assert kind in BY_TYPE
    assert [other.kind for other in ALL_MESSAGES].count(kind.kind) == 1


def test_plans_and_snapshots_come_back_as_they_were() -> None:
    assert SessionPlan.from_bytes(valid_plan()).to_bytes() == valid_plan()
    for snapshot, spooled in valid_snapshots():
        assert DeviceState.from_bytes(snapshot, spooled).to_bytes() == snapshot


@given(value=PLAIN_VALUES)
def test_plain_values_have_one_encoding(value: wire.WireValue) -> None:
    with contextlib.suppress(WireError):  # deeper than allowed, or integers beyond 64 bits
        payload = wire.encode(value)
        assert wire.encode(wire.decode(payload)) == payload


# ---------------------------------------------------------------- hostile bytes


@pytest.mark.parametrize("name", PARSERS)
@given(payload=st.binary(max_size=300))
def test_arbitrary_bytes(name: str, payload: bytes) -> None:
    parse, _ = PARSERS[name]
    if not refuses(parse, payload):
        assert name == "value", "random bytes are no message"


@pytest.mark.parametrize("name", PARSERS)
@given(value=PLAIN_VALUES | BODIES)
def test_arbitrary_values(name: str, value: wire.WireValue) -> None:
    parse, _ = PARSERS[name]
    refuses(parse, cbor2.dumps(value, canonical=True))


@given(kind=st.integers(0, 30), body=BODIES | PLAIN_VALUES)
def test_arbitrary_bodies_of_every_kind(kind: int, body: wire.WireValue) -> None:
    parts = [1, kind, bytes(32), 1, 1, "device", cbor2.dumps(body, canonical=True), bytes(64)]
    refuses(open_here, cbor2.dumps(parts, canonical=True))


@given(message=MESSAGES, data=st.data())
def test_one_field_of_a_body_is_replaced(message: Message, data: st.DataObject) -> None:
    body = dict(message.to_body())
    body[data.draw(st.sampled_from(sorted(body)))] = data.draw(PLAIN_VALUES)
    kind = type(message)
    with contextlib.suppress(WireError):
        decoded = wire.as_body(wire.decode(cbor2.dumps(body, canonical=True)))
        assert kind.from_body(decoded).to_body() == decoded


@given(data=st.data())
def test_one_field_of_a_plan_is_replaced(data: st.DataObject) -> None:
    body = dict(wire.as_body(wire.decode(valid_plan())))
    key = data.draw(st.sampled_from(sorted(body)))
    if key == 19 and data.draw(st.booleans()):
        privacy = dict(wire.as_body(body[key]))
        field = data.draw(st.sampled_from(sorted(privacy)))
        old = privacy[field]
        same_type = {float: st.floats(), int: st.integers(-(2**63), 2**63), str: st.text()}
        privacy[field] = data.draw(same_type[type(old)] | PLAIN_VALUES)
        body[key] = privacy
    elif key == 12 and data.draw(st.booleans()):
        numbers = list(wire.as_list(body[key], 6))
        numbers[data.draw(st.integers(0, 5))] = data.draw(st.integers(0, 20_000))
        body[key] = numbers
    else:
        body[key] = data.draw(PLAIN_VALUES)
    with contextlib.suppress(WireError, RemoteProtocolError):
        plan = SessionPlan.from_bytes(cbor2.dumps(body, canonical=True))
        check_thresholds(plan, roster_size=3)
        # What passed can be drawn a graph for.
        graph = SessionGraph.of(plan, opened_epoch(3)[0].epoch)
        assert all(graph.neighbours(position) for position in range(plan.size))


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_mutated_valid_bytes(name: str, data: st.DataObject) -> None:
    parse, make_valid = PARSERS[name]
    payload = make_valid()
    assert not refuses(parse, payload)
    place = data.draw(st.integers(0, len(payload) - 1), label="place")
    mutation = data.draw(st.sampled_from(["flip", "cut", "extend", "insert", "delete"]))
    if mutation == "flip":
        flipped = payload[place] ^ (1 << data.draw(st.integers(0, 7)))
        changed = payload[:place] + bytes([flipped]) + payload[place + 1 :]
        refuses(parse, changed)
        return
    changed = {
        "cut": payload[:place],
        "extend": payload + data.draw(st.binary(min_size=1, max_size=9)),
        "insert": payload[:place] + data.draw(st.binary(min_size=1, max_size=9)) + payload[place:],
        "delete": payload[:place] + payload[place + 1 :],
    }[mutation]
    if changed != payload and mutation in ("cut", "extend"):
        assert refuses(parse, changed)
    else:
        refuses(parse, changed)


# ---------------------------------------------------------------- signatures


def test_a_flipped_bit_anywhere_in_an_envelope_never_passes() -> None:
    payload = valid_envelope()
    for place in range(len(payload)):
        for bit in range(8):
            changed = bytearray(payload)
            changed[place] ^= 1 << bit
            assert refuses(_open_and_verify, bytes(changed)), f"byte {place}, bit {bit}"


def _open_and_verify(payload: bytes) -> None:
    open_envelope(TOPIC, payload).require_signed_by(KEY.public_key)


@given(message=MESSAGES, header=HEADERS, data=st.data())
def test_a_flipped_bit_in_any_kind_of_message_never_passes(
    message: Message, header: Header, data: st.DataObject
) -> None:
    changed = bytearray(seal_envelope(KEY, TOPIC, header, message))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert refuses(_open_and_verify, bytes(changed))


# ---------------------------------------------------------------- known CBOR tricks


def _shared_reference_bomb() -> bytes:
    """Lists of 60 references to the list before: 60^6 nodes in under 1 kB."""
    references = (b"\xd8\x1c\x98\x3c" + (b"\xd8\x1d" + bytes([level])) * 60 for level in range(6))
    levels = [b"\xd8\x1c\x80", *references]
    return bytes([0x80 + len(levels)]) + b"".join(levels)


TRICKS = {
    "empty": b"",
    "indefinite bytes": b"\x5f\x41\x00\xff",
    "indefinite text": b"\x7f\x61a\xff",
    "indefinite list": b"\x9f\x00\xff",
    "indefinite map": b"\xbf\x00\x00\xff",
    "lone break": b"\xff",
    "reserved argument": b"\x1c",
    "nesting bomb": b"\x81" * 100_000 + b"\x00",
    "map nesting bomb": b"\xa1\x00" * 100_000 + b"\x00",
    "tag nesting bomb": b"\xc1" * 100_000 + b"\x00",
    "list of 2^63": b"\x9b\x7f" + b"\xff" * 7,
    "list of 2^32": b"\x9a\xff\xff\xff\xff",
    "map of 2^63": b"\xbb\x7f" + b"\xff" * 7,
    "bytes of 2^63": b"\x5b\x7f" + b"\xff" * 7,
    "text of 2^32": b"\x7a\xff\xff\xff\xff",
    "self-referring list": b"\xd8\x1c\x81\xd8\x1d\x00",
    "shared reference bomb": _shared_reference_bomb(),
    "date": b"\xc0\x74" + b"2013-03-21T20:04:00Z",
    "small bignum": cbor2.dumps(2**70),
    "bignum that cannot be printed": cbor2.dumps(10**9000),
    "negative bignum": cbor2.dumps(-(10**400)),
    "decimal fraction": b"\xc4\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01",
    "regular expression": b"\xd8\x23\x61(",
    "string references": b"\xd9\x01\x00\x82\x44abcd\xd8\x19\x00",
    "undefined": b"\xf7",
    "simple value": b"\xf8\x20",
    "text key": b"\xa1\x61a\x00",
    "list key": b"\xa1\x80\x00",
    "NaN key": b"\xa1\xf9\x7e\x00\x00",
    "one key twice": b"\xa2\x00\x00\x00\x01",
    "keys out of order": b"\xa2\x01\x00\x00\x00",
    "long form of 0": b"\x18\x00",
    "long form of a length": b"\x58\x01\x00",
    "long form of a float": b"\xfb" + bytes(8),
    "two items": b"\x00\x00",
    "text that is not UTF-8": b"\x61\xff",
    "a lone surrogate": b"\x63\xed\xa0\x80",
}


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("name", PARSERS)
def test_tricks_are_refused_at_once(name: str, trick: str) -> None:
    parse, _ = PARSERS[name]
    started_s = time.monotonic()
    assert refuses(parse, TRICKS[trick])
    assert time.monotonic() - started_s < 1.0


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_within_a_message_are_refused(trick: str) -> None:
    for kind in ALL_MESSAGES:
        parts = [1, kind.kind, bytes(32), 1, 1, "device", TRICKS[trick], bytes(64)]
        assert refuses(open_here, cbor2.dumps(parts, canonical=True)), kind.__name__


@pytest.mark.parametrize("exponent", [20, 400, 9000])
@pytest.mark.parametrize("kind", ALL_MESSAGES)
def test_big_numbers_in_a_field_are_refused(kind: type[Message], exponent: int) -> None:
    body = cbor2.dumps(dict.fromkeys(range(6), 10**exponent), canonical=True)
    parts = [1, kind.kind, bytes(32), 1, 1, "device", body, bytes(64)]
    assert refuses(open_here, cbor2.dumps(parts, canonical=True))


def test_a_payload_above_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_MESSAGE_BYTES", 10)
    assert refuses(wire.decode, wire.encode(bytes(11)))
    assert not refuses(wire.decode, wire.encode(bytes(9)))


@given(value=PLAIN_VALUES)
@example(value=2**63)
@example(value=float("nan"))
@example(value=float("inf"))
def test_a_training_plan_of_any_value(value: wire.WireValue) -> None:
    for fields in ([value, 4, 0.1], [1, value, 0.1], [1, 4, value], value):
        with contextlib.suppress(WireError):
            plan = TrainingPlan.from_value(fields)
            assert 0 < plan.learning_rate < 1e3


@pytest.mark.parametrize("depth", [1, 2])
def test_many_small_items_are_refused_before_they_are_built(depth: int) -> None:
    row = [0] * (wire.MAX_ITEMS // depth)
    payload = cbor2.dumps([row] * depth if depth > 1 else row)
    with pytest.raises(WireError, match="E-WIRE-ITEMS"):
        wire.decode(payload)
