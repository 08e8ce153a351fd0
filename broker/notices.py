"""Says what is waited for, when a wait is long."""


class Notices:
    """When the next word about a long wait is due.

    Args:
        pause_s: How long a wait is before it is reported, and again.
    """

    def __init__(self, pause_s: float) -> None:
        """Start with nothing to wait for."""
        self._pause_s = pause_s
        self._next_s: float | None = None

    @property
    def wakeup_s(self) -> float | None:
        """When `take_due` is wanted."""
        return self._next_s

    def restart(self, now_s: float) -> None:
        """Something went on: the wait begins anew."""
        self._next_s = now_s + self._pause_s

    def stop(self) -> None:
        """Nothing is waited for."""
        self._next_s = None

    def take_due(self, now_s: float) -> bool:
        """Tell whether a word is due now; the next one is due a pause later."""
        is_due = self._next_s is not None and now_s >= self._next_s
        if is_due or self._next_s is None:
            self.restart(now_s)
        return is_due
