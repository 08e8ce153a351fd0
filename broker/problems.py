"""What is wrong with a gateway, in words that say what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.round_record import RoundRecord
from edgefl.protocol.reasons import AbortReason

LOW_DISK_BYTES: Final = 256 << 20
_FAILED_IN_A_ROW: Final = 3
_NEARLY: Final = 0.9
_MANY_REFUSALS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        code: Stable, for scripts.
        text: For people: what is wrong, and what to do.
    """

    code: str
    text: str


def disk_problems(free_bytes: int) -> list[Problem]:
    """Say so where the disk is nearly full."""
    if free_bytes >= LOW_DISK_BYTES:
        return []
    text = f"{free_bytes >> 20} MiB are free where the state lies: make room, or rounds will stop"
    return [Problem(code="disk-low", text=text)]


def round_problems(rounds: Sequence[RoundRecord]) -> list[Problem]:
    """Say so where the last rounds brought no model, and why."""
    failed = 0
    for record in reversed(rounds):
        if record.is_committed:
            break
        failed += 1
    if failed < _FAILED_IN_A_ROW:
        return []
    last = rounds[-1]
    where = "" if last.in_phase is None else f" in {last.in_phase.name}"
    advice = _ADVICE.get(last.reason, "'edgefl rounds' shows how each ended")
    text = f"the last {failed} rounds brought no model, the newest for {last.reason.name}{where}"
    return [Problem(code="rounds-failing", text=f"{text}: {advice}")]


def spend_problems(spent: Mapping[str, tuple[float, float]]) -> list[Problem]:
    """Say so where a task has nearly spent its budget.

    Args:
        spent: By task, epsilon against the gateway and the budget.
    """
    return [
        Problem(
            code="budget-nearly-spent",
            text=f"task {task} has spent epsilon {epsilon:.3g} of {budget:.3g}: it will end soon",
        )
        for task, (epsilon, budget) in sorted(spent.items())
        if _NEARLY * budget <= epsilon <= budget
    ]


def device_problems(
    *, known: int, reached: int, pending: int, has_task: bool, is_linked: bool
) -> list[Problem]:
    """Say so where devices cannot be reached, or wait for the operator.

    Args:
        known: Devices.
        reached: Those of them that are online or asleep.
        pending: Those that wait.
        has_task: A task is worked on.
        is_linked: The broker is reached.
    """
    found = []
    if not is_linked:
        found.append(Problem(code="no-link", text="the broker is not reached: check that it runs"))
    found += enrolment_problems(pending)
    if has_task and known and not reached:
        found.append(Problem(code="no-device-online", text="a task waits, and no device is online"))
    return found


def enrolment_problems(pending: int) -> list[Problem]:
    """Say so where devices wait for the operator."""
    if not pending:
        return []
    who = "1 device waits" if pending == 1 else f"{pending} devices wait"
    text = f"{who} to be enrolled: see 'edgefl devices'"
    return [Problem(code="enrolment-waiting", text=text)]


def overload_problems(lost_events: int) -> list[Problem]:
    """Say so where the endpoint saw more happen than the gateway could look at."""
    if not lost_events:
        return []
    text = (
        f"{lost_events:,} connects, disconnects and uploads came faster than they could be noted: "
        "this machine is too slow for the fleet, or somebody floods it; who is online shows again "
        "as devices are heard"
    )
    return [Problem(code="events-lost", text=text)]


def refusal_problems(refusals: Mapping[str, int]) -> list[Problem]:
    """Say so where many messages are refused."""
    total = sum(refusals.values())
    if total < _MANY_REFUSALS:
        return []
    code = max(refusals, key=lambda name: refusals[name])
    text = f"{total:,} messages were refused since the start, most of them for {code}"
    return [Problem(code="many-refusals", text=f"{text}: see events.jsonl for where from")]


_ADVICE = {
    AbortReason.TOO_FEW_CHECKED_IN: "more devices must be online, or the quorum lower",
    AbortReason.TOO_FEW_SHARED_KEYS: "devices vanish between the phases: look at their links",
    AbortReason.BELOW_SURVIVOR_FLOOR: "training takes longer than the phase, or devices vanish",
    AbortReason.TOO_FEW_UNMASKED: "devices vanish after they sent their update",
    AbortReason.SUM_CHECK_FAILED: "a device sent a vector that is none: see 'edgefl rounds --json'",
    AbortReason.GATEWAY_RESTARTED: "the gateway was restarted: see its log",
}
