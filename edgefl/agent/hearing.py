"""Finds out that a link which stands brings nothing any more, so that another one is made.

A broker may answer every ping and yet deliver nothing: it lost a subscription, or a node of its
cluster. Whoever waits for an answer and hears nothing for minutes connects anew; if that does not
help, more and more seldom, for the gateway itself may be away.
"""

from collections.abc import Callable

from edgefl.transport.backoff import Backoff

_FIRST_S, _CAP_S = 240.0, 3600.0
_NEW_FIRST_S, _NEW_CAP_S = 20.0, 600.0


class Hearing:
    """Judges by what this device waits for and what comes; asked whenever something happens.

    Args:
        patience: Gives the time after which a link counts as deaf, longer from one to the next.
    """

    def __init__(self, patience: Backoff) -> None:
        """Wait for nothing yet."""
        self._backoff = patience
        self._patience_s = patience.next_delay_s()
        self._silent_since_s: float | None = None

    def heard(self) -> None:
        """Note that something for this device has come."""
        self._silent_since_s = None

    def is_deaf(self, now_s: float, *, is_linked: bool, awaits_answer: bool) -> bool:
        """Tell whether the link is to be made anew; once for each time of patience.

        Args:
            now_s: Of a clock that never goes back.
            is_linked: Whether the link stands.
            awaits_answer: Whether this device sent something that is not answered.
        """
        if not awaits_answer:
            self._backoff.reset()
            self._patience_s = self._backoff.next_delay_s()
        if not (is_linked and awaits_answer):
            self._silent_since_s = None
            return False
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        if now_s - self._silent_since_s < self._patience_s:
            return False
        self._patience_s = self._backoff.next_delay_s()
        self._silent_since_s = None
        return True


def new_hearing(draw: Callable[[], float]) -> Hearing:
    """Return one with the usual patience: 2 to 4 minutes at first, an hour at most.

    Args:
        draw: Returns a float in [0, 1), so that a fleet does not come back in one instant.
    """
    return Hearing(Backoff(first_s=_FIRST_S, cap_s=_CAP_S, draw=draw))


def first_hearing(draw: Callable[[], float]) -> Hearing:
    """Return one for a device that has not heard of its gateway yet: 10 to 20 s at first.

    A node of a cluster that has just started may lose a subscription, and with it the retained
    status of the gateway, for which a device asks no more. It says nothing before it has that.

    Args:
        draw: Returns a float in [0, 1).
    """
    return Hearing(Backoff(first_s=_NEW_FIRST_S, cap_s=_NEW_CAP_S, draw=draw))
