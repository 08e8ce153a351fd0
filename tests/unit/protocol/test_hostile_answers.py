"""What a device may answer in vain: votes and shares that are wrong, late or twice."""

from collections.abc import Callable

import numpy as np
import pytest

from edgefl.protocol.envelope import NO_SESSION
from edgefl.protocol.events import DeviceSaid
from edgefl.protocol.reasons import AbortReason, DropReason, LeaveReason, Phase
from edgefl.protocol.report import DropKind
from edgefl.protocol.round_messages import (
    Leave,
    MaskedInput,
    RevealedShares,
    RoundClosed,
    SharedKeys,
    SurvivorVote,
)
from tests.liar import (
    LIAR,
    MALICIOUS,
    MESSAGE_OF,
    codes,
    new_round,
    own_message,
    say,
)
from tests.round_harness import RoundHarness

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


@pytest.mark.parametrize("phase", list(MESSAGE_OF))
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
        if not isinstance(message, MESSAGE_OF[phase]):
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


@pytest.mark.parametrize("phase", list(MESSAGE_OF))
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
