"""What the operator wants of a task that was handed in: a word in its folder, kept over restarts.

A running gateway looks twice a second; one that does not run finds the word at its next start.
"""

from enum import Enum
from pathlib import Path

from edgefl.errors import ConfigError, StorageError
from edgefl.storage.files import read_file, replace_file

_WISH = "wish"
_MOST_BYTES = 64


class TaskWish(Enum):
    """What is wanted of a task.

    - RUN: work on it.
    - PAUSE: let its open round end, and open no further one.
    - CANCEL: abort its open round by name, and end it. Its model stays.
    """

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


def write_wish(state_dir: Path, name: str, wish: TaskWish) -> None:
    """Put the word into the task's folder.

    Raises:
        ConfigError: E-TASK-UNKNOWN: no such task was handed in; E-TASK-CANCELLED: it was cancelled.
        StorageError: E-TASK-WRITE.
    """
    tasks = state_dir / "tasks"
    folder = tasks / name
    known = {entry.name for entry in tasks.iterdir()} if tasks.is_dir() else set()
    if name not in known or not folder.is_dir():
        raise ConfigError(
            "E-TASK-UNKNOWN",
            "the name of a task that was handed in",
            repr(name[:80]),
            "'edgefl task list' names them",
        )
    if read_wish(state_dir, name) is TaskWish.CANCEL and wish is not TaskWish.CANCEL:
        raise ConfigError(
            "E-TASK-CANCELLED",
            "a task that was not cancelled",
            repr(name),
            "hand it in anew under another name",
        )
    try:
        replace_file(folder / _WISH, f"{wish.value}\n".encode())
    except OSError as error:
        raise StorageError(
            "E-TASK-WRITE", f"room and permission to write {folder}", error.strerror or str(error)
        ) from error


def read_wish(state_dir: Path, name: str) -> TaskWish:
    """Return what is wanted of a task; to run is what is wanted where nothing readable is said."""
    try:
        word = read_file(state_dir / "tasks" / name / _WISH, _MOST_BYTES)
        return TaskWish(word.decode().strip())
    except (OSError, ValueError):
        return TaskWish.RUN
