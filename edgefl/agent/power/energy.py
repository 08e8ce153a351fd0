"""How much of the battery a round takes, learned from the rounds before.

Rule: the charge at check-in minus the charge at the round's end, while the battery drained all the
time. The estimate is the newest such cost or four fifths of the estimate before, whichever is
more: one expensive round is remembered for about ten cheap ones. A gauge of whole percents makes
it coarse, which the factor of two in `eligibility` covers.
"""

import math

from edgefl.agent.power.readings import Readings
from edgefl.storage.base import KeyValueStore

FIRST_GUESS_PERCENT = 2.0
_FADING = 0.8
_WORTH_WRITING = 0.25
_KEY = "round-percent"


class EnergyBook:
    """The estimate, which outlives a restart.

    Args:
        store: A durable namespace of its own; written only when the estimate changes by a quarter.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Read the estimate; one that cannot be read is begun anew."""
        self._store = store
        self._round_percent = self._written = _parse(store.get(_KEY))
        self._began_at: float | None = None

    @property
    def round_percent(self) -> float:
        """Charge that the next round is expected to take."""
        return self._round_percent

    def begin(self, readings: Readings) -> None:
        """Note the charge at check-in."""
        self._began_at = _draining_level(readings)

    def end(self, readings: Readings) -> None:
        """Learn from a round that has ended, if the battery drained at both ends."""
        began, ended = self._began_at, _draining_level(readings)
        self._began_at = None
        if began is None or ended is None or ended > began:
            return
        self._round_percent = max(began - ended, _FADING * self._round_percent)
        if abs(self._round_percent - self._written) > _WORTH_WRITING * self._written:
            self._written = self._round_percent
            self._store.put(_KEY, f"{self._round_percent:.3f}".encode())


def _draining_level(readings: Readings) -> float | None:
    return None if readings.supply.is_lasting else readings.level_percent


def _parse(stored: bytes | None) -> float:
    try:
        value = float(stored or b"")
    except ValueError:
        return FIRST_GUESS_PERCENT
    return value if math.isfinite(value) and 0 < value <= 100 else FIRST_GUESS_PERCENT
