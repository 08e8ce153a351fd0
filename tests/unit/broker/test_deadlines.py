"""Time limits learned from rounds."""

from dataclasses import replace

import pytest

from broker.deadlines import LEAST_S, MOST_S, REMEMBERED, Deadlines
from edgefl.errors import StorageError
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import Dropout, PhaseCount, RoundReport
from edgefl.protocol.round_setup import PhaseLimits
from edgefl.storage.memory import MemoryStore

FIRST = PhaseLimits()


def a_report(
    last_arrival_s: float,
    *,
    phase: Phase = Phase.MASKED_INPUT,
    reason: AbortReason = AbortReason.NONE,
    timed_out: bool = False,
) -> RoundReport:
    count = PhaseCount(
        phase=phase,
        expected=5,
        needed=3,
        arrived=4,
        duration_s=last_arrival_s,
        last_arrival_s=last_arrival_s,
    )
    lost = Dropout(device="a", phase=phase, reason=DropReason.TIMED_OUT)
    return RoundReport(
        task="arm",
        round_number=1,
        attempt=1,
        outcome=Phase.ABORTED if reason else Phase.COMMITTED,
        abort_reason=reason,
        phases=(count,),
        dropouts=(lost,) if timed_out else (),
        survivors=(),
        unmasked=0,
        sum_check_held=None,
        charged=False,
    )


def limit_of(deadlines: Deadlines, phase: Phase = Phase.MASKED_INPUT) -> float:
    return deadlines.limits("arm", FIRST).of(phase)


def test_the_first_rounds_have_the_tasks_own_limits() -> None:
    assert Deadlines(MemoryStore()).limits("arm", FIRST) == FIRST


def test_a_limit_is_three_times_what_the_slowest_round_of_late_needed() -> None:
    store = MemoryStore()
    deadlines = Deadlines(store)
    for arrival_s in (40.0, 55.0, 20.0):
        deadlines.note(a_report(arrival_s), FIRST)
    assert limit_of(deadlines) == 165.0
    assert limit_of(Deadlines(store)) == 165.0
    assert deadlines.limits("arm", FIRST) == replace(FIRST, masked_input_s=165.0)
    assert deadlines.limits("other", FIRST) == FIRST


def test_old_rounds_are_forgotten_and_fast_fleets_keep_a_margin() -> None:
    deadlines = Deadlines(MemoryStore())
    deadlines.note(a_report(500.0), FIRST)
    for _ in range(REMEMBERED):
        deadlines.note(a_report(0.2), FIRST)
    assert limit_of(deadlines) == LEAST_S


def test_one_silent_device_does_not_stretch_the_limit() -> None:
    deadlines = Deadlines(MemoryStore())
    deadlines.note(a_report(30.0, timed_out=True), FIRST)
    assert limit_of(deadlines) == 90.0


def test_a_round_that_was_lost_to_the_limit_doubles_it() -> None:
    deadlines = Deadlines(MemoryStore())
    lost = a_report(119.0, reason=AbortReason.BELOW_SURVIVOR_FLOOR, timed_out=True)
    deadlines.note(lost, FIRST)
    assert limit_of(deadlines) == 240.0
    for _ in range(20):
        deadlines.note(lost, FIRST)
    assert limit_of(deadlines) == MOST_S


def test_a_round_that_was_lost_otherwise_stretches_nothing() -> None:
    deadlines = Deadlines(MemoryStore())
    deadlines.note(a_report(50.0, reason=AbortReason.BELOW_SURVIVOR_FLOOR), FIRST)
    assert limit_of(deadlines) == 150.0


@pytest.mark.parametrize("row", [b"\xff", b"\x80", b"\xa1\x06\x81\x01", b"\xa1\x03\x80"])
def test_damage_is_said(row: bytes) -> None:
    store = MemoryStore()
    store.put("arm", row)
    with pytest.raises(StorageError, match="E-STATE-DAMAGED"):
        Deadlines(store).limits("arm", FIRST)
