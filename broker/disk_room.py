"""How much room is left where a gateway's state lies, and how much its own files take."""

import shutil
import stat
from pathlib import Path

from broker.status import DiskFact
from edgefl.errors import StorageError


def disk_fact(state_dir: Path) -> DiskFact:
    """Look at the disk.

    Raises:
        StorageError: E-STATE-DIR: the folder cannot be looked at.
    """
    try:
        free_bytes = shutil.disk_usage(state_dir).free
        state_bytes = sum(_size_bytes(entry) for entry in state_dir.iterdir())
    except OSError as error:
        raise StorageError(
            "E-STATE-DIR", f"a gateway's folder at {state_dir}", error.strerror or "none"
        ) from error
    return DiskFact(free_bytes=free_bytes, state_bytes=state_bytes)


def _size_bytes(path: Path) -> int:
    """Return a file's size; 0 for a folder, and for a draft that was renamed meanwhile."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0
