"""Bytes about rosters and key epochs give a value, a `WireError`, or a `RemoteProtocolError`."""

import contextlib
import functools
from collections.abc import Callable

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.device_epoch_state import DeviceEpochState
from edgefl.protocol.key_bundle import KeyBundle, MaskKeyProof
from edgefl.protocol.key_epoch import EpochRecord
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.roster import Roster
from edgefl.protocol.roster_epoch import RosterEntry, RosterEpoch
from tests.epoch_harness import EpochFleet, make_roster
from tests.epoch_strategies import EPOCH_BY_TYPE, EPOCH_MESSAGES, PEERS, EpochMessage
from tests.strategies import BODIES, PLAIN_VALUES

FROM_VALUE: tuple[Callable[[wire.WireValue], object], ...] = (
    KeyBundle.from_value,
    MaskKeyProof.from_value,
    EpochRecord.from_value,
    PeerProof.from_value,
    RosterEntry.from_value,
    RosterEpoch.from_value,
)


@functools.cache
def valid_files() -> dict[str, bytes]:
    fleet = EpochFleet(3)
    fleet.open_epoch()
    board = fleet.boards["d00"]
    board.carry_out(board.machine.reserve_index(1, b"c" * 32))
    board.carry_out(board.machine.bind_index(1, b"s" * 32))
    assert board.flash is not None
    return {"snapshot": board.flash, "roster": make_roster(["a", "b"]).to_bytes()}


PARSERS: dict[str, Callable[[bytes], DeviceEpochState | Roster]] = {
    "snapshot": DeviceEpochState.from_bytes,
    "roster": Roster.from_bytes,
}


@given(message=EPOCH_MESSAGES)
def test_every_message_comes_back_as_it_was(message: EpochMessage) -> None:
    body = wire.as_body(wire.decode(wire.encode(message.to_body())))
    assert type(message).from_body(body) == message


@given(proof=PEERS)
def test_every_proof_comes_back_as_it_was(proof: PeerProof) -> None:
    assert PeerProof.from_value(wire.decode(wire.encode(proof.to_list()))) == proof


@pytest.mark.parametrize("name", PARSERS)
def test_files_come_back_as_they_were(name: str) -> None:
    content = valid_files()[name]
    assert PARSERS[name](content).to_bytes() == content


@given(message=EPOCH_MESSAGES, data=st.data())
def test_one_field_of_a_message_is_replaced(message: EpochMessage, data: st.DataObject) -> None:
    body = dict(message.to_body())
    body[data.draw(st.sampled_from(sorted(body)))] = data.draw(PLAIN_VALUES)
    with contextlib.suppress(WireError):
        decoded = wire.as_body(wire.decode(cbor2.dumps(body, canonical=True)))
        assert type(message).from_body(decoded).to_body() == decoded


@given(body=BODIES)
def test_arbitrary_bodies(body: wire.Body) -> None:
    for kind in EPOCH_BY_TYPE:
        with contextlib.suppress(WireError):
            kind.from_body(body)


@given(value=PLAIN_VALUES | st.lists(PLAIN_VALUES, max_size=10))
def test_arbitrary_values(value: wire.WireValue) -> None:
    for parse in FROM_VALUE:
        with contextlib.suppress(WireError):
            parse(value)


@given(proof=PEERS, data=st.data())
def test_one_item_of_a_proof_is_replaced(proof: PeerProof, data: st.DataObject) -> None:
    parts = proof.to_list()
    place = data.draw(st.integers(0, len(parts) - 1))
    inner = parts[place]
    if isinstance(inner, list) and inner:
        inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(PLAIN_VALUES)
    else:
        parts[place] = data.draw(PLAIN_VALUES)
    with contextlib.suppress(WireError):
        assert PeerProof.from_value(parts).to_list() == parts


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_mutated_files(name: str, data: st.DataObject) -> None:
    changed = bytearray(valid_files()[name])
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, 8 * len(changed) - 1))
        changed[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(WireError, RemoteProtocolError):
        assert PARSERS[name](bytes(changed)).to_bytes() == bytes(changed)


@pytest.mark.parametrize("name", PARSERS)
@given(value=PLAIN_VALUES | BODIES)
def test_files_of_arbitrary_values(name: str, value: wire.WireValue) -> None:
    with pytest.raises((WireError, RemoteProtocolError)):
        PARSERS[name](cbor2.dumps(value, canonical=True))
