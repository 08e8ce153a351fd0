"""Counts what a pass over a source leaves out, and where it was first seen."""

from collections import Counter

from edgefl.data.reading import LeftOut
from edgefl.data.settings import BadRows
from edgefl.errors import DataError

_MOST_NAMES = 64
_LONGEST_NAME = 40
_DEFECTS = (
    LeftOut.GARBLED,
    LeftOut.WIDTH,
    LeftOut.NOT_A_NUMBER,
    LeftOut.MISSING_VALUE,
    LeftOut.BAD_TIME,
    LeftOut.UNKNOWN_LABEL,
    LeftOut.BAD_EXAMPLE,
    LeftOut.BAD_FILE,
)


class Account:
    """Counters of one pass; all start at zero."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self.rows = 0
        self.files = 0
        self.clock_steps = 0
        self.skipped_bytes = 0
        self.left_out: Counter[LeftOut] = Counter()
        self.first_places: dict[LeftOut, str] = {}
        self.faulty_values: Counter[str] = Counter()
        self.unknown_labels: Counter[str] = Counter()
        self.notes: list[str] = []

    def leave_out(self, reason: LeftOut, place: str = "", count: int = 1) -> None:
        """Count something that becomes no example.

        Args:
            reason: Why.
            place: File and line, to be shown for the first one.
            count: How many.
        """
        self.left_out[reason] += count
        if place:
            self.first_places.setdefault(reason, place)

    def meet_unknown_label(self, name: str) -> None:
        """Count a label outside the list; only the first few names are kept."""
        shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
        if shown in self.unknown_labels or len(self.unknown_labels) < _MOST_NAMES:
            self.unknown_labels[shown] += 1

    def note(self, text: str) -> None:
        """Keep a remark for a person, once."""
        if text not in self.notes:
            self.notes.append(text)

    def require_sound(self, bad_rows: BadRows, name: str) -> None:
        """Refuse what the user wants refused.

        Args:
            bad_rows: The user's choice.
            name: How the source is called in messages.

        Raises:
            DataError: E-DATA-ROWS, with the first kind of defect and its place.
        """
        if bad_rows is BadRows.DROP:
            return
        for reason in _DEFECTS:
            count = self.left_out[reason]
            if count:
                place = self.first_places.get(reason)
                first = f" (first: {place})" if place else ""
                raise DataError(
                    "E-DATA-ROWS",
                    f"only usable rows in {name}",
                    f"{reason.value}: {count}{first}",
                    "repair them, or set bad_rows = 'drop' to leave them out",
                )
