"""When a wait is spoken of again: soon at first, so that it is seen, and less often as it lasts."""

from typing import Final

_FIRST_S: Final = 10.0
_PATIENT_AFTER_S: Final = 60.0
_LATER_S: Final = 60.0


class Reminder:
    """Says when the next line about one wait is due: every 10 s, after a minute every minute.

    Args:
        started_s: When the wait began.
    """

    def __init__(self, started_s: float) -> None:
        """Begin to wait."""
        self._started_s = started_s
        self._next_s = started_s + _FIRST_S

    def is_due(self, now_s: float) -> bool:
        """Tell whether a line is due; it counts as said then."""
        if now_s < self._next_s:
            return False
        is_patient = now_s - self._started_s >= _PATIENT_AFTER_S
        self._next_s = now_s + (_LATER_S if is_patient else _FIRST_S)
        return True
