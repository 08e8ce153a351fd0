"""What the ends of past connections say: stable, unreachable, taken over, or one bad message."""

import logging

from edgefl.transport.base import LinkDown, LinkDownReason

_LOGGER = logging.getLogger(__name__)

STABLE_AFTER_S = 10.0
"""A link that lived this long was neither taken over nor killed by its first message."""
QUICK_LOSSES = 3
REMINDER_S = 10.0
OFTEN_UNTIL_S = 600.0
SELDOM_REMINDER_S = 600.0
"""A board that is away from its network for days should not wear its storage with one line."""
_MOST_TOLD = 16
"""A broker could find other words for ever."""


class LinkHistory:
    """Judges why a link went down from how the ones before it went.

    Args:
        started_at: Monotonic clock in seconds.
    """

    def __init__(self, *, started_at: float) -> None:
        """Start without a past."""
        self._down_since = started_at
        self._reminded_at: float | None = None
        self._quick_loss_count = 0
        self._told: set[tuple[LinkDownReason, str]] = set()
        self._down = LinkDown(reason=LinkDownReason.UNREACHABLE)
        self._silent_count = 0
        self._was_ever_ready = False
        self.was_stable = False
        self.is_news = True

    def record(
        self,
        down: LinkDown,
        *,
        ready_at: float | None,
        had_session: bool,
        now: float,
        blame_count: int,
    ) -> LinkDown:
        """Take one connection's end and return it with the reason that the past suggests.

        Args:
            down: What the connection itself could tell.
            ready_at: When it became usable, or None.
            had_session: Whether the broker knew this client when it connected. One that did not is
                a broker that was started anew, not one that serves another process with the id.
            now: Monotonic clock in seconds.
            blame_count: How many links in a row broke with the same message in flight first.
        """
        if ready_at is not None:
            self._down_since = now
            self._reminded_at = None
        was_lost = down.reason is LinkDownReason.LOST and ready_at is not None
        self.was_stable = ready_at is not None and now - ready_at >= STABLE_AFTER_S
        self._quick_loss_count = (
            self._quick_loss_count + 1 if was_lost and had_session and not self.was_stable else 0
        )
        down = self._judge_silence(down, is_ready=ready_at is not None)
        if was_lost and blame_count >= QUICK_LOSSES:
            detail = f"the broker closed the link {blame_count} times at the same message"
            down = LinkDown(reason=LinkDownReason.MESSAGE_REFUSED, detail=detail)
        elif self._quick_loss_count >= QUICK_LOSSES:
            detail = "closed soon after connecting, again and again: is this id used twice?"
            down = LinkDown(reason=LinkDownReason.TAKEN_OVER, detail=detail)
        self.is_news = self._is_news(down, is_ready=ready_at is not None)
        self._down = down
        return down

    def _is_news(self, down: LinkDown, *, is_ready: bool) -> bool:
        """Tell whether something is said for the first time since the link last stood.

        Several addresses fail in turn, each for a reason of its own, again and again. Of refusals
        the words count too: a broker that was busy before may say now that this device is out.
        """
        if is_ready:
            self._told.clear()
        words = down.detail if down.reason is LinkDownReason.REFUSED else ""
        is_new = (down.reason, words) not in self._told and len(self._told) < _MOST_TOLD
        if is_new:
            self._told.add((down.reason, words))
        return is_ready or is_new

    def _judge_silence(self, down: LinkDown, *, is_ready: bool) -> LinkDown:
        """Take what has never said anything, three times in a row, for no broker at all.

        One that has answered before is busy, or its cluster is choosing a leader.
        """
        self._was_ever_ready = self._was_ever_ready or is_ready
        is_silent = down.reason is LinkDownReason.SILENT
        self._silent_count = self._silent_count + 1 if is_silent else 0
        if self._silent_count < QUICK_LOSSES or self._was_ever_ready:
            return down
        return LinkDown(reason=LinkDownReason.NOT_MQTT, detail=down.detail)

    def remind(self, now: float, *, waiting_for: str) -> None:
        """Log what is waited for every 10 s without a link; after ten minutes more seldom.

        Args:
            now: Monotonic clock in seconds.
            waiting_for: The broker's address.
        """
        since = self._down_since if self._reminded_at is None else self._reminded_at
        waited_s = now - self._down_since
        pause_s = REMINDER_S if waited_s <= OFTEN_UNTIL_S else SELDOM_REMINDER_S
        if now - since >= pause_s:
            self._reminded_at = now
            _LOGGER.warning(
                "waiting for the MQTT broker at %s for %.0f s: %s (%s)",
                waiting_for,
                waited_s,
                self._down.reason.value,
                self._down.detail,
            )
