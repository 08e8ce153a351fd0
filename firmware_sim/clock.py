"""Virtual time: callbacks in order of their time, then of their making."""

import heapq
from collections.abc import Callable

from edgefl.errors import LocalProtocolError

_MOST_AT_ONE_TIME = 100_000
"""Callbacks at one time: more means that two of them call each other for ever."""


class VirtualClock:
    """A clock that jumps from one event to the next."""

    def __init__(self) -> None:
        """Start at zero."""
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self._still = 0

    def call_at(self, at_s: float, callback: Callable[[], None]) -> None:
        """Run `callback` at a time, or now if that is past."""
        self._made += 1
        heapq.heappush(self._queue, (max(at_s, self.now_s), self._made, callback))

    def call_after(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Run `callback` after a delay."""
        self.call_at(self.now_s + delay_s, callback)

    def run_next(self) -> bool:
        """Run the next callback; return False if there is none.

        Raises:
            LocalProtocolError: E-SIM-STUCK.
        """
        if not self._queue:
            return False
        due_s, _, callback = heapq.heappop(self._queue)
        self._still = self._still + 1 if due_s == self.now_s else 0
        if self._still > _MOST_AT_ONE_TIME:
            raise LocalProtocolError(
                "E-SIM-STUCK", "virtual time that goes on", f"no progress after {due_s:.3f} s"
            )
        self.now_s = due_s
        callback()
        return True

    @property
    def next_s(self) -> float | None:
        """When the next callback is due."""
        return self._queue[0][0] if self._queue else None
