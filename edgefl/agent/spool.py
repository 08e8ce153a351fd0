"""Where a device keeps its masked vector until the round is over: a file, written once a round."""

import contextlib
import errno
import hashlib
import os
from pathlib import Path
from typing import Protocol

from edgefl.errors import StorageError
from edgefl.storage.base import KeyValueStore

_MAGIC = b"edgefl spool 1\n"
_HASH_BYTES = 32
_KEY = "vector"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Spool(Protocol):
    """Keeps one vector."""

    def put(self, content: bytes) -> None:
        """Keep a vector in the place of the one before it; durable when this returns.

        Raises:
            StorageError: It cannot be written; the one before it stands.
        """

    def get(self) -> bytes | None:
        """Return the vector; None where there is none, or it is damaged."""

    def clear(self) -> None:
        """Forget the vector."""


class FileSpool:
    """A spool beside the state file.

    A power cut in any write leaves the vector before it or the new one, never a part: it is written
    under another name, made durable, and renamed.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is opened before it is used."""
        self._path = path
        self._draft = path.with_name(f"{path.name}.new")

    def put(self, content: bytes) -> None:
        """Write once and rename."""
        try:
            with self._draft.open("wb") as file:
                file.write(_MAGIC + hashlib.sha256(content).digest())
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._draft.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._draft.unlink()
            raise StorageError(
                "E-DISK-FULL" if error.errno in _FULL else "E-STATE-UNWRITABLE",
                f"room to write {len(content)} bytes to {self._path}",
                error.strerror or type(error).__name__,
                "make room on the disk; this device misses the round",
            ) from error

    def get(self) -> bytes | None:
        """Read the file, and compare it with its hash."""
        try:
            whole = self._path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _HASH_BYTES
        named, content = whole[len(_MAGIC) : start], whole[start:]
        is_sound = whole.startswith(_MAGIC) and hashlib.sha256(content).digest() == named
        return content if is_sound else None

    def clear(self) -> None:
        """Remove the file; one that cannot be removed does no harm: the next vector replaces it."""
        for path in (self._path, self._draft):
            with contextlib.suppress(OSError):
                path.unlink()


class StoreSpool:
    """A spool in the key-value store, for simulated boards.

    Args:
        store: A namespace of its own.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Use the store."""
        self._store = store

    def put(self, content: bytes) -> None:
        """Keep the vector."""
        self._store.put(_KEY, content)

    def get(self) -> bytes | None:
        """Return the vector, or None."""
        return self._store.get(_KEY)

    def clear(self) -> None:
        """Forget the vector."""
        if self._store.get(_KEY) is not None:
            self._store.delete(_KEY)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
