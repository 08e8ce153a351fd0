"""Look into the state file of a stopped process, without its lock and without changing a byte."""

import os
import sqlite3
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from edgefl.errors import StorageError
from edgefl.storage.base import require_namespace
from edgefl.storage.sqlite import open_sqlite, row_checksum
from edgefl.storage.sqlite_file import APPLICATION_ID, FORMAT_VERSION, damaged, write_problem


class ReadableStore(Protocol):
    """The reading half of a `KeyValueStore`, which a stopped process's file has too."""

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""


class ReadOnlyStore:
    """Keys and values of one namespace, as they were when the file was read.

    Args:
        rows: Value by key.
    """

    def __init__(self, rows: dict[str, bytes]) -> None:
        """Keep the rows."""
        self._rows = rows

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self._rows.get(key)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""
        return sorted(key for key in self._rows if key.startswith(prefix))


def read_namespaces(path: Path, names: tuple[str, ...]) -> dict[str, ReadOnlyStore]:
    """Read namespaces of a state file that no process has open.

    After a clean end the file is whole, and is read as it lies. After a crash SQLite's log may hold
    what the file does not: then it is opened as its owner would, with its lock, for that moment.

    Args:
        path: The file.
        names: Of the namespaces; one that the file does not have comes back empty.

    Raises:
        StorageError: E-STATE-LOCKED: a process has it open; E-STATE-DAMAGED, E-STATE-VERSION, or
            E-STATE-UNWRITABLE where it cannot be read.
    """
    for name in names:
        require_namespace(name)
    if _has_log(path):
        return _recover(path, names)
    return _read(path, names)


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _recover(path: Path, names: tuple[str, ...]) -> dict[str, ReadOnlyStore]:
    store = open_sqlite(path)
    try:
        found = {}
        for name in names:
            space = store.namespace(name)
            rows = {key: space.get(key) for key in space.keys()}  # noqa: SIM118 - no dictionary
            found[name] = ReadOnlyStore({key: row for key, row in rows.items() if row is not None})
        return found
    finally:
        store.close()


def _read(path: Path, names: tuple[str, ...]) -> dict[str, ReadOnlyStore]:
    if not os.access(path, os.R_OK):
        raise StorageError(
            "E-STATE-UNWRITABLE",
            f"a state file {path} that this user can read",
            "none, or no permission",
            "check the path, or ask as the user who runs the gateway",
        )
    try:
        # Immutable: no lock, no log, no shared memory; nothing is written beside the file.
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        database = sqlite3.connect(uri, uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise write_problem(path, error) from error
    try:
        _require_ours(path, database)
        return {name: ReadOnlyStore(_rows(path, database, name)) for name in names}
    except sqlite3.Error as error:
        raise write_problem(path, error) from error
    finally:
        database.close()


def _require_ours(path: Path, database: sqlite3.Connection) -> None:
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise damaged(path, "a database that is not one of edgefl's")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != FORMAT_VERSION:
        raise StorageError(
            "E-STATE-VERSION", f"state format {FORMAT_VERSION} in {path}", f"format {version}"
        )


def _rows(path: Path, database: sqlite3.Connection, name: str) -> dict[str, bytes]:
    table = f"ns_{name}"
    known = database.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    if not known[0]:
        return {}
    rows = {}
    statement = f"SELECT key, value, checksum FROM {table}"  # noqa: S608 - a checked name
    for key, value, checksum in database.execute(statement):
        if (
            not isinstance(key, str)
            or not isinstance(value, bytes)
            or checksum != row_checksum(name, key, value)
        ):
            raise damaged(path, f"a row of {name} that fails its checksum")
        rows[key] = value
    return rows
