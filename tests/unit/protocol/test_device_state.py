"""A device's snapshot: the whole state or an error, and the same round after a restart."""

import functools

import pytest

from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.messages import MaskedInput, RevealedShares, SharedKeys
from edgefl.protocol.reasons import LeaveReason, Phase
from tests.round_harness import Device, RoundHarness


@functools.cache
def snapshots() -> dict[Phase, bytes]:
    """Return the last snapshot of each of a device's phases."""
    harness = RoundHarness(4)
    device = harness.devices["d00"]
    found: dict[Phase, bytes] = {}
    while harness.outcome is None:
        harness.deliver_all()
        for other in harness.devices.values():
            harness.work(other)
            while other.effects:
                harness.step(other)
                if other is device and device.flash is not None:
                    found[DeviceState.from_bytes(device.flash).phase] = device.flash
        harness.charge()
        harness.unmask()
    assert sorted(found) == [
        Phase.CHECK_IN,
        Phase.SHARE_KEYS,
        Phase.MASKED_INPUT,
        Phase.UNMASKING,
    ]
    return found


NEEDED = [
    *((Phase.SHARE_KEYS, key) for key in (6, 7)),
    *((Phase.MASKED_INPUT, key) for key in (6, 7, 8)),
    *((Phase.UNMASKING, key) for key in range(6, 12)),
]


@pytest.mark.parametrize("phase", [phase for phase in Phase if not phase.is_final])
def test_a_snapshot_comes_back_as_it_was(phase: Phase) -> None:
    state = DeviceState.from_bytes(snapshots()[phase])
    assert state.phase is phase
    assert state.to_bytes() == snapshots()[phase]


@pytest.mark.parametrize(("phase", "key"), NEEDED)
def test_half_a_snapshot_is_refused(phase: Phase, key: int) -> None:
    body = dict(wire.as_body(wire.decode(snapshots()[phase]))) | {key: None}
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        DeviceState.from_bytes(wire.encode(body))


@pytest.mark.parametrize("key", range(13))
def test_a_snapshot_without_a_field_is_refused(key: int) -> None:
    body = dict(wire.as_body(wire.decode(snapshots()[Phase.UNMASKING])))
    del body[key]
    with pytest.raises(WireError, match="E-SNAPSHOT"):
        DeviceState.from_bytes(wire.encode(body))


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused(version: int) -> None:
    body = dict(wire.as_body(wire.decode(snapshots()[Phase.CHECK_IN]))) | {0: version}
    with pytest.raises(WireError):
        DeviceState.from_bytes(wire.encode(body))


def _restored(phase: Phase) -> tuple[RoundHarness, Device]:
    harness = RoundHarness(4)
    device = harness.devices["d00"]
    device.flash = snapshots()[phase]
    harness.restart(device)
    return harness, device


@pytest.mark.parametrize(
    ("phase", "kind"),
    [
        (Phase.SHARE_KEYS, SharedKeys),
        (Phase.MASKED_INPUT, MaskedInput),
        (Phase.UNMASKING, RevealedShares),
    ],
)
def test_a_restart_sends_the_newest_message_again(phase: Phase, kind: type) -> None:
    _, device = _restored(phase)
    assert device.machine is not None
    assert type(device.machine.last_message()) is kind
    assert [type(effect).__name__ for effect in device.effects] == ["SendUp"]


@pytest.mark.parametrize("reason", list(LeaveReason))
def test_a_device_that_left_stays_away_after_a_restart(reason: LeaveReason) -> None:
    harness, device = _restored(Phase.MASKED_INPUT)
    assert device.machine is not None
    effects = device.machine.leave(reason)
    assert [type(effect).__name__ for effect in effects] == ["Persist", "SendUp", "DeviceFinished"]
    restored = harness.restored(device, effects[0].snapshot)  # type: ignore[union-attr]
    assert restored.phase is Phase.ABORTED
    assert restored.left is reason
    assert restored.resume() == ()
    assert restored.leave(LeaveReason.NOT_AVAILABLE) == ()
