"""Reads the newest rows of an SQLite table while another process may be writing to it.

The database is opened read-only, and rows are fetched some hundreds at a time, each time in a
transaction of its own: in the older rollback mode a writer waits for a reader, and a logger that
waits for long loses readings; in WAL mode a long read would let the log grow. Views and tables
without rowid cannot be taken up again in the middle; they are read in one go.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from edgefl.data.account import Account
from edgefl.data.csv_rows import require_columns, unreadable
from edgefl.data.folder import require_regular
from edgefl.data.rows import Field, RawRows, rows_at_once
from edgefl.data.settings_file import did_you_mean
from edgefl.errors import DataError

_ROWID = "rowid"
_WAIT_S = 5.0
_BYTES_PER_FIELD = 16
"""What one field counts for against the limit on reading: its number, and the table around it."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_NO_SHARED_MEMORY = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteTable:
    """One table or view of a database file."""

    def __init__(self, path: Path, table: str) -> None:
        """Prepare; nothing is opened yet.

        Args:
            path: The database file.
            table: Name of a table or view.
        """
        self._path = path
        self._table = table

    @property
    def name(self) -> str:
        """Return how the table is called in messages."""
        return f"table {self._table!r} of {self._path.name}"

    def column_names(self) -> tuple[str, ...]:
        """Return the table's columns.

        Raises:
            DataError: E-DATA-MISSING, E-DATA-UNREADABLE, E-DATA-EMPTY, E-DATA-TABLE,
                E-DATA-DAMAGED, E-DATA-LOCKED or E-DATA-SQLITE.
        """
        try:
            with closing(self._connect()) as connection:
                return self._columns(connection)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def batches(
        self,
        wanted: Sequence[str],
        time: str | None,
        most_bytes: int,
        account: Account,
        optional: Sequence[str] = (),
    ) -> Iterator[RawRows]:
        """Yield the newest rows, oldest first.

        Args:
            wanted: Columns to return, in this order.
            time: Column that orders rows where the table has no rowid.
            most_bytes: How much is looked at, at 16 bytes for each field.
            account: Told how much was passed over.
            optional: Columns that may be absent; their fields are None then.

        Raises:
            DataError: As for `column_names`, and E-DATA-COLUMN.
        """
        try:
            with closing(self._connect()) as connection:
                found = self._columns(connection)
                absent = {column for column in optional if column not in found}
                require_columns(found, [one for one in wanted if one not in absent], self.name)
                most_rows = max(1, most_bytes // (_BYTES_PER_FIELD * len(wanted)))
                fields = ["NULL" if one in absent else _quoted(one) for one in wanted]
                yield from self._newest(connection, fields, time, most_rows, account)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _connect(self) -> sqlite3.Connection:
        try:
            require_regular(self._path)
            with self._path.open("rb"):
                pass
        except OSError as error:
            raise unreadable(self._path, error) from error
        address = f"file:{quote(str(self._path.resolve()))}?mode=ro"
        try:
            return self._opened(address)
        except sqlite3.OperationalError as error:
            # A WAL database in a folder that we may not write to, whose writer is gone: nobody
            # can change it while there is no -wal file, so it can be read as it lies.
            has_writer = self._path.with_name(self._path.name + "-wal").exists()
            if has_writer or _code_of(error) not in _NO_SHARED_MEMORY:
                raise
            return self._opened(f"{address}&immutable=1")

    def _opened(self, address: str) -> sqlite3.Connection:
        connection = sqlite3.connect(address, uri=True, timeout=_WAIT_S, isolation_level=None)
        try:
            # Text that is no UTF-8 must spoil its own row only.
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _columns(self, connection: sqlite3.Connection) -> tuple[str, ...]:
        tables = tuple(
            str(row[0])
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
                "AND name NOT LIKE 'sqlite_%'"
            )
        )
        if not tables:
            raise DataError(
                "E-DATA-EMPTY",
                f"a table {self._table!r} in {self._path.name}",
                "no table at all",
                "log some rows",
            )
        if self._table not in tables:
            raise DataError(
                "E-DATA-TABLE",
                f"a table {self._table!r} in {self._path.name}",
                ", ".join(repr(table) for table in tables[:20])[:300] or "none",
                did_you_mean(self._table, tables) or "correct the table's name",
            )
        described = connection.execute(f"PRAGMA table_xinfo({_quoted(self._table)})")
        return tuple(str(row[1]) for row in described)

    def _newest(
        self,
        connection: sqlite3.Connection,
        fields: Sequence[str],
        time: str | None,
        most_rows: int,
        account: Account,
    ) -> Iterator[RawRows]:
        order = self._order(connection, time)
        # Names are quoted and were found in the schema; SQL has no parameters for them.
        table = _quoted(self._table)
        query = f"SELECT {', '.join((order, *fields))} FROM {table}"  # noqa: S608 - as above
        found = connection.execute(
            f"SELECT {order} FROM {table} ORDER BY {order} DESC LIMIT 1 OFFSET ?",  # noqa: S608
            (most_rows - 1,),
        ).fetchone()
        cut = None if found is None else found[0]
        if order != _ROWID:
            yield from _at_one_go(connection, query, order, cut, rows_at_once(len(fields)))
            return
        ends = f"SELECT min(rowid), max(rowid) FROM {table}"  # noqa: S608 - as above
        oldest, newest = connection.execute(ends).fetchone()
        if cut is not None:
            account.skipped_bytes += (cut - oldest) * _BYTES_PER_FIELD * len(fields)
        first = oldest if cut is None else cut
        if first is not None:
            yield from _in_parts(connection, query, (first, newest), rows_at_once(len(fields)))

    def _order(self, connection: sqlite3.Connection, time: str | None) -> str:
        """Return what rows are ordered by: as they were inserted, or by time."""
        if self._has_rowid(connection):
            return _ROWID
        if time is not None:
            return _quoted(time)
        raise DataError(
            "E-DATA-TABLE",
            f"rowids or a time column in {self.name}",
            "neither, so that the rows have no order",
            "name the time column in [columns]",
        )

    def _has_rowid(self, connection: sqlite3.Connection) -> bool:
        kind = "SELECT type FROM sqlite_master WHERE name = ? AND type IN ('table', 'view')"
        # Older SQLite gives each row of a view the rowid NULL instead of an error.
        if connection.execute(kind, (self._table,)).fetchone() != ("table",):
            return False
        try:
            connection.execute(f"SELECT rowid FROM {_quoted(self._table)} LIMIT 0")  # noqa: S608
        except sqlite3.OperationalError:
            return False
        return True

    def _error(self, error: sqlite3.Error) -> DataError:
        code = _code_of(error)
        if code in _LOCKED:
            return DataError(
                "E-DATA-LOCKED",
                f"{self.name} unlocked within {_WAIT_S:g} s",
                "another program that holds it",
                "let the logger commit more often, or turn on its WAL mode",
            )
        if code in _DAMAGED:
            return DataError(
                "E-DATA-DAMAGED",
                f"a whole SQLite database at {self._path}",
                str(error),
                "the sqlite3 program's .recover saves what can be read",
            )
        return DataError("E-DATA-SQLITE", f"a readable {self.name}", str(error), "check the file")


def _at_one_go(
    connection: sqlite3.Connection, query: str, order: str, cut: object, at_once: int
) -> Iterator[RawRows]:
    """Yield rows from a value of the ordering column on; from the first where it is None."""
    where, parameters = ("", ()) if cut is None else (f"WHERE {order} >= ?", (cut,))
    rows = connection.execute(f"{query} {where} ORDER BY {order}", parameters)
    while found := rows.fetchmany(at_once):
        yield _raw(found, "", [])


def _in_parts(
    connection: sqlite3.Connection, query: str, rowids: tuple[int, int], at_once: int
) -> Iterator[RawRows]:
    """Yield rows from the first to the last rowid; the table is free between parts."""
    first, last = rowids
    part = f"{query} WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?"
    while True:
        found = connection.execute(part, (first, last, at_once)).fetchall()
        yield _raw(found, "row", [row[0] for row in found])
        if len(found) < at_once or found[-1][0] >= last:
            return
        first = found[-1][0] + 1


def _raw(found: list[tuple[Field, ...]], where: str, numbers: list[int]) -> RawRows:
    return RawRows(
        rows=[row[1:] for row in found],
        where=where,
        numbers=numbers,
        is_after_gap=[False] * len(found),
    )


def _code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 for errors of Python's module itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
