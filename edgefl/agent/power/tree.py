"""Reads the small files by which a kernel tells about a board; garbage in them is `None`."""

import math
from pathlib import Path

from edgefl.storage.files import read_file

_MOST_BYTES = 16_384
_MOST_ENTRIES = 256


class Tree:
    """Files below a root; tests make one of their own.

    Args:
        root: `/` on a board.
    """

    def __init__(self, root: Path) -> None:
        """Remember the root; nothing is read yet."""
        self._root = root

    def folders(self, path: str, prefix: str = "") -> list[str]:
        """Return the paths of the entries of a folder that begin with a prefix, sorted."""
        try:
            names = sorted(entry.name for entry in (self._root / path).iterdir())
        except OSError:
            return []
        return [f"{path}/{name}" for name in names if name.startswith(prefix)][:_MOST_ENTRIES]

    def exists(self, path: str) -> bool:
        """Tell whether something is there."""
        try:
            return (self._root / path).exists()
        except OSError:
            return False

    def text(self, path: str) -> str | None:
        """Return a file's text without blanks at its ends; None if it has none."""
        try:
            content = read_file(self._root / path, _MOST_BYTES)
        except OSError:
            return None
        return content.decode(errors="replace").strip() or None

    def number(self, path: str, low: float, high: float) -> float | None:
        """Return a file's number; None if it holds no finite number from low to high."""
        return number_in(self.text(path), low, high)


def number_in(text: str | None, low: float, high: float) -> float | None:
    """Return the number that a text is; None if it is no finite number from low to high."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and low <= value <= high else None
