"""Words and tables for terminals: how old, how long, how many."""

from collections.abc import Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB")


def show_span(seconds: float | None) -> str:
    """Return a duration for people; a dash for none."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def show_bytes(size_bytes: float) -> str:
    """Return a size for people, in powers of 1000."""
    unit = 0
    while size_bytes >= 1000 and unit < len(_UNITS) - 1:
        size_bytes /= 1000
        unit += 1
    return f"{size_bytes:.0f} B" if unit == 0 else f"{size_bytes:.3g} {_UNITS[unit]}"


def show_number(value: object, digits: int = 4) -> str:
    """Return a number in so many significant digits; a dash for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.{digits}g}" if is_number else "-"


def show_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return columns that are as wide as they must be; the last one is not padded."""
    lines = [list(names), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(names))]
    return "".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def printable(text: str) -> str:
    """Return a peer's text without what could steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
