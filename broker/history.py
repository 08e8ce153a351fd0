"""Closed rounds, kept: how each ended, how good its model is, and, apart from that, who took part.

The rows lie in a namespace of the gateway's state file, so that a round's record is written in the
transaction that closes it. `round/...` and `metric/...` hold no device's name; `members/...` does,
for fewer rounds, and only the operator's commands read it.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.events import EvaluationEnded, Json
from broker.round_record import RoundRecord, record_from_json, record_to_json
from edgefl.errors import StorageError
from edgefl.protocol.reasons import Phase
from edgefl.protocol.report import RoundReport
from edgefl.storage.base import KeyValueStore
from edgefl.storage.read_only import ReadableStore

NAMESPACE: Final = "history"
ROUNDS_KEPT: Final = 10_000
MEMBERS_KEPT: Final = 64
"""Who took part is kept for fewer rounds: it is the more telling half, and the larger one."""
WEAKENS: Final = (
    "who takes part weakens epsilon_release for whoever sees it: it holds against those who know "
    "nothing of participation; against everybody else epsilon_server counts"
)
"""Said wherever a command shows who took part."""
RECENT: Final = 256
"""Rounds at hand without a look into the file, for the page and its figures."""

_ABOUT = "about"
_ROUND = "round/"
_METRIC = "metric/"
_MEMBERS = "members/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """How good a committed model is on the task's own evaluation data.

    Attributes:
        accuracy: None where the task measures a loss alone.
        int8_accuracy: Of the int8 form; None where it was not measured.
    """

    task: str
    round_number: int
    accuracy: float | None
    loss: float
    examples: int
    int8_accuracy: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMembers:
    """Who took part in one attempt.

    Attributes:
        survivors: Devices whose update is in the sum.
        dropouts: By device, the phase and reason; terminated ones, which were ready, too.
    """

    attempt: int
    survivors: tuple[str, ...]
    dropouts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayWords:
    """Whose history it is.

    Attributes:
        is_automatic: The enrolment key is on the gateway itself.
    """

    fleet: str
    is_automatic: bool


def members_of(report: RoundReport) -> RoundMembers:
    """Return who took part in a round that its machine has ended."""
    dropouts = {drop.device: f"{drop.phase.name}/{drop.reason.value}" for drop in report.dropouts}
    ended = dict.fromkeys(report.terminated, f"{Phase.ABORTED.name}/terminated")
    return RoundMembers(
        attempt=report.attempt, survivors=report.survivors, dropouts={**ended, **dropouts}
    )


class RoundHistory:
    """The history of one gateway, durable.

    Args:
        store: The namespace `NAMESPACE` of the gateway's state file.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Look which rounds there are."""
        self._store = store
        self._round_keys = deque(store.keys(_ROUND))
        self._members_keys = deque(store.keys(_MEMBERS))
        self.reader = HistoryReader(store)
        self.recent: deque[RoundRecord] = deque(self.reader.rounds(RECENT), maxlen=RECENT)
        tasks = {record.task for record in self.recent}
        self._metrics = {task: self.reader.metrics(task) for task in tasks}

    def metrics(self, task: str) -> Mapping[int, Metric]:
        """Return the measured models of a task that has recent rounds, by round."""
        return self._metrics.get(task, {})

    def close_round(self, record: RoundRecord, members: RoundMembers | None = None) -> None:
        """Keep a closed round, and let go of the oldest. Call it in the closing transaction.

        Raises:
            StorageError: It cannot be written.
        """
        changes = {_round_key(record.attempt): _encode(record_to_json(record))}
        if all(known.attempt != record.attempt for known in self.recent):
            self.recent.append(record)
        _add(self._round_keys, _round_key(record.attempt))
        gone: list[str] = []
        if len(self._round_keys) > ROUNDS_KEPT:
            gone += self._forget_round(self._round_keys.popleft())
        if members is not None:
            _add(self._members_keys, _members_key(members.attempt))
            changes[_members_key(members.attempt)] = _encode(
                {"survivors": list(members.survivors), "dropouts": dict(members.dropouts)}
            )
        if len(self._members_keys) > MEMBERS_KEPT:
            gone.append(self._members_keys.popleft())
        self._store.put_many({**changes, **dict.fromkeys(gone)})

    def note_gateway(self, about: GatewayWords) -> None:
        """Keep whose history it is, for who looks into a stopped gateway's state.

        Raises:
            StorageError: It cannot be written.
        """
        content = _encode({"fleet": about.fleet, "is_automatic": about.is_automatic})
        if self._store.get(_ABOUT) != content:
            self._store.put(_ABOUT, content)

    def note_metric(self, event: EvaluationEnded) -> None:
        """Keep how good a committed model is.

        Raises:
            StorageError: It cannot be written.
        """
        content: dict[str, Json] = {
            "accuracy": event.accuracy,
            "loss": event.loss,
            "examples": event.examples,
            "int8_accuracy": event.int8_accuracy,
        }
        metric = _metric_from(event.task, event.round_number, content)
        self._metrics.setdefault(event.task, {})[event.round_number] = metric
        self._store.put(_metric_key(event.task, event.round_number), _encode(content))

    def _forget_round(self, key: str) -> list[str]:
        """Return the rows that go with a round."""
        record = self.reader.read_round(key)
        return (
            [key, _metric_key(record.task, record.round_number)] if record.is_committed else [key]
        )


class HistoryReader:
    """Reads a history, of a running gateway or a stopped one."""

    def __init__(self, store: ReadableStore) -> None:
        """Read nothing yet."""
        self._store = store

    def rounds(self, most: int | None = None) -> list[RoundRecord]:
        """Return the closed rounds, newest last; at most so many.

        Raises:
            StorageError: A row is damaged.
        """
        keys = self._store.keys(_ROUND)
        wanted = keys if most is None else keys[max(0, len(keys) - most) :]
        return [self.read_round(key) for key in wanted]

    def about(self) -> GatewayWords | None:
        """Return whose history it is; None before the gateway's first start.

        Raises:
            StorageError: The row is damaged.
        """
        if self._store.get(_ABOUT) is None:
            return None
        content = self._read(_ABOUT)
        return GatewayWords(
            fleet=str(content.get("fleet")), is_automatic=content.get("is_automatic") is True
        )

    def read_round(self, key: str) -> RoundRecord:
        """Return one closed round.

        Raises:
            StorageError: The row is damaged.
        """
        return record_from_json(self._read(key))

    def metrics(self, task: str) -> dict[int, Metric]:
        """Return the measured models of a task, by round.

        Raises:
            StorageError: A row is damaged.
        """
        found = {}
        for key in self._store.keys(f"{_METRIC}{task}/"):
            number = int(key.rpartition("/")[2])
            found[number] = _metric_from(task, number, self._read(key))
        return found

    def members(self) -> list[RoundMembers]:
        """Return who took part in the last rounds, newest last. For the operator alone.

        Raises:
            StorageError: A row is damaged.
        """
        found = []
        for key in self._store.keys(_MEMBERS):
            content = self._read(key)
            survivors, dropouts = content.get("survivors"), content.get("dropouts")
            if not isinstance(survivors, list) or not isinstance(dropouts, dict):
                raise _other_row()
            found.append(
                RoundMembers(
                    attempt=int(key.rpartition("/")[2]),
                    survivors=tuple(map(str, survivors)),
                    dropouts={device: str(why) for device, why in dropouts.items()},
                )
            )
        return found

    def _read(self, key: str) -> dict[str, Json]:
        try:
            content = json.loads(self._store.get(key) or b"null")
        except ValueError as error:
            raise _other_row() from error
        if not isinstance(content, dict):
            raise _other_row()
        return content


def _metric_from(task: str, round_number: int, content: Mapping[str, Json]) -> Metric:
    accuracy, int8_accuracy = content.get("accuracy"), content.get("int8_accuracy")
    loss, examples = content.get("loss"), content.get("examples")
    if not isinstance(loss, int | float) or not isinstance(examples, int):
        raise _other_row()
    return Metric(
        task=task,
        round_number=round_number,
        accuracy=float(accuracy) if isinstance(accuracy, int | float) else None,
        loss=float(loss),
        examples=examples,
        int8_accuracy=float(int8_accuracy) if isinstance(int8_accuracy, int | float) else None,
    )


def _encode(content: Mapping[str, Json]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _add(keys: deque[str], key: str) -> None:
    """Add a key; a batch that is done again after a crash brings one that is there."""
    if key not in keys:
        keys.append(key)


def _round_key(attempt: int) -> str:
    return f"{_ROUND}{attempt:010d}"


def _members_key(attempt: int) -> str:
    return f"{_MEMBERS}{attempt:010d}"


def _metric_key(task: str, round_number: int) -> str:
    return f"{_METRIC}{task}/{round_number:010d}"


def _other_row() -> StorageError:
    return StorageError(
        "E-HISTORY",
        "a readable row of the history",
        "another",
        "it was written by another version of edgefl",
    )
