"""What the gateway tells its operator, as data: one `Reported` for each kind of line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from broker.events import EvaluationEnded, Json, Reported
from broker.records import OpenRecord
from broker.round_record import RoundBytes, RoundSpend
from broker.task import TaskSpec
from broker.task_wishes import TaskWish
from edgefl.errors import EdgeflError
from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.epoch_events import EpochAborted, EpochFull
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.reasons import AbortReason, Phase
from edgefl.protocol.report import RoundReport
from edgefl.protocol.round_messages import Call

REFUSED: Final = "refused"
TASK_ENDED: Final = "task-ended"
MOST_NAMED: Final = 64
"""Above, a round's record counts its devices' backends, but does not list the devices."""


def task_report(spec: TaskSpec, privacy: PrivacyPlan, committed: int) -> Reported:
    """A task was taken up."""
    return Reported(
        kind="task",
        fields={
            "task": spec.name,
            "rounds": spec.rounds,
            "committed": committed,
            "dimension": privacy.dimension,
            "ring_bits": privacy.ring_bits,
            "epsilon_planned": privacy.epsilon_declared,
        },
    )


def task_ended_report(name: str, outcome: str, reason: str, committed: int) -> Reported:
    """A task is over."""
    return Reported(
        kind=TASK_ENDED,
        fields={"task": name, "outcome": outcome, "reason": reason, "committed": committed},
    )


def task_refused_report(name: str, error: EdgeflError) -> Reported:
    """A task's folder cannot be worked on."""
    return Reported(
        kind="task-refused", fields={"task": name, "code": error.code, "why": str(error)}
    )


def task_wish_report(name: str, wish: TaskWish) -> Reported:
    """The operator wants something else of a task."""
    return Reported(kind="task-wish", fields={"task": name, "wish": wish.value})


def key_epoch_report(epoch: OpenEpoch, *, is_automatic: bool) -> Reported:
    """A key epoch is open."""
    trust = "honest-but-curious gateway only" if is_automatic else "roster signed by an operator"
    return Reported(
        kind="key-epoch",
        fields={
            "number": epoch.key_epoch,
            "members": epoch.size,
            "roster": epoch.record.roster_number,
            "enrolled": epoch.record.roster_size,
            "trust": trust,
        },
    )


def key_epoch_aborted_report(aborted: EpochAborted) -> Reported:
    """A key epoch did not open."""
    return Reported(
        kind="key-epoch-aborted",
        fields={
            "number": aborted.key_epoch,
            "reason": aborted.reason.value,
            "silent": list(aborted.silent),
        },
    )


def key_epoch_full_report(full: EpochFull) -> Reported:
    """More devices are present than a key epoch holds."""
    return Reported(
        kind="key-epoch-full", fields={"number": full.key_epoch, "left_out": full.left_out}
    )


def enrolment_report(wanted: int, leaving: Sequence[str] = ()) -> Reported:
    """Devices wait for an operator to sign them into the roster, or out of it."""
    fields: dict[str, Json] = {"waiting": wanted}
    if leaving:
        fields["leaving"] = list(leaving)
    return Reported(kind="enrolment", fields=fields)


def roster_refused_report(error: EdgeflError) -> Reported:
    """A roster file could not be taken."""
    return Reported(kind="roster-refused", fields={"code": error.code, "why": str(error)})


def refused_report(code: str, source: str) -> Reported:
    """Something that a device sent was refused.

    Args:
        code: Of the error.
        source: Device or topic. A stranger may have chosen it: nothing in it may steer a terminal.
    """
    shown = "".join(letter if letter.isprintable() else "?" for letter in source[:120])
    return Reported(kind=REFUSED, fields={"code": code, "from": shown})


def more_report(code: str, more: int, within_s: float) -> Reported:
    """More of one kind came than was reported line by line.

    Args:
        code: Of what was refused, or the kind of a line about devices.
        more: How many.
        within_s: In which time.
    """
    fields: dict[str, Json] = {"code": code, "more": more, "within_s": round(within_s, 1)}
    kind = "refused-more" if code.startswith("E-") else "devices-more"
    return Reported(kind=kind, fields=fields)


def phase_report(machine: AggregatorRound, phase: Phase, needed: int) -> Reported:
    """A phase opened."""
    return Reported(
        kind="phase",
        fields={
            **_attempt(machine.call),
            "phase": phase.name,
            "expected": machine.expected,
            "needed": needed,
        },
    )


def waiting_report(machine: AggregatorRound) -> Reported:
    """A phase takes long."""
    return Reported(
        kind="waiting",
        fields={
            "for": machine.phase.name,
            "have": machine.arrived,
            "need": machine.needed,
            "silent": list(machine.waiting_for()),
        },
    )


def gathering_report(online: int, needed: int) -> Reported:
    """A round cannot open yet."""
    return Reported(
        kind="waiting", fields={"for": "enrolled devices online", "have": online, "need": needed}
    )


def deposits_report(have: int, needed: int) -> Reported:
    """A one-upload round waits for deposits, or did not get enough."""
    return Reported(
        kind="waiting", fields={"for": "deposits of devices online", "have": have, "need": needed}
    )


def left_open_report(left: OpenRecord, why: str) -> Reported:
    """The gateway had died within a round, and cannot go on with it."""
    return Reported(
        kind="round",
        fields={
            "task": left.task,
            "round": left.round_number,
            "attempt": left.attempt,
            "outcome": Phase.ABORTED.name,
            "reason": AbortReason.GATEWAY_RESTARTED.name,
            "in_phase": left.phase.name,
            "why": why,
        },
    )


def resumed_report(machine: AggregatorRound) -> Reported:
    """A restarted gateway goes on with the round that was open."""
    return Reported(
        kind="resumed",
        fields={
            **_attempt(machine.call),
            "phase": machine.phase.name,
            "have": machine.arrived,
            "need": machine.needed,
        },
    )


def round_report(
    report: RoundReport,
    *,
    delta: float,
    spend: RoundSpend,
    traffic: RoundBytes,
    backends: Mapping[str, str],
) -> Reported:
    """A round is over.

    Args:
        report: The machine's own.
        delta: Of the epsilons.
        spend: Of the task, with this round's charge, if there is one.
        traffic: Of the whole attempt.
        backends: By survivor, what it says that it trains with: `onnx/cpu` and the like.
    """
    devices = max(1, traffic.devices)
    phases: list[Json] = [
        {
            "phase": count.phase.name,
            "expected": count.expected,
            "needed": count.needed,
            "arrived": count.arrived,
            "duration_s": round(count.duration_s, 4),
        }
        for count in report.phases
    ]
    dropouts: list[Json] = [
        {"device": drop.device, "phase": drop.phase.name, "reason": drop.reason.value}
        for drop in report.dropouts
    ]
    return Reported(
        kind="round",
        fields={
            "task": report.task,
            "round": report.round_number,
            "attempt": report.attempt,
            "outcome": report.outcome.name,
            "reason": report.abort_reason.name,
            "survivors": len(report.survivors),
            "unmasked": report.unmasked,
            "sum_check_held": report.sum_check_held,
            "charged": report.charged,
            "backends": dict(sorted(Counter(backends.values()).items())),
            "trained_on": dict(backends) if len(backends) <= MOST_NAMED else {},
            "phases": phases,
            "dropouts": dropouts,
            "up_bytes_per_device": traffic.up / devices,
            "down_bytes_per_device": traffic.down / devices,
            "up_bytes": traffic.up,
            "down_bytes": traffic.down,
            "epsilon_server": spend.server,
            "epsilon_release": spend.release,
            "epsilon_two_devices": spend.two_devices,
            "delta": delta,
        },
    )


def evaluation_report(event: EvaluationEnded) -> Reported:
    """A committed model was measured."""
    int8: dict[str, Json] = {}
    if event.int8_accuracy is not None:
        int8["int8_accuracy"] = event.int8_accuracy
    return Reported(
        kind="evaluated",
        fields={
            "task": event.task,
            "round": event.round_number,
            "accuracy": event.accuracy,
            "loss": event.loss,
            "examples": event.examples,
            **int8,
        },
    )


def _attempt(call: Call) -> dict[str, Json]:
    return {"task": call.task, "round": call.round_number, "attempt": call.attempt}
