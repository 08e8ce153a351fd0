"""How long to wait before the next attempt: exponential, capped, with jitter; in the end seldom."""

from collections.abc import Callable

from edgefl.errors import ConfigError


class Backoff:
    """Delays that double from a first value to a cap, each scaled by a random factor in [0.5, 1).

    The factor keeps a fleet that lost its broker from coming back in one instant. After a while of
    waiting the cap is a higher one: a board whose network is gone for days spares its battery.

    Args:
        first_s: Upper end of the first delay.
        cap_s: Upper end of every delay.
        draw: Returns a float in [0, 1); need not be secret.
        later_cap_s: Upper end of the delays after `later_after_s`; None: none is longer.
        later_after_s: Sum of delays before that.

    Raises:
        ConfigError: not 0 < first_s <= cap_s <= later_cap_s.
    """

    def __init__(
        self,
        *,
        first_s: float,
        cap_s: float,
        draw: Callable[[], float],
        later_cap_s: float | None = None,
        later_after_s: float = 600.0,
    ) -> None:
        """Start at the first delay."""
        last_s = cap_s if later_cap_s is None else later_cap_s
        if not 0 < first_s <= cap_s <= last_s < float("inf"):
            raise ConfigError(
                "E-BACKOFF", "0 < first <= cap", f"first {first_s}, cap {cap_s}, later {last_s}"
            )
        self._first_s = first_s
        self._cap_s = cap_s
        self._later_cap_s = last_s
        self._later_after_s = later_after_s
        self._draw = draw
        self._next_s = first_s
        self._waited_s = 0.0

    def next_delay_s(self) -> float:
        """Return the next delay in seconds and move on."""
        upper_s = self._next_s
        delay_s = upper_s * (0.5 + 0.5 * self._draw())
        self._waited_s += delay_s
        is_late = self._waited_s >= self._later_after_s
        self._next_s = min(2 * upper_s, self._later_cap_s if is_late else self._cap_s)
        return delay_s

    def reset(self) -> None:
        """Begin again at the first delay."""
        self._next_s = self._first_s
        self._waited_s = 0.0
