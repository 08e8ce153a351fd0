"""The sending end of a transfer: offers, sends within a granted window, believes receipts only.

Time is an argument, and what to do is pulled by `due`. Transitions:

OFFERING -> QUEUED (a grant of no window) -> SENDING (a grant) -> WHOLE (nothing is missing) ->
DONE. From QUEUED, SENDING and WHOLE back to OFFERING when the link is new, the deadline of the
grant has passed, or the receiver was silent for too long: the next grant says what is really
missing, so that no chunk is sent twice on a guess. To DONE from each; to GAVE_UP by a refusal, or
when chunks keep vanishing.
"""

from dataclasses import dataclass
from enum import Enum

from edgefl.transfer.bitmap import unpack_missing
from edgefl.transfer.manifest import Manifest
from edgefl.transfer.messages import (
    RefusalReason,
    TransferAnswer,
    TransferGrant,
    TransferProgress,
    TransferRefusal,
)

_FIRST_SILENCE_S = 3.0
_LONGEST_SILENCE_S = 30.0
_QUEUED_SILENCE_S = 30.0
_MOST_LOST_WINDOWS = 4
"""Windows of which nothing arrived, although the receiver answers: something swallows chunks."""


class SenderState(Enum):
    """Where a transfer stands for its sender."""

    OFFERING = "offering"  # waits for a grant
    QUEUED = "queued"  # the receiver has no slot yet
    SENDING = "sending"  # chunks are missing at the receiver, as far as it has said
    WHOLE = "whole"  # it has all chunks, and has not made the whole safe yet
    DONE = "done"  # it has; the copy here may go
    GAVE_UP = "gave-up"  # see `reason`


class GiveUpReason(Enum):
    """Why a sender gave up."""

    TOO_LARGE = "too-large"  # the receiver's limit is below the size
    NOT_WANTED = "not-wanted"  # the receiver has no use for it
    BROKEN = "broken"  # the receiver cannot read what it has verified
    CHUNKS_LOST = "chunks-lost"  # small messages pass, chunks never arrive


class Heard(Enum):
    """What a sender made of something that its receiver said."""

    TAKEN = "taken"
    STALE_EPOCH = "stale-epoch"  # said in an earlier life of the receiver
    STALE_GRANT = "stale-grant"  # overtaken by a newer grant
    MALFORMED = "malformed"  # its bitmap is not one of this blob
    OVER = "over"  # the transfer is done or was given up


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOffer:
    """Send the offer, or send it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendChunk:
    """Send a chunk."""

    index: int


Step = SendOffer | SendChunk

_GIVE_UP_OF = {
    RefusalReason.TOO_LARGE: GiveUpReason.TOO_LARGE,
    RefusalReason.NOT_WANTED: GiveUpReason.NOT_WANTED,
    RefusalReason.BROKEN: GiveUpReason.BROKEN,
}
_OPEN = frozenset(
    {SenderState.OFFERING, SenderState.QUEUED, SenderState.SENDING, SenderState.WHOLE}
)


class Sender:
    """One transfer's sender; it knows the manifest, and its driver cuts the chunks.

    Args:
        manifest: What is sent.
        now_s: The time; the offer is due at once.
        least_epoch: The receiver's newest life, as far as is known.
    """

    def __init__(self, manifest: Manifest, now_s: float, *, least_epoch: int = 0) -> None:
        """Begin with the offer."""
        self._manifest = manifest
        self._missing: frozenset[int] = frozenset(range(manifest.chunk_count))
        self._under_way: set[int] = set()
        self._window_chunks = 0
        self._grant = (least_epoch, 0)
        self._silence_s = _FIRST_SILENCE_S
        self._due_at_s: float | None = now_s
        self._ends_at_s: float | None = None
        self._lost_windows = 0
        self.state = SenderState.OFFERING
        self.reason: GiveUpReason | None = None
        self.limit_bytes = 0
        self.sent_chunk_count = 0

    @property
    def is_open(self) -> bool:
        """Tell whether it is neither done nor given up."""
        return self.state in _OPEN

    @property
    def manifest(self) -> Manifest:
        """What is sent."""
        return self._manifest

    @property
    def wakes_at_s(self) -> float | None:
        """When `due` will next have something without an answer of the receiver, or None."""
        if not self.is_open:
            return None
        wishes = [wish for wish in (self._due_at_s, self._ends_at_s) if wish is not None]
        return min(wishes, default=None)

    def due(self, now_s: float) -> list[Step]:
        """Return what to send now: the offer if no answer came in time, or new chunks."""
        if not self.is_open:
            return []
        if self._ends_at_s is not None and now_s >= self._ends_at_s:
            self._offer_anew(now_s)
        if self._due_at_s is not None and now_s >= self._due_at_s:
            return self._offer(now_s)
        return self._next_chunks(now_s) if self.state is SenderState.SENDING else []

    def on_answer(self, answer: TransferAnswer, now_s: float) -> Heard:
        """Take what the receiver says; whatever that is, it raises nothing."""
        if isinstance(answer, TransferProgress) and answer.is_done:
            # Safe is safe, also if it was said before the gateway started anew.
            is_news = self.state is not SenderState.DONE
            self.state = SenderState.DONE
            return Heard.TAKEN if is_news else Heard.OVER
        if not self.is_open:
            return Heard.OVER
        if isinstance(answer, TransferRefusal) and answer.reason is RefusalReason.TOO_MANY:
            self._wait_for_slot(now_s)
            return Heard.TAKEN
        if isinstance(answer, TransferRefusal):
            self._give_up(_GIVE_UP_OF[answer.reason], limit_bytes=answer.limit_bytes)
            return Heard.TAKEN
        missing = unpack_missing(answer.missing, self._manifest.chunk_count)
        if missing is None:
            return Heard.MALFORMED
        if isinstance(answer, TransferGrant):
            return self._on_grant(answer, missing, now_s)
        return self._on_progress(answer, missing, now_s)

    def on_link_up(self, now_s: float) -> None:
        """Note that the link is new: what was under way may be lost, and the next grant tells."""
        if self.is_open:
            self._under_way.clear()
            self._silence_s = _FIRST_SILENCE_S
            self._offer_anew(now_s)

    def on_turn(self, now_s: float) -> None:
        """Note that chunks were held back here until now: the receiver was not silent so far."""
        if self.state is SenderState.SENDING:
            self._due_at_s = now_s + self._silence_s

    def on_epoch(self, epoch: int, now_s: float) -> None:
        """Note that the receiver has started anew: it may have forgotten everything unfinished."""
        if self.is_open and epoch > self._grant[0]:
            self._grant = (epoch, 0)
            self.on_link_up(now_s)

    # ------------------------------------------------------------ answers

    def _on_grant(self, grant: TransferGrant, missing: frozenset[int], now_s: float) -> Heard:
        place = (grant.epoch, grant.number)
        if place <= self._grant:
            is_old_life = grant.epoch < self._grant[0]
            return Heard.STALE_EPOCH if is_old_life else Heard.STALE_GRANT
        is_same_life = grant.epoch == self._grant[0]
        is_answer = self.state in (SenderState.OFFERING, SenderState.QUEUED)
        is_lost = (
            is_answer and bool(self._under_way) and is_same_life and self._under_way <= missing
        )
        self._lost_windows = self._lost_windows + 1 if is_lost else 0
        self._grant = place
        self._missing = missing
        if is_answer:
            self._under_way.clear()
        else:  # Nobody asked for this grant: what is under way still is.
            self._under_way &= missing
        self._window_chunks = grant.window_bytes // self._manifest.chunk_bytes
        self._ends_at_s = now_s + grant.deadline_ms / 1000
        if self._lost_windows >= _MOST_LOST_WINDOWS:
            self._give_up(GiveUpReason.CHUNKS_LOST)
        elif self._window_chunks == 0 and missing:
            self._wait_for_slot(now_s)
        else:
            self._go_on(now_s, is_progress=not is_lost)
        return Heard.TAKEN

    def _on_progress(
        self, progress: TransferProgress, missing: frozenset[int], now_s: float
    ) -> Heard:
        if progress.epoch < self._grant[0]:
            return Heard.STALE_EPOCH
        if (progress.epoch, progress.number) != self._grant or self._window_chunks == 0:
            return Heard.STALE_GRANT
        # Of receipts about one grant, an older one that was overtaken takes nothing back.
        remaining = self._missing & missing
        is_progress = len(remaining) < len(self._missing)
        self._missing = remaining
        self._under_way &= remaining
        if is_progress:
            self._lost_windows = 0
        if self.state in (SenderState.SENDING, SenderState.WHOLE):
            self._go_on(now_s, is_progress=is_progress)
        return Heard.TAKEN

    def _wait_for_slot(self, now_s: float) -> None:
        self.state = SenderState.QUEUED
        self._due_at_s = now_s + _QUEUED_SILENCE_S
        self._ends_at_s = None

    def _go_on(self, now_s: float, *, is_progress: bool) -> None:
        self.state = SenderState.SENDING if self._missing else SenderState.WHOLE
        if is_progress:
            self._silence_s = _FIRST_SILENCE_S
        self._due_at_s = now_s + self._silence_s

    def _give_up(self, reason: GiveUpReason, *, limit_bytes: int = 0) -> None:
        self.state = SenderState.GAVE_UP
        self.reason = reason
        self.limit_bytes = limit_bytes

    # ------------------------------------------------------------ what is due

    def _offer_anew(self, now_s: float) -> None:
        self.state = SenderState.OFFERING
        self._due_at_s = now_s
        self._ends_at_s = None

    def _offer(self, now_s: float) -> list[Step]:
        """Ask where the receiver stands; each silence is waited out twice as long."""
        self.state = SenderState.OFFERING
        self._due_at_s = now_s + self._silence_s
        self._silence_s = min(2 * self._silence_s, _LONGEST_SILENCE_S)
        return [SendOffer()]

    def _next_chunks(self, now_s: float) -> list[Step]:
        free = self._window_chunks - len(self._under_way)
        if free <= 0:
            return []
        chosen = sorted(self._missing - self._under_way)[:free]
        self._under_way.update(chosen)
        self.sent_chunk_count += len(chosen)
        if chosen:
            self._due_at_s = now_s + self._silence_s
        return [SendChunk(index=index) for index in chosen]
