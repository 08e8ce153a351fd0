"""Devices that die in each phase, around the number that the phase needs."""

import numpy as np
import pytest

from edgefl.protocol.events import SendUp
from edgefl.protocol.messages import CheckIn, MaskedInput, RevealedShares, SharedKeys
from edgefl.protocol.reasons import OPEN_PHASES, AbortReason, DropReason, Phase
from tests.round_harness import Device, RoundHarness

N_DEVICES, FLOOR = 7, 5
SHORTFALL = {
    Phase.CHECK_IN: AbortReason.TOO_FEW_CHECKED_IN,
    Phase.SHARE_KEYS: AbortReason.TOO_FEW_SHARED_KEYS,
    Phase.MASKED_INPUT: AbortReason.BELOW_SURVIVOR_FLOOR,
    Phase.UNMASKING: AbortReason.TOO_FEW_UNMASKED,
}
MESSAGE_OF = {
    Phase.CHECK_IN: CheckIn,
    Phase.SHARE_KEYS: SharedKeys,
    Phase.MASKED_INPUT: MaskedInput,
    Phase.UNMASKING: RevealedShares,
}


@pytest.mark.parametrize("left", [FLOOR - 1, FLOOR, FLOOR + 1, N_DEVICES])
@pytest.mark.parametrize("phase", OPEN_PHASES)
def test_silence_costs_the_silent_alone(phase: Phase, left: int) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    harness.run_until(phase)
    silent = list(harness.devices.values())[left:]
    for device in silent:
        harness.silence(device)
    outcome = harness.run_to_end()
    report = outcome.report
    if left < FLOOR:
        assert report.outcome is Phase.ABORTED
        assert report.abort_reason is SHORTFALL[phase]
        assert outcome.total is None
        assert report.survivors == ()
        assert not any(
            isinstance(message, RevealedShares)
            for device in harness.devices.values()
            for _, message in device.sent
        ) or (phase is Phase.UNMASKING)
        return
    assert report.outcome is Phase.COMMITTED
    assert len(report.survivors) == (N_DEVICES if phase is Phase.UNMASKING else left)
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    assert [drop.device for drop in report.dropouts] == [device.name for device in silent]
    assert {drop.phase for drop in report.dropouts} <= {phase}
    assert {drop.reason for drop in report.dropouts} <= {DropReason.TIMED_OUT}


@pytest.mark.parametrize("left", [FLOOR - 1, FLOOR, FLOOR + 1])
@pytest.mark.parametrize("phase", OPEN_PHASES)
def test_devices_known_to_be_offline_are_not_waited_for(phase: Phase, left: int) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    harness.run_until(phase)
    for device in list(harness.devices.values())[left:]:
        harness.silence(device)
        harness.say_offline(device.name)
    started_s = harness.now_s
    outcome = harness.run_to_end()
    assert harness.now_s == started_s, "no timer was needed"
    assert (outcome.report.outcome is Phase.COMMITTED) == (left >= FLOOR)
    assert {drop.reason for drop in outcome.report.dropouts} == {DropReason.OFFLINE}


def test_a_silent_device_in_every_phase_of_one_round() -> None:
    harness = RoundHarness(10, floor=7)
    names = list(harness.devices)
    for phase, name in zip(OPEN_PHASES, names, strict=False):
        harness.run_until(phase)
        if harness.aggregator.phase < phase:
            harness.fire_timer()
            harness.run_until(phase)
        harness.silence(harness.devices[name])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert {drop.device: drop.phase for drop in outcome.report.dropouts} == dict(
        zip(names, OPEN_PHASES, strict=False)
    )
    assert outcome.report.survivors == tuple(names[3:])
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def die_beside_sending(harness: RoundHarness, phase: Phase, moment: str) -> Device:
    """Let the first device lose power around sending its message of a phase."""
    victim = harness.devices["d00"]
    harness.run_until(phase)
    for _ in range(20):
        harness.deliver_all()
        while victim.effects:
            effect = victim.effects[0]
            is_message = isinstance(effect, SendUp) and isinstance(
                effect.message, MESSAGE_OF[phase]
            )
            if is_message and moment == "after persisting":
                return victim
            if (
                moment == "before persisting"
                and len(victim.effects) > 1
                and isinstance(victim.effects[1], SendUp)
                and isinstance(victim.effects[1].message, MESSAGE_OF[phase])
            ):
                return victim
            harness.step(victim)
            if is_message:
                return victim
        for device in harness.devices.values():
            harness.work(device)
            if device is not victim:
                harness.settle(device)
        harness.charge()
    raise AssertionError("the device never sent its message")


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("moment", ["before persisting", "after persisting", "after sending"])
@pytest.mark.parametrize("phase", OPEN_PHASES)
def test_power_is_lost_around_sending(phase: Phase, moment: str, comes_back: bool) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    victim = die_beside_sending(harness, phase, moment)
    harness.crash(victim)
    if comes_back:
        harness.restart(victim)
        harness.ask_again(victim.name)
    else:
        harness.silence(victim)
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    is_counted = comes_back or phase is Phase.UNMASKING
    is_counted |= phase is Phase.MASKED_INPUT and moment == "after sending"
    assert ("d00" in outcome.report.survivors) == is_counted
    assert all(len(versions) == 1 for versions in harness.masked_versions.values())
    if comes_back:
        assert outcome.report.dropouts == ()


def test_a_lost_masked_input_is_sent_again_as_the_same_bytes() -> None:
    harness = RoundHarness(4)
    victim = die_beside_sending(harness, Phase.MASKED_INPUT, "after sending")
    harness.packets = [packet for packet in harness.packets if packet.device != victim.name]
    harness.crash(victim)
    harness.restart(victim)
    outcome = harness.run_to_end()
    sent = [message for _, message in victim.sent if isinstance(message, MaskedInput)]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert victim.name in outcome.report.survivors


def test_a_device_that_trains_again_before_it_sent_hides_the_newer_update() -> None:
    harness = RoundHarness(4)
    victim = die_beside_sending(harness, Phase.MASKED_INPUT, "before persisting")
    harness.crash(victim)
    harness.restart(victim)
    outcome = harness.run_to_end()
    assert len(harness.vectors) == 5, "one vector was made and never left the device"
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
