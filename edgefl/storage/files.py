"""Replaces a file as a whole: a power cut leaves the old content or the new, never a part."""

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the file, make that durable, and rename.

    Raises:
        OSError: The disk is full or not writable; the old content stands.
    """
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
