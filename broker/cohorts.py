"""Cohorts and time limits of the next round, from what the rounds before have taught."""

from collections.abc import Iterable, Set

from broker.deadlines import Deadlines
from broker.population import Population
from broker.selection import Choice, choose
from broker.standings import NAMESPACE as STANDINGS
from broker.standings import Standings
from broker.task import TaskSpec
from edgefl.errors import StorageError, WireError
from edgefl.protocol import wire
from edgefl.protocol.presence import PowerBucket
from edgefl.protocol.reasons import Phase
from edgefl.protocol.report import RoundReport
from edgefl.protocol.round_setup import PhaseLimits
from edgefl.storage.base import KeyValueStore


class Cohorts:
    """Chooses who is called, and how long each phase waits.

    Args:
        store: Durable state of the gateway.
        population: Who is known, and how devices are fed.
    """

    def __init__(self, store: KeyValueStore, population: Population) -> None:
        """Read what earlier rounds have taught.

        Raises:
            StorageError: It is damaged.
        """
        self._population = population
        self._standings = Standings(store.namespace(STANDINGS))
        self._deadlines = Deadlines(store.namespace("deadlines"))
        self._draws = store.namespace("draws")

    def limits(self, spec: TaskSpec) -> PhaseLimits:
        """Return how long each phase of a task's next round waits.

        Where devices sleep, never shorter than the task says: they were told so how long they may.
        """
        first = spec.limits()
        if spec.deadlines == "fixed":
            return first
        learned = self._deadlines.limits(spec.name, first)
        return learned.at_least(first) if self._population.has_sleepers else learned

    def choose(
        self, spec: TaskSpec, *, members: Set[str], ready: Set[str], attempt: int, nonce: bytes
    ) -> Choice:
        """Return who is called; see `broker.selection.choose`."""
        return choose(
            spec,
            members=members,
            ready=ready,
            standings=self._standings,
            power=self._power(members),
            attempt=attempt,
            nonce=nonce,
        )

    def draw(self, task: str, attempt: int) -> int:
        """Return the draw that devices throw their coins for, durably.

        One that was answered, and whose round was lost later, is used again: its cohort stands. A
        new one is numbered like the attempt that throws it first.

        Args:
            task: The task.
            attempt: Number of the attempt that is about to be called.
        """
        stored = self._draws.get(task)
        if stored:
            return _draw(stored)
        self._draws.put(task, wire.encode(attempt))
        return attempt

    def note(self, report: RoundReport, limits: PhaseLimits) -> None:
        """Learn from a round that is over.

        Args:
            report: What the round says.
            limits: How long its phases waited.
        """
        lost = [drop.device for drop in report.dropouts]
        called = {*lost, *report.survivors, *report.terminated}
        self._standings.note(report.attempt, called=sorted(called), lost=lost)
        self._deadlines.note(report, limits)
        is_used = report.outcome is Phase.COMMITTED or len(report.phases) < 2
        if is_used and self._draws.get(report.task) is not None:
            self._draws.delete(report.task)

    def _power(self, devices: Iterable[str]) -> dict[str, PowerBucket]:
        told = ((device, self._population.presence_of(device)) for device in devices)
        return {device: presence.bucket for device, presence in told if presence is not None}


def _draw(stored: bytes) -> int:
    try:
        return wire.as_int(wire.decode(stored), 1, 2**31)
    except WireError as error:
        raise StorageError("E-STATE-DAMAGED", "the number of a draw", "another row") from error
