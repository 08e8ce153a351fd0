"""The status of a gateway that does not run, from its state folder, which is only read."""

import time
from dataclasses import dataclass
from pathlib import Path

from broker import admissions
from broker.device_list import (
    DeviceFact,
    DeviceLink,
    DeviceState,
    Standing,
    count_states,
    device_fingerprint,
    devices_document,
    rounds_by_device,
    standings_of,
)
from broker.disk_room import disk_fact
from broker.enrolment import keys_of, read_stored_roster
from broker.enrolments import read_records
from broker.events import Json
from broker.history import NAMESPACE, HistoryReader
from broker.population import read_known
from broker.problems import Problem, disk_problems, enrolment_problems, round_problems
from broker.round_record import RoundRecord
from broker.status import (
    PAUSED,
    BrokerFact,
    GatewayFacts,
    TaskFact,
    measured_round,
    status_document,
)
from broker.task_folder import list_tasks, load_spec
from broker.task_state import RUNNING, read_progress, task_key
from broker.task_wishes import TaskWish, read_wish
from edgefl import __version__
from edgefl.errors import ConfigError, EdgeflError, StorageError, WireError
from edgefl.storage.read_only import ReadableStore, ReadOnlyStore, read_namespaces

STATE_FILE = "gateway.sqlite"
_SPACES = ("gateway", "population", "enrolment", admissions.NAMESPACE, NAMESPACE)
_SHOWN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    committed: int
    outcome: str


class StoppedStatus:
    """Looks at the state of a gateway that was stopped, or never started.

    Args:
        state_dir: Its folder.

    Raises:
        ConfigError: E-GATEWAY-STATE: there is no gateway's state.
        StorageError: The state is damaged, or in use.
    """

    def __init__(self, state_dir: Path) -> None:
        """Read what there is."""
        self._state_dir = state_dir
        path = state_dir / STATE_FILE
        if not path.exists():
            if not (state_dir / "tasks").is_dir() and not (state_dir / "gateway.toml").exists():
                raise ConfigError(
                    "E-GATEWAY-STATE",
                    f"a gateway's state in {state_dir}",
                    "none",
                    "give the folder that 'edgefl gateway run' has with --state",
                )
            self._spaces = {name: ReadOnlyStore({}) for name in _SPACES}
        else:
            self._spaces = read_namespaces(path, _SPACES)
        self._history = HistoryReader(self._spaces[NAMESPACE])
        self._rounds = self._history.rounds(_SHOWN)
        self._about = self._history.about()

    def status(self) -> dict[str, Json]:
        """Return the status; no device's name is in it."""
        return status_document(self.facts())

    def rounds(self, task: str | None, most: int) -> list[Json]:
        """Return the newest closed rounds whole, newest last."""
        wanted = [record for record in self._rounds if task is None or record.task == task]
        metrics = {record.task: self._history.metrics(record.task) for record in wanted}
        return [
            measured_round(record, metrics[record.task])
            for record in wanted[max(0, len(wanted) - most) :]
        ]

    def devices(self, *, with_rounds: bool) -> dict[str, Json]:
        """Return the devices by name, for the operator."""
        members = self._history.members() if with_rounds else []
        counts = rounds_by_device(members)
        facts = [
            DeviceFact(
                name=name,
                state=standing.state,
                link=DeviceLink.UNKNOWN,
                fingerprint=device_fingerprint(standing.identity_key),
                rounds=counts.get(name, 0) if with_rounds else None,
                claim=standing.claim,
            )
            for name, standing in self._standings().items()
        ]
        return devices_document(facts, rounds_remembered=len(members) if with_rounds else None)

    def facts(self) -> GatewayFacts:
        """Gather what a status is made of."""
        counts = count_states(self._standings())
        disk = disk_fact(self._state_dir)
        tasks, problems = self._tasks()
        pending = counts[DeviceState.PENDING.value]
        return GatewayFacts(
            fleet="" if self._about is None else self._about.fleet,
            version=__version__,
            at_s=time.time(),
            started_at_s=None,
            is_automatic=self._is_automatic,
            broker=BrokerFact(kind="endpoint", addresses=(), is_linked=None),
            devices={**counts, "online": 0, "asleep": 0, "offline": 0},
            key_epoch_members=None,
            open_round=None,
            waiting=None,
            tasks=tasks,
            rounds=self._rounds,
            disk=disk,
            problems=[
                Problem(
                    code="not-running",
                    text="the gateway does not run: start it with 'edgefl gateway run'",
                ),
                *enrolment_problems(pending),
                *problems,
                *round_problems(self._rounds),
                *disk_problems(disk.free_bytes),
            ],
        )

    # ------------------------------------------------------------ helpers

    @property
    def _is_automatic(self) -> bool:
        return self._about is None or self._about.is_automatic

    def _standings(self) -> dict[str, Standing]:
        try:
            records = read_records(self._spaces[admissions.NAMESPACE])
            roster = keys_of(read_stored_roster(self._spaces["enrolment"]))
        except WireError as error:
            raise StorageError(
                "E-STATE-DAMAGED", "readable records of devices", error.found
            ) from error
        return standings_of(
            known=read_known(self._spaces["population"]),
            roster=roster,
            records=records,
            is_automatic=self._is_automatic and not records,
        )

    def _tasks(self) -> tuple[list[TaskFact], list[Problem]]:
        tasks, problems = [], []
        for name in list_tasks(self._state_dir):
            try:
                tasks.append(self._task(name, self._rounds))
            except EdgeflError as error:
                problems.append(
                    Problem(code="task-refused", text=f"task {name} is refused: {error}")
                )
        return tasks, problems

    def _outcome(self, name: str, progress: _Progress) -> str:
        is_open = progress.outcome == RUNNING
        is_paused = is_open and read_wish(self._state_dir, name) is TaskWish.PAUSE
        return PAUSED if is_paused else progress.outcome

    def _task(self, name: str, rounds: list[RoundRecord]) -> TaskFact:
        spec = load_spec(self._state_dir, name)
        progress = _progress(self._spaces["gateway"], name)
        spends = [record.spend for record in rounds if record.task == name]
        return TaskFact(
            name=name,
            outcome=self._outcome(name, progress),
            committed=progress.committed,
            wanted=spec.rounds,
            spend=next((spend for spend in reversed(spends) if spend is not None), None),
            epsilon_budget=spec.epsilon_budget,
            delta=spec.delta,
            metrics=self._history.metrics(name),
        )


def _progress(store: ReadableStore, name: str) -> _Progress:
    stored = store.get(task_key(name))
    if stored is None:
        return _Progress(committed=0, outcome=RUNNING)
    committed, outcome = read_progress(stored)
    return _Progress(committed=committed, outcome=outcome)
