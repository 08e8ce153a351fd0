"""The key-value store on disk: SQLite in WAL mode, one writer process, checksummed rows."""

import hashlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from edgefl.storage.base import require_key, require_namespace
from edgefl.storage.sqlite_file import PAGE_BYTES, StateFile, damaged

_CHECK_BYTES = 16


def open_sqlite(
    path: Path, *, namespace: str = "state", page_bytes: int = PAGE_BYTES
) -> "SqliteStore":
    """Open a state file, or make a new one readable by its owner only.

    An existing file is checked whole before it is used, and is never repaired, replaced or reset
    here: what it remembers (privacy spent, shares revealed) must not be forgotten silently.

    Args:
        path: The file; its folder is made if absent.
        namespace: Namespace that the returned store shows.
        page_bytes: Of a new file: what a commit writes at least for each place that it touches, and
            twice. A file of small rows does with small pages.

    Raises:
        StorageError: E-STATE-LOCKED, E-STATE-DAMAGED, E-STATE-VERSION, E-STATE-UNWRITABLE or
            E-DISK-FULL.
    """
    require_namespace(namespace)
    file = StateFile(path, page_bytes=page_bytes)
    try:
        for table in file.tables():
            SqliteStore(file, table).verify()
        return SqliteStore(file, namespace)
    except BaseException:
        file.close()
        raise


class SqliteStore:
    """A `KeyValueStore` in one table of a state file. May be used from any thread.

    Deleted values are overwritten in the file and the log is cut at once. That is what software
    can do: a flash chip may keep old pages.

    Args:
        file: The open file.
        namespace: Name of the table.
    """

    def __init__(self, file: StateFile, namespace: str) -> None:
        """Make the table if it is new."""
        require_namespace(namespace)
        self._file = file
        self._namespace = namespace
        self._table = f"ns_{namespace}"
        with file.transaction() as database:
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table}"
                " (key TEXT PRIMARY KEY, value BLOB NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID"
            )

    def get(self, key: str) -> bytes | None:
        """Return the value, or None.

        Raises:
            StorageError: the row is damaged, or the store is closed.
        """
        require_key(key)
        statement = f"SELECT value, checksum FROM {self._table} WHERE key = ?"  # noqa: S608
        with self._file.reading() as database:
            row = database.execute(statement, (key,)).fetchone()
        if row is None:
            return None
        return self._checked(key, row[0], row[1])

    def put(self, key: str, value: bytes) -> None:
        """Store one value.

        Raises:
            StorageError: it cannot be written; the earlier state stands.
        """
        self.put_many({key: value})

    def put_many(self, changes: Mapping[str, bytes | None]) -> None:
        """Store several values in one transaction; None deletes.

        Raises:
            StorageError: it cannot be written; the earlier state stands.
        """
        self.put_across({self._namespace: changes})

    def put_across(self, changes: Mapping[str, Mapping[str, bytes | None]]) -> None:
        """Store values of several namespaces in one transaction; None deletes.

        Raises:
            StorageError: they cannot be written; the earlier state stands.
        """
        for rows in changes.values():
            for key in rows:
                require_key(key)
        tables = [
            (self if name == self._namespace else self.namespace(name), rows)
            for name, rows in changes.items()
        ]
        with self._file.transaction() as database:
            has_deleted = [table._write(database, rows) for table, rows in tables]  # noqa: SLF001
        if any(has_deleted):
            self._file.cut_log()

    def _write(self, database: sqlite3.Connection, changes: Mapping[str, bytes | None]) -> bool:
        """Write within a transaction, and return whether a row was deleted."""
        deletions = [(key,) for key, value in changes.items() if value is None]
        rows = [
            (key, bytes(value), self._checksum(key, bytes(value)))
            for key, value in changes.items()
            if value is not None
        ]
        before = database.total_changes
        database.executemany(f"DELETE FROM {self._table} WHERE key = ?", deletions)  # noqa: S608
        has_deleted = database.total_changes > before
        database.executemany(f"REPLACE INTO {self._table} VALUES (?, ?, ?)", rows)  # noqa: S608
        return has_deleted

    def delete(self, key: str) -> None:
        """Delete a key; an absent one is fine.

        Raises:
            StorageError: it cannot be written; the earlier state stands.
        """
        self.put_many({key: None})

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""
        statement = f"SELECT key FROM {self._table} WHERE substr(key, 1, ?) = ? ORDER BY key"  # noqa: S608
        with self._file.reading() as database:
            rows = database.execute(statement, (len(prefix), prefix)).fetchall()
        return [str(row[0]) for row in rows]

    def namespace(self, name: str) -> "SqliteStore":
        """Return another namespace of the same file: separate keys, common lock and life."""
        return SqliteStore(self._file, name)

    @property
    def file(self) -> StateFile:
        """The file that all namespaces share."""
        return self._file

    def close(self) -> None:
        """Release the file for all namespaces; a second call does nothing."""
        self._file.close()

    def verify(self) -> None:
        """Compare every row with its checksum.

        Raises:
            StorageError: a row is damaged.
        """
        statement = f"SELECT key, value, checksum FROM {self._table}"  # noqa: S608
        with self._file.reading() as database:
            for key, value, checksum in database.execute(statement):
                self._checked(key, value, checksum)

    def _checked(self, key: object, value: object, checksum: object) -> bytes:
        """Return the value of a row, or refuse a row that nobody wrote."""
        if (
            isinstance(key, str)
            and isinstance(value, bytes)
            and checksum == self._checksum(key, value)
        ):
            return value
        raise damaged(self._file.path, f"a row of {self._namespace} that fails its checksum")

    def _checksum(self, key: str, value: bytes) -> bytes:
        return row_checksum(self._namespace, key, value)


def row_checksum(namespace: str, key: str, value: bytes) -> bytes:
    """Return 16 bytes over where the value belongs and what it is; no protection from people.

    SQLite has no checksums of its own, so a flipped bit inside a value would pass its check.
    """
    place = f"{namespace}\0{key}\0".encode()
    return hashlib.blake2b(place + value, digest_size=_CHECK_BYTES).digest()
