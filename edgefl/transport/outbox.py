"""The bounded queue of messages for the broker, shared by event loop and network thread."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgefl.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """A message on its way out.

    Attributes:
        topic: Topic to publish on.
        payload: The bytes.
        retain: Whether the broker shall keep it.
        expires_at_s: Monotonic clock from which on nobody needs it; None: never.
        loss_count: How often the broker closed the link while this was the oldest unacknowledged
            message.
    """

    topic: str
    payload: bytes = field(repr=False)
    retain: bool
    expires_at_s: float | None = None
    loss_count: int = 0

    def remaining_s(self, now_s: float) -> float | None:
        """Return for how long it is still of use; None: for ever."""
        return None if self.expires_at_s is None else max(0.0, self.expires_at_s - now_s)


class Outbox:
    """First in, first out; when full the oldest goes, and is counted.

    Args:
        max_messages: Bound on their number.
        max_bytes: Bound on the sum of payload sizes; one larger message still fits into an empty
            outbox.

    Raises:
        ConfigError: a bound is below one.
    """

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        """Start empty."""
        if max_messages < 1 or max_bytes < 1:
            found = f"{max_messages} messages, {max_bytes} bytes"
            raise ConfigError("E-OUTBOX", "outbox bounds of at least 1", found)
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[Outgoing] = deque()
        self._size_bytes = 0
        self._dropped_count = 0
        self._taken_count = 0
        self.refused_count = 0
        self.expired_count = 0

    @property
    def dropped_count(self) -> int:
        """How many messages were dropped for lack of room."""
        return self._dropped_count

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing waits and everything taken has been settled."""
        with self._lock:
            return not self._waiting and self._taken_count == 0

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._waiting)

    @property
    def next_bytes(self) -> int:
        """Size of the payload that `take` would return; 0 where nothing waits."""
        with self._lock:
            return len(self._waiting[0].payload) if self._waiting else 0

    def has_room(self, payload_bytes: int) -> bool:
        """Tell whether a message fits without dropping another."""
        with self._lock:
            return not self._waiting or (
                len(self._waiting) < self._max_messages
                and self._size_bytes + payload_bytes <= self._max_bytes
            )

    def put(self, message: Outgoing) -> int:
        """Append a message.

        Returns:
            How many older ones had to go.
        """
        with self._lock:
            self._waiting.append(message)
            self._size_bytes += len(message.payload)
            return self._trim()

    def take(self, now_s: float | None = None) -> Outgoing | None:
        """Remove and return the oldest, or None; `settle` or `give_back` must follow.

        Args:
            now_s: Monotonic clock; what has expired by then is dropped and counted.
        """
        with self._lock:
            while self._waiting:
                message = self._waiting.popleft()
                self._size_bytes -= len(message.payload)
                if now_s is not None and message.remaining_s(now_s) == 0.0:
                    self.expired_count += 1
                    continue
                self._taken_count += 1
                return message
            return None

    def count_refused(self) -> None:
        """Note that the broker will never take a message that was taken out."""
        with self._lock:
            self.refused_count += 1

    def settle(self) -> None:
        """Note that one message that was taken needs no more care."""
        with self._lock:
            self._taken_count -= 1

    def give_back(self, messages: Sequence[Outgoing]) -> int:
        """Put messages that were taken, but not acknowledged, back in front in their order.

        Returns:
            How many of the oldest had to go.
        """
        with self._lock:
            self._waiting.extendleft(reversed(messages))
            self._taken_count -= len(messages)
            self._size_bytes += sum(len(message.payload) for message in messages)
            return self._trim()

    def _trim(self) -> int:
        """Drop from the old end until the bounds hold; the newest always stays."""
        before = self._dropped_count
        while len(self._waiting) > 1 and (
            len(self._waiting) > self._max_messages or self._size_bytes > self._max_bytes
        ):
            self._size_bytes -= len(self._waiting.popleft().payload)
            self._dropped_count += 1
        return self._dropped_count - before
