"""Devices that lose power around sending, and what is summed beside the updates."""

import numpy as np
import pytest

from edgefl.protocol.events import SendUp
from edgefl.protocol.reasons import OPEN_PHASES, AdversaryClass, Phase
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)
from tests.round_boards import Device
from tests.round_harness import RoundHarness

CURIOUS, SEMI, MALICIOUS = AdversaryClass
# Seven devices share with all others; four shares open a secret, so that five must survive.
N_DEVICES, FLOOR = 7, 5
MESSAGE_OF = {
    Phase.CHECK_IN: CheckIn,
    Phase.SHARE_KEYS: SharedKeys,
    Phase.MASKED_INPUT: MaskedInput,
    Phase.CERTIFICATE: SurvivorVote,
    Phase.UNMASKING: RevealedShares,
}


def check_sum(harness: RoundHarness) -> None:
    """Check a committed round: the sum is exactly that of what the survivors hid."""
    outcome = harness.outcome
    assert outcome is not None
    assert outcome.report.outcome is Phase.COMMITTED
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    assert outcome.total_weight == len(outcome.report.survivors)


# ---------------------------------------------------------------- around sending


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
    harness = RoundHarness(N_DEVICES, floor=FLOOR, adversary=MALICIOUS)
    victim = die_beside_sending(harness, phase, moment)
    harness.crash(victim)
    if comes_back:
        harness.restart(victim)
        harness.ask_again(victim.name)
    else:
        harness.silence(victim)
    outcome = harness.run_to_end()
    check_sum(harness)
    is_counted = comes_back or phase >= Phase.CERTIFICATE
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
    harness.run_to_end()
    assert len(harness.vectors) == 5, "one vector was made and never left the device"
    check_sum(harness)


@pytest.mark.parametrize("phase", OPEN_PHASES)
def test_a_lost_request_is_sent_again(phase: Phase) -> None:
    harness = RoundHarness(N_DEVICES, adversary=MALICIOUS, floor=N_DEVICES)
    harness.run_until(phase)
    harness.charge()
    lost = [packet for packet in harness.packets if not packet.goes_up]
    assert lost
    harness.packets = [packet for packet in harness.packets if packet.goes_up]
    for name in harness.devices:
        harness.ask_again(name)
    assert len(harness.packets) == len(lost)
    outcome = harness.run_to_end()
    assert outcome.report.dropouts == ()
    check_sum(harness)


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("weight_bound", [1, 5])
def test_rotated_updates_are_summed_exactly(weight_bound: int) -> None:
    """The sum stays rotated, and is as long as whole blocks."""
    harness = RoundHarness(5, dimension=11, is_rotated=True, weight_bound=weight_bound)
    assert harness.privacy.rotation_block
    harness.run_until(Phase.MASKED_INPUT)
    harness.silence(harness.devices["d01"])
    outcome = harness.run_to_end()
    assert outcome.total is not None
    assert outcome.total.shape == (harness.privacy.padded_dimension,)
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    assert outcome.total_weight == (
        len(outcome.report.survivors) if weight_bound == 1 else harness.survivors_weight(outcome)
    )


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_weights_are_summed_inside_the_masked_vector(adversary: AdversaryClass) -> None:
    harness = RoundHarness(6, adversary=adversary, weight_bound=5)
    harness.run_until(Phase.MASKED_INPUT)
    harness.silence(harness.devices["d02"])
    outcome = harness.run_to_end()
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    weights = [weight for _, weight in harness.hidden.values()]
    assert 1 < max(weights) <= 5, "examples above the bound count as the bound"
    assert outcome.total_weight == harness.survivors_weight(outcome)
    # The plain weighted mean, to the precision of the rounding.
    bits, scale = harness.privacy.ring_bits, harness.privacy.scale
    signed = outcome.total.astype(np.int64)
    signed[signed >= 1 << (bits - 1)] -= 1 << bits
    plain = np.zeros(harness.dimension)
    for packed in harness.packed_by(outcome):
        update, weight = harness.hidden[packed]
        plain += weight * update / max(1.0, float(np.linalg.norm(update)))
    np.testing.assert_allclose(signed / scale, plain, atol=5 * 6 / scale + 1e-4)
