"""A device's snapshot: the whole state or an error, and the same round after a restart."""

import functools

import pytest

from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.events import Persist
from edgefl.protocol.reasons import LeaveReason, Phase
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)
from tests.device_fixtures import LIAR
from tests.device_harness import Table
from tests.hostile_gateway import small, small_in
from tests.played_device import Device

OPEN_PHASES = [phase for phase in Phase if not phase.is_final]
N_FIELDS = 15
NEEDED = [
    *((Phase.SHARE_KEYS, key) for key in range(3, 7)),
    *((Phase.MASKED_INPUT, key) for key in range(3, 8)),
    *((Phase.CERTIFICATE, key) for key in range(3, 11)),
    *((Phase.UNMASKING, key) for key in (*range(3, 9), 11, 12)),
]


@functools.cache
def seat() -> str:
    """Return a member of the committee."""
    return small(LIAR).committee[0]


@functools.cache
def tables() -> dict[Phase, Table]:
    """Return tables at which that member is in each of a device's phases."""
    found = {Phase.CHECK_IN: small_in(Phase.SHARE_KEYS, LIAR)}
    found[Phase.SHARE_KEYS] = small_in(Phase.MASKED_INPUT, LIAR)
    found[Phase.MASKED_INPUT] = small_in(Phase.UNMASKING, LIAR)
    found[Phase.CERTIFICATE] = small_in(Phase.UNMASKING, LIAR)
    found[Phase.UNMASKING] = small_in(Phase.UNMASKING, LIAR)
    for phase in (Phase.CERTIFICATE, Phase.UNMASKING):
        found[phase].devices[seat()].say(found[phase].proposal())
    found[Phase.UNMASKING].devices[seat()].say(found[Phase.UNMASKING].request())
    return found


def snapshot(phase: Phase) -> bytes:
    flash = tables()[phase].devices[seat()].flash.round
    assert flash is not None
    return flash


def spooled(phase: Phase) -> bytes | None:
    return tables()[phase].devices[seat()].flash.spool


def device_in(phase: Phase) -> Device:
    device = tables()[phase].devices[seat()].twin()
    device.sent.clear()
    return device


@pytest.mark.parametrize("phase", OPEN_PHASES)
def test_a_snapshot_comes_back_as_it_was(phase: Phase) -> None:
    state = DeviceState.from_bytes(snapshot(phase), spooled(phase))
    assert state.phase is phase
    assert state.to_bytes() == snapshot(phase)


@pytest.mark.parametrize(("phase", "key"), NEEDED)
def test_half_a_snapshot_is_refused(phase: Phase, key: int) -> None:
    body = dict(wire.as_body(wire.decode(snapshot(phase)))) | {key: None}
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        DeviceState.from_bytes(wire.encode(body), spooled(Phase.UNMASKING))


@pytest.mark.parametrize("key", range(N_FIELDS))
def test_a_snapshot_without_a_field_is_refused(key: int) -> None:
    body = dict(wire.as_body(wire.decode(snapshot(Phase.UNMASKING))))
    del body[key]
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        DeviceState.from_bytes(wire.encode(body), spooled(Phase.UNMASKING))


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "another"])
@pytest.mark.parametrize("phase", [Phase.MASKED_INPUT, Phase.CERTIFICATE, Phase.UNMASKING])
def test_a_damaged_vector_ends_the_round_and_is_never_sent(phase: Phase, damage: str) -> None:
    vector = spooled(phase)
    assert vector is not None
    assert vector not in snapshot(phase)
    spoiled = {
        "gone": None,
        "cut": vector[:-1],
        "flipped": bytes([vector[0] ^ 1]) + vector[1:],
        "another": bytes(len(vector)),
    }
    with pytest.raises(WireError, match="E-SPOOL"):
        DeviceState.from_bytes(snapshot(phase), spoiled[damage])


@pytest.mark.parametrize("version", [0, 1, 2, 255])
def test_another_version_is_refused(version: int) -> None:
    body = dict(wire.as_body(wire.decode(snapshot(Phase.CHECK_IN)))) | {0: version}
    with pytest.raises(WireError):
        DeviceState.from_bytes(wire.encode(body), spooled(Phase.UNMASKING))


@pytest.mark.parametrize("phase", OPEN_PHASES)
def test_no_key_of_the_key_epoch_is_in_it(phase: Phase) -> None:
    """A snapshot that is kept too long opens no other round."""
    keys = tables()[phase].devices[seat()].epoch.keys
    for secret in (keys.mask_secret(0), keys.share_secret):
        assert secret.export_seed().export_bytes() not in snapshot(phase)


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        (Phase.CHECK_IN, CheckIn),
        (Phase.SHARE_KEYS, SharedKeys),
        (Phase.MASKED_INPUT, MaskedInput),
        (Phase.CERTIFICATE, SurvivorVote),
        (Phase.UNMASKING, RevealedShares),
    ],
)
def test_a_restart_sends_the_newest_message_again(phase: Phase, kind: type) -> None:
    sent = tables()[phase].devices[seat()].sent_of(kind)
    device = device_in(phase)
    device.restart()
    assert device.sent == [sent[-1]]


def test_a_round_of_another_device_is_refused() -> None:
    table = tables()[Phase.MASKED_INPUT].twin()
    other = next(device for name, device in table.devices.items() if name != seat())
    other.flash.round = snapshot(Phase.MASKED_INPUT)
    other.flash.spool = spooled(Phase.MASKED_INPUT)
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        other.restart()


def test_a_round_of_another_call_is_refused() -> None:
    table = tables()[Phase.CHECK_IN].twin()
    device = table.devices[seat()]
    body = dict(wire.as_body(wire.decode(snapshot(Phase.CHECK_IN))))
    call = dict(wire.as_body(body[2])) | {2: 7}
    device.flash.round = wire.encode(body | {2: call})
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        device.restart()


@pytest.mark.parametrize("phase", [Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASKING])
def test_a_round_without_one_of_its_neighbours_is_refused(phase: Phase) -> None:
    device = device_in(phase)
    body = dict(wire.as_body(wire.decode(snapshot(phase))))
    peers = body[4]
    assert isinstance(peers, list)
    device.flash.round = wire.encode(body | {4: peers[:-1]})
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        device.restart()


@pytest.mark.parametrize("reason", list(LeaveReason))
def test_a_device_that_left_stays_away_after_a_restart(reason: LeaveReason) -> None:
    device = device_in(Phase.MASKED_INPUT)
    assert device.machine is not None
    effects = device.machine.leave(reason)
    assert [type(effect).__name__ for effect in effects] == ["Persist", "SendUp", "DeviceFinished"]
    assert isinstance(effects[0], Persist)
    device.flash.round = effects[0].snapshot
    device.restart()
    assert device.machine is not None
    assert device.machine.phase is Phase.ABORTED
    assert device.machine.left is reason
    assert device.machine.resume() == ()
    assert device.machine.leave(LeaveReason.NOT_AVAILABLE) == ()
