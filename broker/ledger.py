"""The privacy ledger on disk: append-only JSON lines, durable before anything is unmasked."""

import fcntl
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from edgefl.errors import StorageError
from edgefl.privacy.ledger import Ledger, LedgerEntry, Release, verify

_LOGGER = logging.getLogger(__name__)

_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class TornLine:
    """An unfinished last line, left by a power cut, that was set aside.

    Its entry was never durable, so nothing was unmasked on its account.

    Attributes:
        path: File that now holds the bytes.
        size_bytes: Their number.
    """

    path: Path
    size_bytes: int


class LedgerFile:
    """One open ledger with an exclusive lock; use as a context manager.

    `append` returns only when the entry is on disk. After a failed write the object refuses further
    entries, since the kernel may have dropped what it could not write; open the file again.
    """

    def __init__(
        self, path: Path, descriptor: int, ledger: Ledger, torn_line: TornLine | None
    ) -> None:
        """Wrap an open, locked and verified file; use `create` or `open`."""
        self._path = path
        self._descriptor = descriptor
        self._ledger = ledger
        self._torn_line = torn_line
        self._is_usable = True

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make an empty ledger; the file and its directory entry are durable on return.

        Raises:
            StorageError: E-LEDGER-EXISTS or E-LEDGER-WRITE.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, _FILE_MODE)
        except FileExistsError as error:
            raise StorageError(
                "E-LEDGER-EXISTS", "no ledger yet", str(path), "open it instead"
            ) from error
        except OSError as error:
            raise _not_written(path, error) from error
        try:
            _lock(descriptor, path)
            os.fsync(descriptor)
            _sync_directory(path.parent)
        except OSError as error:
            os.close(descriptor)
            raise _not_written(path, error) from error
        except StorageError:
            os.close(descriptor)
            raise
        return cls(path, descriptor, Ledger(), None)

    @classmethod
    def open(cls, path: Path, witness: tuple[int, str] | None = None) -> Self:
        """Open, lock and verify an existing ledger; set a torn last line aside and say so.

        Args:
            path: The ledger file. A missing one is an error: the spent budget would be forgotten.
            witness: Length and head that this ledger had at an earlier time, kept elsewhere.

        Raises:
            StorageError: E-LEDGER-MISSING, E-LEDGER-LOCKED, E-LEDGER-DAMAGED,
                E-LEDGER-ROLLED-BACK or E-LEDGER-WRITE.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError as error:
            raise StorageError(
                "E-LEDGER-MISSING",
                "a privacy ledger",
                f"none at {path}",
                "restore it from a backup",
            ) from error
        except OSError as error:
            raise _not_written(path, error) from error
        try:
            _lock(descriptor, path)
            ledger, torn_line = _read(descriptor, path)
        except OSError as error:
            os.close(descriptor)
            raise _not_written(path, error) from error
        except StorageError:
            os.close(descriptor)
            raise
        if witness is not None and not ledger.extends(*witness):
            os.close(descriptor)
            raise StorageError(
                "E-LEDGER-ROLLED-BACK",
                f"a ledger that continues the known {witness[0]} entries",
                f"{len(ledger)} entries of another history in {path}",
                "restore the newest backup",
            )
        return cls(path, descriptor, ledger, torn_line)

    @property
    def ledger(self) -> Ledger:
        """The verified entries and their total. Add to it only through `append` of this file."""
        return self._ledger

    @property
    def torn_line(self) -> TornLine | None:
        """What was set aside on opening, if anything."""
        return self._torn_line

    def append(self, release: Release) -> LedgerEntry:
        """Write one entry and return when it is durable.

        Raises:
            StorageError: E-LEDGER-WRITE; the release must not go ahead.
            LocalProtocolError: E-LEDGER-DUPLICATE.
        """
        if not self._is_usable:
            raise StorageError(
                "E-LEDGER-WRITE",
                "an open ledger without a failed write",
                str(self._path),
                "restart the gateway",
            )
        entry = self._ledger.propose(release)
        try:
            _write_all(self._descriptor, entry.to_line().encode() + b"\n")
            os.fsync(self._descriptor)
        except OSError as error:
            self._is_usable = False
            raise _not_written(self._path, error) from error
        self._ledger.accept(entry)
        return entry

    def close(self) -> None:
        """Release the lock and the file; further calls do nothing."""
        self._is_usable = False
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        self.close()


def readable_lines(path: Path) -> list[str]:
    """Return the lines of a ledger file up to the first that is damaged or does not follow."""
    try:
        content = path.read_bytes()
    except OSError:
        return []
    ledger, lines = Ledger(), []
    for raw in content[: content.rfind(b"\n") + 1].split(b"\n")[:-1]:
        try:
            line = raw.decode("ascii")
            ledger.accept(LedgerEntry.from_line(line))
        except (StorageError, UnicodeDecodeError):
            break
        lines.append(line)
    return lines


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            "E-LEDGER-LOCKED",
            "one gateway per ledger",
            f"another process holds {path}",
            "stop the other gateway",
        ) from error


def _read(descriptor: int, path: Path) -> tuple[Ledger, TornLine | None]:
    """Verify all complete lines first: a damaged file is left exactly as it was found."""
    content = _read_all(descriptor)
    complete_bytes = content.rfind(b"\n") + 1
    try:
        lines = content[:complete_bytes].decode("ascii").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise StorageError(
            "E-LEDGER-DAMAGED", "ASCII lines", f"other bytes in {path}", "restore a backup"
        ) from error
    ledger = verify(lines)
    torn = content[complete_bytes:]
    if not torn:
        return ledger, None
    return ledger, _set_aside(descriptor, path, torn, complete_bytes, len(ledger))


def _set_aside(
    descriptor: int, path: Path, torn: bytes, complete_bytes: int, sequence: int
) -> TornLine:
    """Keep the bytes in a file of their own, durable, before they leave the ledger."""
    aside = path.with_name(f"{path.name}.torn-{sequence}")
    copy = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    try:
        _write_all(copy, torn)
        os.fsync(copy)
    finally:
        os.close(copy)
    _sync_directory(path.parent)
    os.ftruncate(descriptor, complete_bytes)
    os.fsync(descriptor)
    _LOGGER.warning(
        "ledger=%s unfinished last line of %d bytes set aside in %s; its entry was not durable, "
        "so nothing was unmasked for it",
        path,
        len(torn),
        aside,
    )
    return TornLine(path=aside, size_bytes=len(torn))


def _read_all(descriptor: int) -> bytes:
    size_bytes = os.fstat(descriptor).st_size
    pieces = []
    offset = 0
    while offset < size_bytes:
        piece = os.pread(descriptor, size_bytes - offset, offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def _write_all(descriptor: int, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_written(path: Path, error: OSError) -> StorageError:
    return StorageError(
        "E-LEDGER-WRITE",
        f"a writable privacy ledger at {path}",
        error.strerror or "an input or output error",
        "free space or repair the disk; nothing was released",
    )
