"""What many closed rounds come to: the funnel by phase, reasons of dropouts, times, bytes."""

import math
from collections import Counter
from collections.abc import Sequence

from broker.events import Json
from broker.round_record import RoundRecord
from edgefl.protocol.reasons import OPEN_PHASES

PERCENTILES = (50, 90, 99)


def summarise(rounds: Sequence[RoundRecord]) -> dict[str, Json]:
    """Return the figures over some rounds, for the page and the commands."""
    outcomes = Counter(record.outcome.name for record in rounds)
    reasons = Counter(record.reason.name for record in rounds if not record.is_committed)
    return {
        "rounds": len(rounds),
        "outcomes": dict(sorted(outcomes.items())),
        "abort_reasons": dict(sorted(reasons.items())),
        "funnel": _funnel(rounds),
        "drops": _drops(rounds),
        "round_time_s": _times([record.duration_s for record in rounds if record.is_committed]),
        "phase_time_s": _phase_times(rounds),
        "up_bytes": sum(record.traffic.up for record in rounds),
        "down_bytes": sum(record.traffic.down for record in rounds),
    }


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that so many percent of all do not exceed; None for none."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(percent * len(values) / 100) - 1)]


def _funnel(rounds: Sequence[RoundRecord]) -> list[Json]:
    """Add up, for each phase, who was waited for and who came, over the rounds that reached it."""
    rows: list[Json] = []
    for phase in OPEN_PHASES:
        counts = [count for record in rounds for count in record.phases if count.phase is phase]
        if counts:
            rows.append(
                {
                    "phase": phase.name,
                    "rounds": len(counts),
                    "expected": sum(count.expected for count in counts),
                    "arrived": sum(count.arrived for count in counts),
                }
            )
    return rows


def _drops(rounds: Sequence[RoundRecord]) -> list[Json]:
    counted: Counter[tuple[int, str, str]] = Counter()
    for record in rounds:
        for drop in record.drops:
            counted[drop.phase.value, drop.phase.name, drop.reason.value] += drop.count
    return [
        {"phase": phase, "reason": reason, "count": count}
        for (_, phase, reason), count in sorted(counted.items())
    ]


def _phase_times(rounds: Sequence[RoundRecord]) -> dict[str, Json]:
    times: dict[str, Json] = {}
    for phase in OPEN_PHASES:
        spent = [c.duration_s for record in rounds for c in record.phases if c.phase is phase]
        if spent:
            times[phase.name] = _times(spent)
    return times


def _times(spent_s: Sequence[float]) -> dict[str, Json]:
    found: dict[str, Json] = {"count": len(spent_s)}
    for percent in PERCENTILES:
        value = percentile(spent_s, percent)
        found[f"p{percent}"] = None if value is None else round(value, 4)
    return found
