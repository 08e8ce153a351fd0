"""A verified copy of a state file beside it, for the day on which the file itself is damaged."""

import logging
import os
import shutil
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

from edgefl.errors import StorageError
from edgefl.storage.sqlite import open_sqlite, row_checksum
from edgefl.storage.sqlite_file import StateFile, damaged, set_aside, write_problem

_LOGGER = logging.getLogger(__name__)


def previous_of(path: Path) -> Path:
    """Return where the copy of a state file lies: `NAME.previous`."""
    return path.with_name(f"{path.name}.previous")


def write_copy(file: StateFile) -> None:
    """Replace the copy by one of the present state, once that was read back and found whole.

    Args:
        file: The open state file; its owner does not change it meanwhile.

    Raises:
        StorageError: It cannot be written, or came out damaged; the copy before stands.
    """
    target = previous_of(file.path)
    draft = target.with_name(f"{target.name}.new-{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR))
        with file.reading() as database:
            _copy(database, draft)
        _replace(draft, target)
    except sqlite3.Error as error:
        raise write_problem(target, error) from error
    except OSError as error:
        raise StorageError(
            "E-STATE-COPY", f"a copy of the state at {target}", error.strerror or str(error)
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def recover(path: Path) -> Path | None:
    """Put the copy in the place of a state file that is damaged or gone; both are kept.

    Args:
        path: The state file; no process has it open.

    Returns:
        Where the damaged file is now, or None where there is nothing to recover.

    Raises:
        StorageError: The file is damaged, and so is its copy, or there is none; or the file is
            locked, of another version, or cannot be moved.
    """
    copy = previous_of(path)
    if not path.exists() and not copy.exists():
        return None
    try:
        if path.exists() or not copy.exists():
            open_sqlite(path).close()
            return None
        raise damaged(path, "no file, but a copy of it")
    except StorageError as error:
        if error.code != "E-STATE-DAMAGED" or not copy.exists():
            raise
        _LOGGER.error("%s", error)
    _require_whole(copy)
    aside = set_aside(path)
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        shutil.copyfile(copy, draft)
        draft.chmod(stat.S_IRUSR | stat.S_IWUSR)
        _replace(draft, path)
    except OSError as error:
        raise StorageError(
            "E-STATE-COPY", f"a copy of {copy} at {path}", error.strerror or str(error)
        ) from error
    return aside


def _copy(source: sqlite3.Connection, draft: Path) -> None:
    target = sqlite3.connect(draft, isolation_level=None)
    try:
        source.backup(target)
        # As a file of its own, without a log beside it.
        target.execute("PRAGMA journal_mode = DELETE")
        _check(draft, target)
    finally:
        target.close()


def _require_whole(path: Path) -> None:
    """Look at every row of a copy, without changing a byte.

    Raises:
        StorageError: E-STATE-DAMAGED.
    """
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            _check(path, database)
        finally:
            database.close()
    except sqlite3.Error as error:
        raise write_problem(path, error) from error


def _check(path: Path, database: sqlite3.Connection) -> None:
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise damaged(path, str(verdict).splitlines()[-1][:120])
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in names:
        rows = database.execute(f"SELECT key, value, checksum FROM {table}")  # noqa: S608
        namespace = str(table).removeprefix("ns_")
        if any(checksum != row_checksum(namespace, key, value) for key, value, checksum in rows):
            raise damaged(path, f"a row of {namespace} that fails its checksum")


def _replace(draft: Path, target: Path) -> None:
    for path, flags in ((draft, os.O_RDONLY), (target.parent, os.O_RDONLY)):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path == draft:
            draft.replace(target)
