"""One SQLite state file: made whole or not at all, locked, and checked when opened."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefl.errors import StorageError

APPLICATION_ID = 0x65666C31
"""`efl1`, in SQLite's header: tells our files from others."""
FORMAT_VERSION = 1
PAGE_BYTES = 4096

_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_FULL_HINT = "make room on the disk; nothing that was stored before is lost"
_RESET_HINT = "restore the file from a copy, or set it aside and begin anew with --reset-state"


class StateFile:
    """An open state file, owned by this process until `close` or its death.

    Args:
        path: The file.
        page_bytes: Of a new file.

    Raises:
        StorageError: it is locked, damaged, of a newer format, or cannot be made.
    """

    def __init__(self, path: Path, *, page_bytes: int = PAGE_BYTES) -> None:
        """Open or make the file, take the lock and check the whole."""
        self.path = path
        self._lock = threading.RLock()
        self._is_open = True
        self._database = _open_existing_or_new(path, page_bytes)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for one transaction: committed and on disk, or undone.

        Raises:
            StorageError: it could not be written; the earlier state stands.
        """
        with self._lock:
            self._require_open()
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database
                self._database.execute("COMMIT")
            except sqlite3.Error as error:
                self._undo()
                raise write_problem(self.path, error) from error
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for reading.

        Raises:
            StorageError: the file is damaged or closed.
        """
        with self._lock:
            self._require_open()
            try:
                yield self._database
            except sqlite3.Error as error:
                raise write_problem(self.path, error) from error

    def tables(self) -> list[str]:
        """Return the names of the namespaces in the file."""
        statement = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'ns\\_%'"
        with self.reading() as database:
            rows = database.execute(f"{statement} ESCAPE '\\' ORDER BY name").fetchall()
        return [str(row[0]).removeprefix("ns_") for row in rows]

    def cut_log(self) -> None:
        """Move the log into the file and cut it, so that deleted values are gone from both.

        A failure loses nothing: the log is read again, and the next call tries again.
        """
        with self._lock, suppress(sqlite3.Error):
            self._require_open()
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Move the log into the file and release the lock; a second call does nothing."""
        with self._lock:
            if self._is_open:
                self.cut_log()
                self._is_open = False
                self._database.close()

    def _undo(self) -> None:
        """Roll back; SQLite may have done so itself."""
        with suppress(sqlite3.Error):
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")

    def _require_open(self) -> None:
        if not self._is_open:
            raise StorageError("E-STATE-CLOSED", "an open state file", f"{self.path} closed")


def set_aside(path: Path) -> Path:
    """Move a state file and its log out of the way, for an operator who wants a new beginning.

    Returns:
        Where the file is now: `NAME.damaged-N`, N being the first free number.

    Raises:
        StorageError: it cannot be moved.
    """
    number = 1
    while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        log = _log_of(path)
        if log.exists():
            log.rename(_log_of(target))
        if path.exists():
            path.rename(target)
    except OSError as error:
        raise _unwritable(path, error) from error
    return target


def damaged(path: Path, found: str) -> StorageError:
    """Return the error for a file whose content cannot be trusted."""
    return StorageError("E-STATE-DAMAGED", f"an intact state file {path}", found, _RESET_HINT)


def write_problem(path: Path, error: sqlite3.Error) -> StorageError:
    """Translate SQLite's error into ours."""
    extended_code = getattr(error, "sqlite_errorcode", 0)
    code = extended_code & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageError("E-DISK-FULL", f"room to write {path}", "a full disk", _FULL_HINT)
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StorageError(
            "E-STATE-LOCKED",
            f"{path} for this process alone",
            "another process that has it open",
            "stop that process, or give this one a state folder of its own",
        )
    if code in _DAMAGE_CODES:
        return damaged(path, str(error))
    if extended_code == sqlite3.SQLITE_IOERR_WRITE:  # SQLite says "full" for ENOSPC alone
        found = "a refused write: no room, over the quota, or a failing disk"
        return StorageError("E-DISK-FULL", f"room to write {path}", found, _FULL_HINT)
    return StorageError(
        "E-STATE-IO", f"{path} to be readable and writable", str(error), "check the disk"
    )


def _open_existing_or_new(path: Path, page_bytes: int) -> sqlite3.Connection:
    """Return a checked, locked connection."""
    try:
        if not path.exists():
            _require_no_orphan_log(path)
            _make_new(path, page_bytes)
        elif path.stat().st_size == 0:
            # SQLite would take it for a new file, and everything spent would be forgotten
            raise damaged(path, "an empty file")
        _require_writable(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        database = _connect(path)
    except sqlite3.Error as error:
        raise write_problem(path, error) from error
    try:
        _check(path, database)
    except sqlite3.Error as error:
        database.close()
        raise write_problem(path, error) from error
    except BaseException:
        database.close()
        raise
    return database


def _make_new(path: Path, page_bytes: int) -> None:
    """Make the file under another name and link it in place, so that no half-made one is met."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR))
    try:
        database = _connect(draft, page_bytes)
        try:
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        finally:
            database.close()
        with suppress(FileExistsError):  # another process was faster; its file is as good
            os.link(draft, path)
    except sqlite3.Error as error:
        raise write_problem(path, error) from error
    finally:
        for leftover in (draft, _log_of(draft)):
            leftover.unlink(missing_ok=True)
    _flush_folder(path.parent)


def _connect(path: Path, page_bytes: int = PAGE_BYTES) -> sqlite3.Connection:
    """Open for this process alone, with the settings that durability and secrecy need."""
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        database.execute(f"PRAGMA page_size = {page_bytes}")  # of no effect on a file with content
        # before WAL, so that no shared-memory file is made and the lock is kept until close
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA secure_delete = ON")
        # Every commit goes on into the file itself: the log beside it is then never the only
        # place of an acknowledged change, and its loss takes nothing back.
        database.execute("PRAGMA wal_autocheckpoint = 1")
        database.execute("BEGIN IMMEDIATE")
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


def _check(path: Path, database: sqlite3.Connection) -> None:
    """Check the marker, the format and the structure of the whole file."""
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        raise damaged(path, "a database that is not one of edgefl's")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != FORMAT_VERSION:
        raise StorageError(
            "E-STATE-VERSION",
            f"state format {FORMAT_VERSION} in {path}",
            f"format {version}",
            "use the version of edgefl that wrote it",
        )
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise damaged(path, str(verdict).splitlines()[-1][:120])


def _require_writable(path: Path) -> None:
    """Refuse what SQLite would report as a failing disk: its log is a file beside this one."""
    for each in (path, path.parent):
        if not os.access(each, os.W_OK):
            raise _unwritable(path, PermissionError(0, f"no way to write {each}, or read-only"))


def _require_no_orphan_log(path: Path) -> None:
    """Refuse to begin anew beside the log of a file that has vanished."""
    log = _log_of(path)
    if log.exists() and log.stat().st_size > 0:
        raise damaged(path, "its log without the file itself")


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _flush_folder(folder: Path) -> None:
    """Make the new name survive power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        "E-STATE-UNWRITABLE",
        f"a state file {path} that this user can read and write",
        error.strerror or type(error).__name__,
        "check the folder's owner and free space",
    )
