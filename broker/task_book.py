"""The tasks that a gateway works on, one after the other."""

from dataclasses import dataclass

from broker.active_task import ActiveTask, take_up
from broker.events import GatewayEffect, TaskEnded, TaskSubmitted
from broker.reports import task_ended_report, task_report
from broker.task import TaskSpec
from broker.task_state import RUNNING, encode_task_state, task_key
from broker.task_wishes import TaskWish
from edgefl.storage.base import KeyValueStore

_IDLE_SLEEP_S = 900
_WAKES_IN_PHASE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTask:
    """A task that is over, for the operator.

    Attributes:
        reason: One phrase.
    """

    spec: TaskSpec
    committed: int
    outcome: str
    reason: str


class TaskBook:
    """Tasks in the order in which they were handed in.

    Args:
        store: Durable state of the gateway.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Start with none; the shell hands in what it finds."""
        self._store = store
        self._tasks: list[ActiveTask] = []
        self._ended: dict[str, EndedTask] = {}
        self._wishes: dict[str, TaskWish] = {}

    @property
    def current(self) -> ActiveTask | None:
        """The task whose rounds are run: the first that is not paused."""
        return next((task for task in self._tasks if not self.is_paused(task.spec.name)), None)

    @property
    def most_sleep_s(self) -> int:
        """For how long a device may be without a link: a quarter of the shortest phase.

        Whoever wakes that often takes up what waits for it with most of the phase still to come.
        """
        task = self.current
        return _IDLE_SLEEP_S if task is None else int(task.spec.shortest_phase_s / _WAKES_IN_PHASE)

    @property
    def all(self) -> tuple[ActiveTask, ...]:
        """The tasks that are worked on, in their order."""
        return tuple(self._tasks)

    @property
    def ended(self) -> tuple[EndedTask, ...]:
        """The tasks that are over, as far as this life of the gateway met them."""
        return tuple(self._ended.values())

    def take_up(self, event: TaskSubmitted) -> list[GatewayEffect]:
        """Go on with a task where the store left it; one that is here already changes nothing.

        Raises:
            StorageError: The stored state is of another model.
            ConfigError: No privacy plan holds for the model.
        """
        if any(task.spec.name == event.spec.name for task in self._tasks):
            return []
        task = take_up(event, self._store)
        spec, state = task.spec, task.state
        # After a crash the task's folder may lack the newest model: hand it out once more.
        kept: list[GatewayEffect] = [task.model_changed()] if state.committed else []
        if state.outcome != RUNNING:
            reason = "ended before this start"
            self._note_end(task, reason)
            return [*kept, TaskEnded(task=spec.name, outcome=state.outcome, reason=reason)]
        self._tasks.append(task)
        return [*kept, task_report(spec, task.privacy, state.committed)]

    def wish(self, name: str, wish: TaskWish) -> None:
        """Note what the operator wants of a task, which need not be here yet."""
        self._wishes[name] = wish

    def is_paused(self, name: str) -> bool:
        """Tell whether a task waits for its operator."""
        return self._wishes.get(name) is TaskWish.PAUSE

    def is_cancelled(self, name: str) -> bool:
        """Tell whether the operator wants an end of a task."""
        return self._wishes.get(name) is TaskWish.CANCEL

    def find(self, name: str) -> ActiveTask | None:
        """Return a task that is worked on."""
        return next((task for task in self._tasks if task.spec.name == name), None)

    def put_first(self, task: ActiveTask) -> None:
        """Work on a task before all others: its round is open."""
        self._tasks.remove(task)
        self._tasks.insert(0, task)

    def end(self, task: ActiveTask, outcome: str, reason: str) -> list[GatewayEffect]:
        """End a task, durably."""
        task.state = task.state.ended(outcome)
        self._store.put(task_key(task.spec.name), encode_task_state(task.state))
        self._tasks.remove(task)
        self._note_end(task, reason)
        return [
            TaskEnded(task=task.spec.name, outcome=outcome, reason=reason),
            task_ended_report(task.spec.name, outcome, reason, task.state.committed),
        ]

    def _note_end(self, task: ActiveTask, reason: str) -> None:
        self._ended[task.spec.name] = EndedTask(
            spec=task.spec,
            committed=task.state.committed,
            outcome=task.state.outcome,
            reason=reason,
        )
