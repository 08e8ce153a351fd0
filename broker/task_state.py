"""Where a task stands, as one durable value."""

from dataclasses import dataclass, replace

import numpy as np

from broker.server_step import ModelState
from edgefl.errors import StorageError, WireError
from edgefl.protocol import wire
from edgefl.storage.base import KeyValueStore

RUNNING = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """Progress of one task.

    Attributes:
        committed: Committed rounds.
        outcome: "running", or how the task ended.
        model: The newest committed model.
    """

    committed: int
    outcome: str
    model: ModelState

    def ended(self, outcome: str) -> "TaskState":
        """Return the state with an outcome."""
        return replace(self, outcome=outcome)


def task_key(name: str) -> str:
    """Return the key of a task's state."""
    return f"task/{name}"


def encode_task_state(state: TaskState) -> bytes:
    """Return the bytes to store."""
    return wire.encode(
        {
            0: state.committed,
            1: state.outcome,
            2: state.model.parameters.astype("<f4").tobytes(),
            3: state.model.velocity.astype("<f4").tobytes(),
        }
    )


def read_progress(stored: bytes) -> tuple[int, str]:
    """Return (committed rounds, outcome) of a stored state, whatever its model.

    Raises:
        StorageError: It is damaged.
    """
    try:
        body = wire.as_body(wire.decode(stored))
        return wire.as_int(wire.field(body, 0), 0, 2**31), wire.as_text(wire.field(body, 1), 20)
    except WireError as error:
        raise StorageError("E-TASK-STATE", "the state of a task", error.found) from error


def load_task_state(store: KeyValueStore, name: str, dimension: int) -> TaskState | None:
    """Read a task's state.

    Raises:
        StorageError: It is there but is not a state of a task with this dimension.
    """
    stored = store.get(task_key(name))
    if stored is None:
        return None
    try:
        body = wire.as_body(wire.decode(stored))
        parameters = np.frombuffer(wire.as_bytes(wire.field(body, 2), 4 * dimension), dtype="<f4")
        velocity = np.frombuffer(wire.as_bytes(wire.field(body, 3), 4 * dimension), dtype="<f4")
        return TaskState(
            committed=wire.as_int(wire.field(body, 0), 0, 2**31),
            outcome=wire.as_text(wire.field(body, 1), 20),
            model=ModelState(
                parameters=parameters.astype(np.float32), velocity=velocity.astype(np.float32)
            ),
        )
    except WireError as error:
        raise StorageError(
            "E-TASK-STATE",
            f"the state of task {name} with {dimension} parameters",
            error.found,
            "submit the task under a new name",
        ) from error
