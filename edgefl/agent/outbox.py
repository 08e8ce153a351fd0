"""Messages that are sent again until they are answered, whatever a broker acknowledged."""

import hashlib
from dataclasses import dataclass

from edgefl.transport.core_events import Publish

_FIRST_RESEND_S = 2.0
_LONGEST_RESEND_S = 30.0


@dataclass(slots=True, kw_only=True)
class _Waiting:
    publish: Publish
    digest: bytes
    resend_at_s: float
    interval_s: float
    repetitions: int = 0


class Outbox:
    """One waiting message per slot; a newer one takes the place of the older."""

    def __init__(self) -> None:
        """Start empty."""
        self._waiting: dict[str, _Waiting] = {}

    def put(self, slot: str, publish: Publish, now_s: float) -> Publish:
        """Keep a message for sending it again, and return it for sending it now."""
        self._waiting[slot] = _Waiting(
            publish=publish,
            digest=hashlib.sha256(publish.payload).digest(),
            resend_at_s=now_s + _FIRST_RESEND_S,
            interval_s=_FIRST_RESEND_S,
        )
        return publish

    def digest_of(self, slot: str) -> bytes | None:
        """Return what the receipt of a slot's message will name, or None."""
        waiting = self._waiting.get(slot)
        return None if waiting is None else waiting.digest

    def repetitions_of(self, slot: str) -> int:
        """Return how often a slot's message was sent again."""
        waiting = self._waiting.get(slot)
        return 0 if waiting is None else waiting.repetitions

    def settle(self, digest: bytes) -> None:
        """Forget the message that a receipt names."""
        for slot, waiting in list(self._waiting.items()):
            if waiting.digest == digest:
                del self._waiting[slot]

    def drop(self, prefix: str) -> None:
        """Forget the messages of the slots that begin with a prefix."""
        for slot in [slot for slot in self._waiting if slot.startswith(prefix)]:
            del self._waiting[slot]

    @property
    def is_empty(self) -> bool:
        """Tell whether every message has its receipt."""
        return not self._waiting

    @property
    def wakeup_s(self) -> float | None:
        """When the next message is due."""
        return min((waiting.resend_at_s for waiting in self._waiting.values()), default=None)

    def due(self, now_s: float) -> list[Publish]:
        """Return what is due; each time it waits twice as long, up to half a minute."""
        messages = []
        for waiting in self._waiting.values():
            if now_s >= waiting.resend_at_s:
                waiting.repetitions += 1
                waiting.interval_s = min(2 * waiting.interval_s, _LONGEST_RESEND_S)
                waiting.resend_at_s = now_s + waiting.interval_s
                messages.append(waiting.publish)
        return messages
