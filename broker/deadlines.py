"""How long each phase waits: learned from the rounds before, where the task fixes nothing.

One time limit for every fleet is too short for slow boards and needlessly long for a silent one. A
phase gets three times what the slowest rounds of late needed, and more after a round that was lost
to the limit.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from edgefl.errors import StorageError, WireError
from edgefl.protocol import wire
from edgefl.protocol.reasons import OPEN_PHASES, AbortReason, DropReason, Phase
from edgefl.protocol.report import RoundReport
from edgefl.protocol.round_setup import PhaseLimits
from edgefl.storage.base import KeyValueStore

LEAST_S: Final = 10.0
MOST_S: Final = 86_400.0
REMEMBERED: Final = 20
_FACTOR: Final = 3.0
_GROWTH: Final = 2.0
_LOST_TO_THE_LIMIT: Final = frozenset(
    {
        AbortReason.TOO_FEW_CHECKED_IN,
        AbortReason.TOO_FEW_SHARED_KEYS,
        AbortReason.BELOW_SURVIVOR_FLOOR,
        AbortReason.TOO_FEW_SIGNATURES,
        AbortReason.TOO_FEW_UNMASKED,
        AbortReason.NEIGHBOURHOOD_LOST,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    """One phase's limit, and the last arrivals of its newest rounds, in milliseconds."""

    limit_ms: int
    arrivals_ms: tuple[int, ...] = ()


class Deadlines:
    """The learned limits of one fleet's tasks.

    Args:
        store: A durable namespace of its own.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Read nothing yet."""
        self._store = store

    def limits(self, task: str, first: PhaseLimits) -> PhaseLimits:
        """Return the limits of the next round.

        Args:
            task: The task.
            first: Limits of a task's first rounds.

        Raises:
            StorageError: What was learned is damaged.
        """
        learned = {phase: one.limit_ms / 1000 for phase, one in self._read(task).items()}
        return replace(
            first,
            check_in_s=learned.get(Phase.CHECK_IN, first.check_in_s),
            share_keys_s=learned.get(Phase.SHARE_KEYS, first.share_keys_s),
            masked_input_s=learned.get(Phase.MASKED_INPUT, first.masked_input_s),
            certificate_s=learned.get(Phase.CERTIFICATE, first.certificate_s),
            unmasking_s=learned.get(Phase.UNMASKING, first.unmasking_s),
        )

    def note(self, report: RoundReport, used: PhaseLimits) -> None:
        """Learn from a round that is over.

        Args:
            report: What the round says.
            used: Its limits.

        Raises:
            StorageError: What was learned is damaged, or cannot be written.
        """
        learned = self._read(report.task)
        timed_out = {drop.phase for drop in report.dropouts if drop.reason is DropReason.TIMED_OUT}
        for count in report.phases:
            before = learned.get(count.phase, _Learned(limit_ms=_ms(used.of(count.phase))))
            is_last = count is report.phases[-1]
            if is_last and report.abort_reason in _LOST_TO_THE_LIMIT and count.phase in timed_out:
                longer_ms = min(_ms(MOST_S), round(_GROWTH * before.limit_ms))
                learned[count.phase] = replace(before, limit_ms=longer_ms)
            elif count.arrived:
                learned[count.phase] = _after_arrivals(before, count.last_arrival_s)
        self._store.put(report.task, _encode(learned))

    def _read(self, task: str) -> dict[Phase, _Learned]:
        stored = self._store.get(task)
        if stored is None:
            return {}
        try:
            return dict(_phases(wire.as_body(wire.decode(stored))))
        except (WireError, ValueError) as error:
            raise StorageError("E-STATE-DAMAGED", "readable time limits", "another row") from error


def _after_arrivals(before: _Learned, last_arrival_s: float) -> _Learned:
    arrivals = deque(before.arrivals_ms, maxlen=REMEMBERED)
    arrivals.append(min(_ms(MOST_S), _ms(last_arrival_s)))
    slowest_s = max(arrivals) / 1000
    limit_s = min(MOST_S, max(LEAST_S, _FACTOR * slowest_s))
    return _Learned(limit_ms=_ms(limit_s), arrivals_ms=tuple(arrivals))


def _encode(learned: Mapping[Phase, _Learned]) -> bytes:
    return wire.encode(
        {int(phase): [one.limit_ms, *one.arrivals_ms] for phase, one in sorted(learned.items())}
    )


def _phases(body: wire.Body) -> Iterable[tuple[Phase, _Learned]]:
    for number in sorted(body):
        phase = Phase(number)
        if phase not in OPEN_PHASES:
            raise ValueError(number)
        limit, *arrivals = (
            wire.as_int(value, 0, _ms(MOST_S))
            for value in wire.as_list(body[number], REMEMBERED + 1)
        )
        yield phase, _Learned(limit_ms=limit, arrivals_ms=tuple(arrivals))


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
