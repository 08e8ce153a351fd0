"""Lists the recordings of a file or folder, oldest first, within a limit of bytes."""

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.data.csv_rows import unreadable
from edgefl.errors import DataError

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Files to read.

    Attributes:
        paths: Oldest first.
        skipped_bytes: Size of the older files beyond the limit.
        is_folder: Whether a folder was listed; a single file must be usable.
    """

    paths: tuple[Path, ...]
    skipped_bytes: int
    is_folder: bool


def list_recordings(path: Path, suffixes: Sequence[str], most_bytes: int) -> Listing:
    """Return the newest files of a folder, or the one file.

    Names are ordered as people count (log-9 before log-10), since a copy of a folder loses the
    times of change. Hidden files and other suffixes, such as `.part`, are passed over.

    Args:
        path: File or folder.
        suffixes: Of the files to take, in lower case.
        most_bytes: Files are taken from the newest on until this many bytes are reached.

    Raises:
        DataError: E-DATA-MISSING, E-DATA-UNREADABLE or E-DATA-EMPTY.
    """
    try:
        if not path.is_dir():
            require_regular(path)
            return Listing(paths=(path,), skipped_bytes=0, is_folder=False)
        found = [
            (one, one.stat().st_size)
            for one in path.iterdir()
            if one.suffix.lower() in suffixes and not one.name.startswith(".") and one.is_file()
        ]
    except OSError as error:
        raise unreadable(path, error) from error
    if not found:
        raise DataError(
            "E-DATA-EMPTY",
            f"files that end in {' or '.join(suffixes)} in {path}",
            "none",
            "collect data before joining a round",
        )
    found.sort(key=lambda entry: _as_counted(entry[0].name))
    taken = 0
    read_bytes = 0
    while taken < len(found) and read_bytes < most_bytes:
        taken += 1
        read_bytes += found[-taken][1]
    first = len(found) - taken
    return Listing(
        paths=tuple(one for one, _ in found[first:]),
        skipped_bytes=sum(size_bytes for _, size_bytes in found[:first]),
        is_folder=True,
    )


def require_regular(path: Path) -> None:
    """Refuse what is no file; reading a pipe would wait for its writer for ever.

    Raises:
        DataError: E-DATA-UNREADABLE.
        OSError: There is nothing, or no right to look.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(
            "E-DATA-UNREADABLE", f"a file or folder at {path}", "neither", "check the path"
        )


def _as_counted(name: str) -> list[tuple[int, str]]:
    pieces = _DIGITS.split(name)
    return [(int(piece), "") if piece.isdecimal() else (0, piece) for piece in pieces]


def has_any(folder: Path, suffixes: Sequence[str]) -> bool:
    """Tell whether a folder holds recordings with one of the suffixes.

    Raises:
        DataError: E-DATA-MISSING or E-DATA-UNREADABLE.
    """
    try:
        return any(
            one.suffix.lower() in suffixes and not one.name.startswith(".")
            for one in folder.iterdir()
        )
    except OSError as error:
        raise unreadable(folder, error) from error
