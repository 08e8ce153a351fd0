"""How a round ended, as its history keeps it: counts and times, and no device's name."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.events import Json
from broker.task import TaskSpec
from edgefl.errors import StorageError
from edgefl.privacy.epsilons import epsilon_for_two_devices
from edgefl.privacy.ledger import Ledger
from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import RoundReport

MOST_BACKENDS = 16
"""Devices choose what they say that they train with; rarer words are counted together."""
OTHER_BACKENDS = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord:
    """How many devices a phase waited for, needed and got, and how long it took."""

    phase: Phase
    expected: int
    needed: int
    arrived: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRecord:
    """How many devices were lost in a phase for one reason."""

    phase: Phase
    reason: DropReason
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSpend:
    """What a task has spent after a round; infinite without noise.

    Attributes:
        server: Epsilon against the gateway and whoever sees who takes part.
        release: Epsilon against those who see only the released models.
        two_devices: As `server`, for a person who owns two devices.
    """

    server: float
    release: float
    two_devices: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBytes:
    """Payload bytes of one attempt at a round.

    Attributes:
        up: From all devices together.
        down: To all devices together.
        devices: That sent or received any.
    """

    up: int = 0
    down: int = 0
    devices: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One closed attempt at a round. "0 of 5 reported" is one like any other.

    Attributes:
        opened_at_s: When it opened, in seconds since 1970; None where that is not known.
        closed_at_s: When it closed.
        outcome: COMMITTED or ABORTED.
        reason: Why there is no model; NONE where there is one.
        in_phase: Where it was aborted; None where it was not.
        survivors: Devices whose update is in the sum.
        unmasked: Devices that answered the unmask request.
        sum_check_held: None where no sum was unmasked.
        charged: The privacy ledger was charged for this attempt.
        spend: None where nothing was known to be spent, as in an attempt that a crash ended.
        backends: How many survivors train with what.
    """

    task: str
    round_number: int
    attempt: int
    opened_at_s: float | None
    closed_at_s: float
    outcome: Phase
    reason: AbortReason
    in_phase: Phase | None
    phases: tuple[PhaseRecord, ...] = ()
    drops: tuple[DropRecord, ...] = ()
    survivors: int = 0
    unmasked: int = 0
    sum_check_held: bool | None = None
    charged: bool = False
    traffic: RoundBytes = RoundBytes()
    spend: RoundSpend | None = None
    backends: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a round that is not over."""
        if not self.outcome.is_final:
            raise StorageError("E-HISTORY", "a closed round", self.outcome.name)

    @property
    def is_committed(self) -> bool:
        """Tell whether it brought a model."""
        return self.outcome is Phase.COMMITTED

    @property
    def duration_s(self) -> float:
        """Seconds from the call to the end: the sum of its phases."""
        return sum(phase.duration_s for phase in self.phases)


def closed_round(
    report: RoundReport,
    *,
    closed_at_s: float,
    traffic: RoundBytes,
    spend: RoundSpend,
    backends: Mapping[str, str],
) -> RoundRecord:
    """Return the record of a round that its machine has ended.

    Args:
        report: The machine's own.
        closed_at_s: Seconds since 1970.
        traffic: Of the whole attempt.
        spend: Of the task, this round included.
        backends: By survivor, what it says that it trains with.
    """
    aborted_in = report.phases[-1].phase if report.phases else Phase.CHECK_IN
    drops = Counter((drop.phase, drop.reason) for drop in report.dropouts)
    return RoundRecord(
        task=report.task,
        round_number=report.round_number,
        attempt=report.attempt,
        # By the phases' own clock: the one of 1970 may have been set meanwhile.
        opened_at_s=closed_at_s - sum(count.duration_s for count in report.phases),
        closed_at_s=closed_at_s,
        outcome=report.outcome,
        reason=report.abort_reason,
        in_phase=aborted_in if report.outcome is Phase.ABORTED else None,
        phases=tuple(
            PhaseRecord(
                phase=count.phase,
                expected=count.expected,
                needed=count.needed,
                arrived=count.arrived,
                duration_s=round(count.duration_s, 4),  # As it is stored, before and after.
            )
            for count in report.phases
        ),
        drops=tuple(
            DropRecord(phase=phase, reason=reason, count=count)
            for (phase, reason), count in sorted(
                drops.items(), key=lambda item: (item[0][0], item[0][1].value)
            )
        ),
        survivors=len(report.survivors),
        unmasked=report.unmasked,
        sum_check_held=report.sum_check_held,
        charged=report.charged,
        traffic=traffic,
        spend=spend,
        backends=_counted(backends),
    )


def aborted_round(
    *,
    task: str,
    round_number: int,
    attempt: int,
    reason: AbortReason,
    in_phase: Phase,
    found_at_s: float,
) -> RoundRecord:
    """Return the record of a round that no machine closed: lost in a crash, or never called."""
    return RoundRecord(
        task=task,
        round_number=round_number,
        attempt=attempt,
        opened_at_s=None,
        closed_at_s=found_at_s,
        outcome=Phase.ABORTED,
        reason=reason,
        in_phase=in_phase,
    )


def spend_of(spec: TaskSpec, privacy: PrivacyPlan, ledger: Ledger) -> RoundSpend:
    """Return what a task has spent, by the ledger of its fleet."""
    return RoundSpend(
        server=ledger.epsilon(spec.delta),
        release=ledger.epsilon_release(spec.delta),
        two_devices=epsilon_for_two_devices(privacy, len(ledger)),
    )


def _counted(backends: Mapping[str, str]) -> dict[str, int]:
    counted = Counter(name for name in backends.values() if name)
    kept = dict(sorted(counted.most_common(MOST_BACKENDS)))
    rest = counted.total() - sum(kept.values())
    return {**kept, OTHER_BACKENDS: rest + kept.get(OTHER_BACKENDS, 0)} if rest else kept


def record_to_json(record: RoundRecord) -> dict[str, Json]:
    """Return a record as the page, the commands and the state file have it.

    An epsilon without bound is null, which JSON can hold.
    """
    spend = record.spend
    traffic = record.traffic
    devices = max(1, traffic.devices)
    return {
        "task": record.task,
        "round": record.round_number,
        "attempt": record.attempt,
        "opened_at_s": record.opened_at_s,
        "closed_at_s": record.closed_at_s,
        "duration_s": round(record.duration_s, 4),
        "outcome": record.outcome.name,
        "reason": record.reason.name,
        "in_phase": None if record.in_phase is None else record.in_phase.name,
        "phases": [
            {
                "phase": phase.phase.name,
                "expected": phase.expected,
                "needed": phase.needed,
                "arrived": phase.arrived,
                "duration_s": round(phase.duration_s, 4),
            }
            for phase in record.phases
        ],
        "drops": [
            {"phase": drop.phase.name, "reason": drop.reason.value, "count": drop.count}
            for drop in record.drops
        ],
        "survivors": record.survivors,
        "unmasked": record.unmasked,
        "sum_check_held": record.sum_check_held,
        "charged": record.charged,
        "up_bytes": traffic.up,
        "down_bytes": traffic.down,
        "devices_with_traffic": traffic.devices,
        "up_bytes_per_device": round(traffic.up / devices, 1),
        "down_bytes_per_device": round(traffic.down / devices, 1),
        "has_spend": spend is not None,
        "epsilon_server": None if spend is None else _finite(spend.server),
        "epsilon_release": None if spend is None else _finite(spend.release),
        "epsilon_two_devices": None if spend is None else _finite(spend.two_devices),
        "backends": dict(record.backends),
    }


def record_from_json(content: Mapping[str, Json]) -> RoundRecord:
    """Read what `record_to_json` wrote.

    Raises:
        StorageError: E-HISTORY: it is something else.
    """
    try:
        return _record_from(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(
            "E-HISTORY",
            "a round's record",
            f"{type(error).__name__} in it",
            "it was written by another version of edgefl",
        ) from error


def _record_from(content: Mapping[str, Json]) -> RoundRecord:
    opened, in_phase = content["opened_at_s"], content["in_phase"]
    return RoundRecord(
        task=_text(content["task"]),
        round_number=_whole(content["round"]),
        attempt=_whole(content["attempt"]),
        opened_at_s=None if opened is None else _number(opened),
        closed_at_s=_number(content["closed_at_s"]),
        outcome=Phase[_text(content["outcome"])],
        reason=AbortReason[_text(content["reason"])],
        in_phase=None if in_phase is None else Phase[_text(in_phase)],
        phases=tuple(
            PhaseRecord(
                phase=Phase[_text(row["phase"])],
                expected=_whole(row["expected"]),
                needed=_whole(row["needed"]),
                arrived=_whole(row["arrived"]),
                duration_s=_number(row["duration_s"]),
            )
            for row in _rows(content["phases"])
        ),
        drops=tuple(
            DropRecord(
                phase=Phase[_text(row["phase"])],
                reason=DropReason(_text(row["reason"])),
                count=_whole(row["count"]),
            )
            for row in _rows(content["drops"])
        ),
        survivors=_whole(content["survivors"]),
        unmasked=_whole(content["unmasked"]),
        sum_check_held=_maybe_true(content["sum_check_held"]),
        charged=content["charged"] is True,
        traffic=RoundBytes(
            up=_whole(content["up_bytes"]),
            down=_whole(content["down_bytes"]),
            devices=_whole(content["devices_with_traffic"]),
        ),
        spend=_spend_from(content),
        backends={_text(name): _whole(count) for name, count in _table(content["backends"])},
    )


def _spend_from(content: Mapping[str, Json]) -> RoundSpend | None:
    if content["has_spend"] is not True:
        return None
    return RoundSpend(
        server=_bound(content["epsilon_server"]),
        release=_bound(content["epsilon_release"]),
        two_devices=_bound(content["epsilon_two_devices"]),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bound(value: Json) -> float:
    return math.inf if value is None else _number(value)


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Json) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _number(value: Json) -> float:
    if type(value) not in (int, float):
        raise TypeError
    return float(value)  # type: ignore[arg-type]  # checked above, without bool


def _maybe_true(value: Json) -> bool | None:
    if value is not None and type(value) is not bool:
        raise TypeError
    return value


def _rows(value: Json) -> list[dict[str, Json]]:
    if not isinstance(value, list):
        raise TypeError
    return [row for row in value if isinstance(row, dict)]


def _table(value: Json) -> list[tuple[str, Json]]:
    if not isinstance(value, dict):
        raise TypeError
    return list(value.items())
