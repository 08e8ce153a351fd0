"""How long to wait before the next attempt: exponential, capped, with full jitter."""

from collections.abc import Callable

from edgefl.errors import ConfigError


class Backoff:
    """Delays that double from a first value to a cap, each scaled by a random factor in [0.5, 1).

    The factor keeps a fleet that lost its broker from coming back in one instant.

    Args:
        first_s: Upper end of the first delay.
        cap_s: Upper end of every delay.
        draw: Returns a float in [0, 1); need not be secret.

    Raises:
        ConfigError: not 0 < first_s <= cap_s.
    """

    def __init__(self, *, first_s: float, cap_s: float, draw: Callable[[], float]) -> None:
        """Start at the first delay."""
        if not 0 < first_s <= cap_s < float("inf"):
            raise ConfigError("E-BACKOFF", "0 < first <= cap", f"first {first_s}, cap {cap_s}")
        self._first_s = first_s
        self._cap_s = cap_s
        self._draw = draw
        self._next_s = first_s

    def next_delay_s(self) -> float:
        """Return the next delay in seconds and move on."""
        upper_s = self._next_s
        self._next_s = min(2 * upper_s, self._cap_s)
        return upper_s * (0.5 + 0.5 * self._draw())

    def reset(self) -> None:
        """Begin again at the first delay."""
        self._next_s = self._first_s
