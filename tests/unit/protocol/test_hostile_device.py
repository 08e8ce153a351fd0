"""What a device may send in vain: the aggregator refuses it by name, and the others go on."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from edgefl.protocol.envelope import NO_SESSION
from edgefl.protocol.events import DeviceSaid
from edgefl.protocol.key_bundle import MaskKeyProof
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.reasons import AbortReason, AdversaryClass, DropReason, LeaveReason, Phase
from edgefl.protocol.report import DropKind
from edgefl.protocol.round_messages import (
    CheckIn,
    Leave,
    MaskedInput,
    RevealedShares,
    RoundClosed,
    SharedKeys,
    SurvivorVote,
)
from tests.round_harness import RoundHarness

N_DEVICES, FLOOR = 6, 5
LIAR = "d05"
CURIOUS, SEMI, MALICIOUS = AdversaryClass
_MESSAGE_OF = {
    Phase.CHECK_IN: CheckIn,
    Phase.SHARE_KEYS: SharedKeys,
    Phase.MASKED_INPUT: MaskedInput,
    Phase.CERTIFICATE: SurvivorVote,
    Phase.UNMASKING: RevealedShares,
}


def new_round(adversary: AdversaryClass = CURIOUS, n_devices: int = N_DEVICES) -> RoundHarness:
    floor = FLOOR if n_devices == N_DEVICES else None
    return RoundHarness(n_devices, floor=floor, adversary=adversary)


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


def say(harness: RoundHarness, name: str, message: DeviceMessage) -> None:
    plan = harness.aggregator.plan
    session_id = NO_SESSION if plan is None else plan.session_id
    harness.tell(DeviceSaid(device=name, session_id=session_id, message=message))


def codes(harness: RoundHarness) -> list[str]:
    return [error.code for _, error in harness.bad_messages]


def goes_on_without_the_liar(harness: RoundHarness, phase: Phase) -> None:
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR not in outcome.report.survivors
    (dropout,) = outcome.report.dropouts
    assert (dropout.device, dropout.phase) == (LIAR, phase)
    assert dropout.reason is DropReason.BAD_MESSAGE
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


# ---------------------------------------------------------------- CHECK_IN


def _key_of_another(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    del own
    return other


def _key_without_its_path(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    return dataclasses.replace(own, key=other.key)


def _weak_key(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    del other
    return dataclasses.replace(own, key=bytes(32))


def _shorter_path(own: MaskKeyProof, other: MaskKeyProof) -> MaskKeyProof:
    del other
    return dataclasses.replace(own, path=own.path[:-1])


@pytest.mark.parametrize(
    "change", [_key_of_another, _key_without_its_path, _weak_key, _shorter_path]
)
def test_a_mask_key_outside_of_the_own_bundle_is_refused(
    change: Callable[[MaskKeyProof, MaskKeyProof], MaskKeyProof],
) -> None:
    harness = new_round()
    other = own_message(harness, "d00", Phase.CHECK_IN)
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    assert isinstance(other, CheckIn)
    say(harness, "d00", other)
    forged = change(message.mask_key, other.mask_key)
    say(harness, LIAR, dataclasses.replace(message, mask_key=forged))
    assert codes(harness) == ["E-MASK-KEY-PATH"]
    goes_on_without_the_liar(harness, Phase.CHECK_IN)


def test_a_mask_key_of_another_index_is_refused() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    device = harness.devices[LIAR]
    device.epoch.reserve_index(3, bytes(32))
    say(harness, LIAR, dataclasses.replace(message, mask_key=device.epoch.keys.mask_proof(3)))
    assert codes(harness) == ["E-PEER-INDEX"]
    goes_on_without_the_liar(harness, Phase.CHECK_IN)


def test_a_device_that_was_not_called_is_refused() -> None:
    harness = RoundHarness(N_DEVICES, floor=FLOOR - 1, absent=frozenset({LIAR}))
    called = own_message(harness, "d00", Phase.CHECK_IN)
    say(harness, LIAR, called)
    assert codes(harness) == ["E-CHECK-IN-IDENTITY"]
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED


def test_a_check_in_to_another_call_changes_nothing() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    say(harness, LIAR, dataclasses.replace(message, call_id=bytes(32)))
    assert codes(harness) == []
    assert harness.aggregator.arrived == 0


def test_a_second_check_in_with_another_proof_is_refused() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.CHECK_IN)
    assert isinstance(message, CheckIn)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    second = dataclasses.replace(message.mask_key, key=bytes(range(32)))
    say(harness, LIAR, dataclasses.replace(message, mask_key=second))
    assert codes(harness) == ["E-CHECK-IN-TWICE"]
    # Its key stays in the plan, but nobody waits for it any more.
    goes_on_without_the_liar(harness, Phase.SHARE_KEYS)


# ---------------------------------------------------------------- SHARE_KEYS


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed[:-1],
        lambda sealed: (*sealed, bytes(120)),
        lambda _: (),
    ],
    ids=["one less", "one more", "none"],
)
def test_sealed_shares_of_another_count_are_refused(
    change: Callable[[tuple[bytes, ...]], tuple[bytes, ...]],
) -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    say(harness, LIAR, dataclasses.replace(message, sealed=change(message.sealed)))
    assert codes(harness) == ["E-SHARES-COUNT"]
    goes_on_without_the_liar(harness, Phase.SHARE_KEYS)


def test_second_shares_are_refused_and_the_first_are_kept() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    say(harness, LIAR, message)
    say(harness, LIAR, dataclasses.replace(message, commitment=bytes(32)))
    assert codes(harness) == ["E-SHARES-TWICE"]
    # Its shares arrived: it counts as one that shared, and drops out in the next phase.
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


# ---------------------------------------------------------------- MASKED_INPUT


def _too_short(packed: bytes) -> bytes:
    return packed[:-1]


def _too_long(packed: bytes) -> bytes:
    return packed + b"\x00"


def _padding_set(packed: bytes) -> bytes:
    return packed[:-1] + bytes([packed[-1] | 0x80])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_too_short, "E-PACKED-LENGTH"),
        (_too_long, "E-PACKED-LENGTH"),
        (lambda _: b"", "E-PACKED-LENGTH"),
        (_padding_set, "E-PACKED-PADDING"),
    ],
)
def test_a_masked_input_of_another_form_is_refused(
    change: Callable[[bytes], bytes], code: str
) -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, MaskedInput(packed=change(message.packed)))
    assert codes(harness) == [code]
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


def test_a_second_masked_input_is_refused_and_the_first_counts() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    say(harness, LIAR, MaskedInput(packed=bytes(len(message.packed))))
    say(harness, LIAR, dataclasses.replace(message, skipped=((0, bytes(32)),)))
    assert codes(harness) == ["E-INPUT-TWICE"], "after the first it is not listened to"
    outcome = harness.run_to_end()
    assert LIAR in outcome.report.survivors
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_wrong_vector_fails_the_sum_check() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, MaskedInput(packed=bytes([message.packed[0] ^ 1]) + message.packed[1:]))
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is AbortReason.SUM_CHECK_FAILED
    assert outcome.report.sum_check_held is False
    assert outcome.total is None


def _stranger(harness: RoundHarness, own: int) -> list[int]:
    del harness, own
    return [200]


def _itself(harness: RoundHarness, own: int) -> list[int]:
    del harness
    return [own]


def _too_many(harness: RoundHarness, own: int) -> list[int]:
    plan = harness.aggregator.plan
    assert plan is not None
    others = [position for position in range(plan.size) if position != own]
    return others[: plan.size - plan.thresholds.neighbourhood]


@pytest.mark.parametrize("skipped", [_stranger, _itself, _too_many])
def test_leaving_out_masks_of_others_than_some_neighbours_is_refused(
    skipped: Callable[[RoundHarness, int], list[int]],
) -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    positions = skipped(harness, harness.position_of(LIAR))
    seeds = tuple((position, bytes(32)) for position in positions)
    say(harness, LIAR, dataclasses.replace(message, skipped=seeds))
    assert codes(harness) == ["E-INPUT-SKIPPED"]
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


@pytest.mark.parametrize("adversary", [SEMI, MALICIOUS])
def test_where_the_gateway_may_lie_no_mask_is_left_out(adversary: AdversaryClass) -> None:
    harness = new_round(adversary)
    message = own_message(harness, LIAR, Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    say(harness, LIAR, dataclasses.replace(message, skipped=((0, bytes(32)),)))
    assert codes(harness) == ["E-INPUT-SKIPPED"]
    goes_on_without_the_liar(harness, Phase.MASKED_INPUT)


# ---------------------------------------------------------------- bad ciphertexts


def spoil(harness: RoundHarness, sealer: str, receivers: list[str]) -> None:
    """Let a device send ciphertexts that some of its neighbours cannot open."""
    message = own_message(harness, sealer, Phase.SHARE_KEYS)
    assert isinstance(message, SharedKeys)
    own = harness.position_of(sealer)
    sealed = list(message.sealed)
    for receiver in receivers:
        # In the complete graph the list holds every position but the own one.
        position = harness.position_of(receiver)
        sealed[position - (position > own)] = bytes(120)
    say(harness, sealer, dataclasses.replace(message, sealed=tuple(sealed)))


@pytest.mark.parametrize("silent", ["nobody", "the sealer", "the receiver"])
def test_one_bad_ciphertext_costs_nobody_anything(silent: str) -> None:
    harness = new_round()
    spoil(harness, LIAR, ["d02"])
    harness.run_until(Phase.MASKED_INPUT)
    gone = {"nobody": None, "the sealer": LIAR, "the receiver": "d02"}[silent]
    if gone is not None:
        harness.silence(harness.devices[gone])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert set(outcome.report.survivors) == set(harness.devices) - {gone}
    assert outcome.report.skipped_edges == (0 if silent == "the receiver" else 1)
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_two_devices_that_cannot_open_each_others_shares() -> None:
    harness = new_round(n_devices=8)
    spoil(harness, "d01", ["d02", "d04"])
    spoil(harness, "d02", ["d01"])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert outcome.report.skipped_edges == 2
    assert len(outcome.report.survivors) == 8
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_sealer_that_nobody_can_open_drops_out_without_a_trace() -> None:
    """No mask was made with it, so that nothing of it must be reconstructed."""
    harness = new_round()
    spoil(harness, LIAR, [name for name in harness.devices if name != LIAR])
    harness.run_until(Phase.MASKED_INPUT)
    harness.silence(harness.devices[LIAR])
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR not in outcome.report.survivors
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))


def test_a_wrong_seed_for_a_left_out_mask_fails_the_sum_check() -> None:
    harness = new_round()
    spoil(harness, LIAR, ["d02"])
    message = own_message(harness, "d02", Phase.MASKED_INPUT)
    assert isinstance(message, MaskedInput)
    ((position, _),) = message.skipped
    say(harness, "d02", dataclasses.replace(message, skipped=((position, bytes(32)),)))
    assert harness.run_to_end().report.abort_reason is AbortReason.SUM_CHECK_FAILED


# ---------------------------------------------------------------- CERTIFICATE


def test_a_vote_over_something_else_is_refused() -> None:
    harness = new_round(MALICIOUS)
    message = own_message(harness, LIAR, Phase.CERTIFICATE)
    assert isinstance(message, SurvivorVote)
    other = harness.devices[LIAR].identity.signing_key.sign(b"other lists")
    say(harness, LIAR, SurvivorVote(signature=other))
    assert codes(harness) == ["E-VOTE-SIGNATURE"]
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR in outcome.report.survivors, "its update is in the sum"
    assert outcome.report.of_kind(DropKind.AFTER_MASKED_INPUT) == (LIAR,)


def test_a_vote_of_another_device_is_refused() -> None:
    harness = new_round(MALICIOUS)
    message = own_message(harness, "d00", Phase.CERTIFICATE)
    say(harness, LIAR, message)
    assert codes(harness) == ["E-VOTE-SIGNATURE"]


def test_a_vote_twice_counts_once() -> None:
    harness = new_round(MALICIOUS)
    message = own_message(harness, LIAR, Phase.CERTIFICATE)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    assert harness.aggregator.arrived == 1


# ---------------------------------------------------------------- UNMASKING


@pytest.mark.parametrize(
    "change",
    [
        lambda shares: shares[1:],
        lambda shares: (*shares, (200, bytes(40))),
        lambda shares: ((shares[0][0], bytes(40)), *shares[2:]),
        lambda _: (),
    ],
    ids=["one less", "a stranger's", "one missing", "none"],
)
def test_an_answer_with_another_list_is_refused(
    change: Callable[[tuple[tuple[int, bytes], ...]], tuple[tuple[int, bytes], ...]],
) -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.UNMASKING)
    assert isinstance(message, RevealedShares)
    say(harness, LIAR, RevealedShares(shares=change(message.shares)))
    assert codes(harness) == ["E-REVEAL-LIST"]
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert LIAR in outcome.report.survivors


def test_a_second_answer_is_refused_and_the_first_counts() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.UNMASKING)
    assert isinstance(message, RevealedShares)
    say(harness, LIAR, message)
    say(harness, LIAR, message)
    assert codes(harness) == []
    wrong = tuple((owner, bytes(40)) for owner, _ in message.shares)
    say(harness, LIAR, RevealedShares(shares=wrong))
    assert codes(harness) == ["E-REVEAL-TWICE"]
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert outcome.report.liars == ()


def lie(harness: RoundHarness, name: str, wrong: bytes | None = None) -> None:
    """Let a device answer with shares that are wrong, of right form unless given."""
    message = own_message(harness, name, Phase.UNMASKING)
    assert isinstance(message, RevealedShares)
    shares = [share for _, share in message.shares]
    turned = [wrong or share for share in (*shares[1:], shares[0])]
    owners = [owner for owner, _ in message.shares]
    say(harness, name, RevealedShares(shares=tuple(zip(owners, turned, strict=True))))


@pytest.mark.parametrize("wrong", [None, b"\xff" * 40], ids=["of another owner", "malformed"])
@pytest.mark.parametrize(
    ("liars", "named"),
    [
        (["d00"], ["d00"]),
        (["d05"], ["d05"]),
        (["d00", "d03"], ["d00", "d03"]),
        # Wrong shares that are not needed are not looked at.
        (["d08", "d09"], []),
    ],
)
def test_lying_holders_are_survived_and_named(
    liars: list[str], named: list[str], wrong: bytes | None
) -> None:
    """Six of ten open a secret, and each owner has eight holders or more: two are spare."""
    harness = new_round(n_devices=10)
    harness.run_until(Phase.MASKED_INPUT)
    harness.silence(harness.devices["d06"])
    harness.run_until(Phase.UNMASKING)
    while harness.aggregator.phase < Phase.UNMASKING:
        harness.fire_timer()
        harness.run_until(Phase.UNMASKING)
    for name in liars:
        lie(harness, name, wrong)
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED
    assert outcome.total is not None
    np.testing.assert_array_equal(outcome.total, harness.survivors_sum(outcome))
    assert list(outcome.report.liars) == named
    assert {drop.device for drop in outcome.report.dropouts} == {"d06", *named}


def test_a_liar_without_a_spare_share_ends_the_round() -> None:
    harness = new_round()
    harness.run_until(Phase.MASKED_INPUT)
    harness.silence(harness.devices["d04"])
    harness.run_until(Phase.UNMASKING)
    while harness.aggregator.phase < Phase.UNMASKING:
        harness.fire_timer()
        harness.run_until(Phase.UNMASKING)
    lie(harness, LIAR)
    outcome = harness.run_to_end()
    assert outcome.report.abort_reason is AbortReason.RECONSTRUCTION_FAILED
    assert outcome.report.charged, "shares were shown"
    assert outcome.total is None


def test_answers_before_the_charge_are_not_taken() -> None:
    harness = new_round()
    harness.run_until(Phase.MASKED_INPUT)
    while harness.aggregator.phase < Phase.UNMASKING:
        harness.deliver_all()
        for device in harness.devices.values():
            harness.settle(device)
            harness.work(device)
            harness.settle(device)
    shares = tuple((owner, bytes(40)) for owner in range(5))
    say(harness, LIAR, RevealedShares(shares=shares))
    assert codes(harness) == []
    assert harness.aggregator.arrived == 0
    outcome = harness.run_to_end()
    assert outcome.report.outcome is Phase.COMMITTED


# ---------------------------------------------------------------- any time


@pytest.mark.parametrize("phase", list(_MESSAGE_OF))
def test_messages_of_other_phases_change_nothing(phase: Phase) -> None:
    harness = new_round(MALICIOUS)
    harness.run_until(phase)
    before = harness.aggregator.arrived
    for message in (
        SharedKeys(commitment=bytes(32), sealed=()),
        MaskedInput(packed=b""),
        SurvivorVote(signature=bytes(64)),
        RevealedShares(shares=()),
    ):
        if not isinstance(message, _MESSAGE_OF[phase]):
            say(harness, LIAR, message)
    assert codes(harness) == []
    assert harness.aggregator.arrived == before
    assert harness.run_to_end().report.outcome is Phase.COMMITTED


def test_messages_of_another_session_change_nothing() -> None:
    harness = new_round()
    message = own_message(harness, LIAR, Phase.SHARE_KEYS)
    harness.tell(DeviceSaid(device=LIAR, session_id=bytes(32), message=message))
    harness.tell(DeviceSaid(device="stranger", session_id=bytes(32), message=message))
    assert harness.aggregator.arrived == 0
    assert codes(harness) == []


@pytest.mark.parametrize("phase", list(_MESSAGE_OF))
def test_a_device_that_leaves_is_not_waited_for(phase: Phase) -> None:
    harness = new_round(MALICIOUS)
    harness.run_until(phase)
    say(harness, LIAR, Leave(reason=LeaveReason.STATE_LOST))
    harness.silence(harness.devices[LIAR])
    started_s = harness.now_s
    outcome = harness.run_to_end()
    assert harness.now_s == started_s
    assert outcome.report.outcome is Phase.COMMITTED
    assert {drop.reason for drop in outcome.report.dropouts} <= {DropReason.LEFT}
    assert (LIAR in outcome.report.survivors) == (phase >= Phase.CERTIFICATE)


def test_who_left_is_told_the_end_when_it_asks() -> None:
    harness = new_round()
    harness.run_until(Phase.SHARE_KEYS)
    say(harness, LIAR, Leave(reason=LeaveReason.PLAN_REFUSED))
    assert harness.aggregator.message_for(LIAR) is None
    harness.silence(harness.devices[LIAR])
    harness.run_to_end()
    assert harness.aggregator.message_for(LIAR) == RoundClosed(
        phase=Phase.COMMITTED, reason=AbortReason.NONE, counted=False
    )
    assert harness.aggregator.message_for("stranger") is None


def test_a_leave_of_another_session_changes_nothing() -> None:
    harness = new_round()
    harness.run_until(Phase.MASKED_INPUT)
    leave = Leave(reason=LeaveReason.STATE_LOST)
    harness.tell(DeviceSaid(device=LIAR, session_id=bytes([1]) * 32, message=leave))
    harness.tell(DeviceSaid(device=LIAR, session_id=NO_SESSION, message=leave))
    assert harness.run_to_end().report.dropouts == ()
