"""Reads files that a user named, and replaces files as a whole."""

import contextlib
import errno
import os
import stat
from pathlib import Path

from edgefl.errors import ConfigError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device of the system",
    stat.S_IFBLK: "a device of the system",
}


def read_file(path: Path, most_bytes: int) -> bytes:
    """Read a whole file; never wait for a pipe's writer, never read without end.

    Args:
        path: The file.
        most_bytes: Its largest size.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger. `strerror` says which.
    """
    # Opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        kind = _other_kind(os.fstat(descriptor).st_mode)
        if kind is not None:
            raise OSError(errno.EINVAL, f"{kind}, not a file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"more than {most_bytes} bytes", str(path))
    return content


def require_file(path: Path) -> None:
    """Refuse what is there and no regular file, before something opens it that would wait.

    What is not there is left to whoever opens it, and knows what it should be.

    Raises:
        ConfigError: E-FILE-KIND.
    """
    try:
        kind = _other_kind(path.stat().st_mode)
    except (OSError, ValueError):  # ValueError: a zero byte in the path
        return
    if kind is not None:
        raise ConfigError("E-FILE-KIND", f"a file at {path}", kind, "check the path")


def _other_kind(mode: int) -> str | None:
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "something else")


def require_replaceable(path: Path) -> None:
    """Refuse to put a file in the place of a folder or a device, such as /dev/null.

    Raises:
        OSError: There is something else than a file.
    """
    try:
        kind = _other_kind(path.stat().st_mode)
    except FileNotFoundError:
        return
    if kind is not None:
        raise FileExistsError(errno.EEXIST, f"{kind} is there", str(path))


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write beside the file, make that durable, and rename.

    A power cut leaves the old content or the new, never a part.

    Args:
        path: The file.
        content: What it shall hold.
        mode: Who may do what with it, from its first moment on; the process's umask takes off.

    Raises:
        OSError: The disk is full or not writable; the old content stands.
    """
    require_replaceable(path)
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
