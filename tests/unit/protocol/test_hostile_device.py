"""What a device may send in vain: the aggregator refuses it by name, and the others go on."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from edgefl.protocol.envelope import NO_SESSION
from edgefl.protocol.events import DeviceSaid
from edgefl.protocol.messages import (
    CheckIn,
    DeviceMessage,
    KeyAdvert,
    Leave,
    MaskedInput,
    RevealedShares,
    RoundClosed,
    SharedKeys,
)
from edgefl.protocol.reasons import AbortReason, DropReason, LeaveReason, Phase
from tests.round_harness import Device, RoundHarness

N_DEVICES, FLOOR = 6, 5
LIAR = "d05"


def own_message(harness: RoundHarness, name: str, phase: Phase) -> DeviceMessage:
    """Run up to a phase, and take back the message that a device has just sent in it."""
    harness.run_until(phase)
    device = harness.devices[name]
    for _ in range(10):
        harness.deliver_all_down()
        harness.settle(device)
        harness.work(device)
        harness.settle(device)
        harness.charge()
        if device.sent and type(device.sent[-1][1]) is _MESSAGE_OF[phase]:
            break
    message = device.sent[-1][1]
    assert type(message) is _MESSAGE_OF[phase]
    harness.packets = [
        packet for packet in harness.packets if packet.device != name or not packet.goes_up
    ]
    return message


_MESSAGE_OF = {
    Phase.CHECK_IN: CheckIn,
    Phase.SHARE_KEYS: SharedKeys,
    Phase.MASKED_INPUT: MaskedInput,
    Phase.UNMASKING: RevealedShares,
}


def say(harness: RoundHarness, name: str, message: DeviceMessage) -> None:
    plan = harness.aggregator.plan
    session_id = NO_SESSION if plan is None else plan.session_id
    harness.tell(DeviceSaid(device=name, session_id=session_id, message=message))


def codes(harness: RoundHarness) -> list[str]:
    return [error.code for _, error in harness.bad_messages]


def signed(signer: Device, message: CheckIn, **changes: bytes | str) -> CheckIn:
    unsigned = dataclasses.replace(message.advert, **changes)  # type: ignore[arg-type]
    signature = signer.identity.signing_key.sign(unsigned.signed_bytes(message.call_id))
    advert = dataclasses.replace(unsigned, signature=signature)
    return dataclasses.replace(message, advert=advert)


def _advert_of_another(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    del device
    return dataclasses.replace(message, advert=other)


def _another_identity(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    return signed(device, message, identity_key=other.identity_key)


def _another_name(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    return signed(device, message, device=other.device)


def _unsigned(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    del device
    advert = dataclasses.replace(message.advert, mask_key=other.identity_key)
    return dataclasses.replace(message, advert=advert)


def _keys_of_another(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    return signed(device, message, mask_key=other.mask_key)


def _one_key_twice(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    del other
    return signed(device, message, mask_key=message.advert.share_key)


def _weak_mask_key(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    del other
    return signed(device, message, mask_key=bytes(32))


def _weak_share_key(device: Device, message: CheckIn, other: KeyAdvert) -> CheckIn:
    del other
    return signed(device, message, share_key=b"\x01" + bytes(31))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_advert_of_another, "E-CHECK-IN-IDENTITY"),
        (_another_identity, "E-CHECK-IN-IDENTITY"),
        (_another_name, "E-CHECK-IN-IDENTITY"),
        (_unsigned, "E-ADVERT-SIGNATURE"),
        (_keys_of_another, "E-CHECK-IN-KEYS"),
        (_one_key_twice, "E-CHECK-IN-KEYS"),
        (_weak_mask_key, "E-PUBLIC-KEY"),
        (_weak_share_key, "E-PUBLIC-KEY"),
    ],
)
def test_a_check_in_is_refused(
    change: Callable[[Device, CheckIn, KeyAdvert], CheckIn], code: str
) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    other = own_message(harness, "d00", Phase.CHECK_IN)
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    assert isinstance(other, CheckIn)
    say(harness, "d00", other)
    say(harness, LIAR, change(harness.devices[LIAR], message, other.advert))
    assert codes(harness) == [code]
    _goes_on_without_the_liar(harness, Phase.CHECK_IN)


def _goes_on_without_the_liar(harness: RoundHarness, phase: Phase) -> None:
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR not in outcome.report.survivors
    (dropout,) = outcome.report.dropouts
    assert (dropout.device, dropout.phase) == (LIAR, phase)
    assert dropout.reason is DropReason.BAD_MESSAGE
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_second_check_in_with_other_keys_is_refused() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    second = signed(harness.devices[LIAR], message, mask_key=message.advert.identity_key)
    say(harness, LIAR, second)
    assert codes(harness) == ["E-CHECK-IN-TWICE"]
    # Its keys stay in the plan, but nobody waits for it any more.
    _goes_on_without_the_liar(harness, Phase.SHARE_KEYS)


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed[:-1],
        lambda sealed: (*sealed, bytes(120)),
        lambda sealed: (b"", *sealed[1:]),
        lambda sealed: (*sealed[:-1], bytes(120)),
        lambda _: (),
    ],
    ids=["one less", "one more", "one empty", "one for itself", "none"],
)
def test_sealed_shares_of_another_count_are_refused(
    change: Callable[[tuple[bytes, ...]], tuple[bytes, ...]],
) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    say(harness, LIAR, dataclasses.replace(message, sealed=change(message.sealed)))
    assert codes(harness) == ["E-SHARES-COUNT"]
    _goes_on_without_the_liar(harness, Phase.SHARE_KEYS)


def test_second_shares_are_refused() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    say(harness, LIAR, message)
    say(harness, LIAR, dataclasses.replace(message, commitment=bytes(32)))
    assert codes(harness) == ["E-SHARES-TWICE"]


def _too_short(packed: bytes) -> bytes:
    return packed[:-1]


def _too_long(packed: bytes) -> bytes:
    return packed + b"\x00"


def _padding_set(packed: bytes) -> bytes:
    return packed[:-1] + bytes([packed[-1] | 0x80])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_too_short, "E-VECTOR-SIZE"),
        (_too_long, "E-VECTOR-SIZE"),
        (lambda _: b"", "E-VECTOR-SIZE"),
        (_padding_set, "E-VECTOR-PADDING"),
    ],
)
def test_a_masked_input_of_another_form_is_refused(
    change: Callable[[bytes], bytes], code: str
) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR, dimension=7)
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, MaskedInput(packed=change(message.packed)))
    assert codes(harness) == [code]
    _goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


def test_a_second_masked_input_is_refused_and_the_first_counts() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    say(harness, LIAR, MaskedInput(packed=bytes(len(message.packed))))
    assert codes(harness) == ["E-INPUT-TWICE"]
    outcome = harness.run_to_end()
    assert LIAR in outcome.report.survivors
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_masked_input_that_is_no_vector_spoils_the_round_by_name() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, MaskedInput(packed=bytes(len(message.packed))))
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is AbortReason.SUM_CHECK_FAILED
    assert outcome.report.sum_check_held is False
    assert outcome.report.charged
    assert outcome.total is None


def wrong_share(message: RevealedShares, owner: int) -> RevealedShares:
    """Change a share within its legal range."""
    return RevealedShares(
        shares=tuple(
            (
                position,
                share[:1] + bytes([share[1] ^ 1]) + share[2:] if position == owner else share,
            )
            for position, share in message.shares
        )
    )


@pytest.mark.parametrize("liar", ["d00", "d03", "d05"])
@pytest.mark.parametrize("answers", [N_DEVICES, N_DEVICES - 1])
@pytest.mark.parametrize("drops_out", [False, True])
def test_one_lying_holder_is_survived_with_one_spare_answer(
    liar: str, answers: int, *, drops_out: bool
) -> None:
    """With 7 devices, threshold 4: each secret needs 4 of the other holders' shares."""
    harness = RoundHarness(7, floor=5)
    harness.run_until(Phase.MASKED_INPUT)
    if drops_out:
        harness.silence(harness.devices["d06"])
    harness.run_until(Phase.MASKED_INPUT)
    while harness.aggregator.phase is Phase.MASKED_INPUT:
        if not harness.progress():
            harness.fire_timer()
    lie = own_message(harness, liar, Phase.UNMASKING)
    assert isinstance(lie, RevealedShares)
    for owner, _ in lie.shares:
        lie = wrong_share(lie, owner)
    say(harness, liar, lie)
    n_survivors = 6 if drops_out else 7
    silent = [name for name in harness.devices if name != liar][answers - 1 : n_survivors - 1]
    for name in silent:
        harness.silence(harness.devices[name])
    harness.packets = [packet for packet in harness.packets if packet.device not in silent]
    outcome = harness.run_to_end()
    # Of the answers, one is the owner's own and one is the lie.
    assert outcome.plan is not None
    is_enough = min(answers, n_survivors) - 2 >= outcome.plan.threshold
    expected = AbortReason.NONE if is_enough else AbortReason.RECONSTRUCTION_FAILED
    assert outcome.report.abort_reason is expected
    if is_enough:
        np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    else:
        assert outcome.total is None


def test_a_share_that_is_no_field_element_is_survived_with_a_spare_answer() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.UNMASKING)
    assert isinstance(message, RevealedShares)
    broken = RevealedShares(shares=tuple((owner, b"\xff" * 40) for owner, _ in message.shares))
    say(harness, LIAR, broken)
    outcome = harness.run_to_end()
    # Five others answer; of each secret, its owner holds none: four are left, as many as needed.
    assert outcome.report.outcome is Phase.COMMITTED
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


@pytest.mark.parametrize(
    "change",
    [
        lambda shares: shares[:-1],
        lambda shares: (*shares, (5, bytes(40))),
        lambda shares: tuple((owner + 6, share) for owner, share in shares),
        lambda _: (),
    ],
    ids=["one less", "its own too", "of strangers", "none"],
)
def test_an_answer_about_other_devices_is_refused(
    change: Callable[[tuple[tuple[int, bytes], ...]], tuple[tuple[int, bytes], ...]],
) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.UNMASKING)
    assert isinstance(message, RevealedShares)
    say(harness, LIAR, RevealedShares(shares=change(message.shares)))
    assert codes(harness) == ["E-REVEAL-LIST"]
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR in outcome.report.survivors, "what it gave before stays in the sum"


def test_a_second_answer_is_refused() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.UNMASKING)
    assert isinstance(message, RevealedShares)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    say(harness, LIAR, wrong_share(message, 0))
    assert codes(harness) == ["E-REVEAL-TWICE"]
    assert harness.run_to_end().report.outcome is Phase.COMMITTED


@pytest.mark.parametrize("phase", [Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASKING])
def test_a_message_of_another_session_changes_nothing(phase: Phase) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, phase)
    before = harness.aggregator.arrived
    for session_id in (NO_SESSION, b"\x01" * 32):
        harness.tell(DeviceSaid(device=LIAR, session_id=session_id, message=message))
    assert harness.aggregator.arrived == before
    assert codes(harness) == []


# ---------------------------------------------------------------- leaving


@pytest.mark.parametrize("phase", list(_MESSAGE_OF))
def test_a_device_that_leaves_is_not_waited_for(phase: Phase) -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    harness.run_until(phase)
    started_s = harness.now_s
    if phase is Phase.UNMASKING:
        harness.charge()
    say(harness, LIAR, Leave(reason=LeaveReason.NOT_AVAILABLE))
    harness.silence(harness.devices[LIAR])
    outcome = harness.run_to_end()
    assert harness.now_s == started_s, "no timer was needed"
    (dropout,) = outcome.report.dropouts
    assert (dropout.phase, dropout.reason) == (phase, DropReason.LEFT)
    assert outcome.report.outcome is Phase.COMMITTED


def test_a_device_that_leaves_when_it_is_done_is_not_waited_for_later() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    say(harness, LIAR, message)
    say(harness, LIAR, Leave(reason=LeaveReason.STATE_LOST))
    harness.silence(harness.devices[LIAR])
    started_s = harness.now_s
    outcome = harness.run_to_end()
    assert harness.now_s == started_s, "no timer was needed"
    (dropout,) = outcome.report.dropouts
    assert (dropout.phase, dropout.reason) == (Phase.MASKED_INPUT, DropReason.LEFT)
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_device_that_refuses_the_plan_is_not_waited_for() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    harness.run_until(Phase.SHARE_KEYS)
    leave = Leave(reason=LeaveReason.PLAN_REFUSED)
    harness.tell(DeviceSaid(device=LIAR, session_id=NO_SESSION, message=leave))
    assert LIAR not in harness.aggregator.waiting_for()


def test_a_leave_without_a_session_says_nothing_of_a_device_that_shared_keys() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    harness.run_until(Phase.MASKED_INPUT)
    leave = Leave(reason=LeaveReason.NOT_AVAILABLE)
    harness.tell(DeviceSaid(device=LIAR, session_id=NO_SESSION, message=leave))
    assert LIAR in harness.aggregator.waiting_for()


# ---------------------------------------------------------------- asking again


def test_the_closing_can_be_asked_for_again() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR)
    harness.run_until(Phase.MASKED_INPUT)
    harness.silence(harness.devices[LIAR])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    for name in harness.devices:
        closing = harness.aggregator.message_for(name)
        assert closing == RoundClosed(
            phase=Phase.COMMITTED, reason=AbortReason.NONE, counted=name != LIAR
        )
    assert harness.aggregator.message_for("stranger") is None
