"""Which devices sleep, kept over a restart: for they say nothing until they wake.

Nothing but waiting depends on it, so it is written once a minute at most, and what falls into the
minute before a crash is lost: such a device counts as offline until it wakes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from edgefl.errors import WireError
from edgefl.protocol.limits import MAX_POPULATION
from edgefl.protocol.presence import MOST_SLEEP_S
from edgefl.protocol.wire import WireValue, as_int, as_list, as_text, decode, encode
from edgefl.storage.base import KeyValueStore

PAUSE_S: Final = 60.0
_KEY: Final = "sleepers"
_MAX_TIME_S: Final = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """One device's sleep.

    Attributes:
        wakes_at_s: In seconds since 1970.
        is_counted_on: It is back in time for a call that is made meanwhile.
    """

    wakes_at_s: int
    is_counted_on: bool


class SleepLog:
    """The sleeps that are not over, in memory and, a little later, on disk.

    Args:
        store: A durable namespace of its own.
        wall_clock_s: Seconds since 1970.
    """

    def __init__(self, store: KeyValueStore, wall_clock_s: Callable[[], float]) -> None:
        """Read what the life before has left."""
        self._store = store
        self._wall_clock_s = wall_clock_s
        self._sleeps = _read(store.get(_KEY))
        self._is_changed = False
        self._due_s = float("-inf")

    def left(self) -> dict[str, tuple[int, bool]]:
        """Return, by device, for how many seconds it sleeps on, and whether it is counted on.

        Whoever has woken meanwhile, or by a clock that was set anew sleeps for longer than anybody
        may, is left out.
        """
        now_s = self._wall_clock_s()
        rests = {name: int(one.wakes_at_s - now_s) for name, one in self._sleeps.items()}
        self._sleeps = {
            name: one for name, one in self._sleeps.items() if 1 <= rests[name] <= MOST_SLEEP_S
        }
        return {name: (rests[name], one.is_counted_on) for name, one in self._sleeps.items()}

    def note(self, device: str, wakes_in_s: int, *, is_counted_on: bool) -> None:
        """Note that a known device has fallen asleep."""
        wakes_at_s = int(self._wall_clock_s()) + wakes_in_s
        self._sleeps[device] = Sleep(wakes_at_s=wakes_at_s, is_counted_on=is_counted_on)
        self._is_changed = True

    def wake(self, device: str) -> None:
        """Note that a device is there again."""
        self._is_changed |= self._sleeps.pop(device, None) is not None

    @property
    def wakeup_s(self) -> float | None:
        """When `keep` is wanted."""
        return self._due_s if self._is_changed else None

    def keep(self, now_s: float) -> None:
        """Store the sleeps where they changed and the last time is long enough ago."""
        if not self._is_changed or now_s < self._due_s:
            return
        self._is_changed, self._due_s = False, now_s + PAUSE_S
        rows: list[WireValue] = [
            [name, one.wakes_at_s, int(one.is_counted_on)]
            for name, one in sorted(self._sleeps.items())
        ]
        self._store.put(_KEY, encode(rows))


def _read(content: bytes | None) -> dict[str, Sleep]:
    if content is None:
        return {}
    try:
        rows = [as_list(row, 3) for row in as_list(decode(content), MAX_POPULATION)]
        return {
            as_text(row[0], 64): Sleep(
                wakes_at_s=as_int(row[1], 0, _MAX_TIME_S), is_counted_on=as_int(row[2], 0, 1) == 1
            )
            for row in rows
            if len(row) == 3
        }
    except WireError:
        return {}  # No state that anything but waiting depends on.
