"""The receiving end of one transfer: what was granted, what arrived, when a receipt is due."""

from enum import Enum

from edgefl.transfer.bitmap import pack_missing
from edgefl.transfer.manifest import Manifest
from edgefl.transfer.messages import TransferGrant, TransferProgress
from edgefl.transfer.stage import Stage


class ReceiverState(Enum):
    """Where a transfer stands for its receiver."""

    WAITING = "waiting"  # for a slot
    ACTIVE = "active"  # has a slot and a window
    PARKED = "parked"  # lost its slot by silence; what arrived is kept while there is room
    TAKEN = "taken"  # whole and handed on; `done` follows when it is safe


class Receiver:
    """One blob on its way in; its chunks are in the stage.

    Args:
        transfer_id: 8 bytes.
        manifest: What is to come.
        key: The blob's key in the stage.
        stage: Where chunks go.
        epoch: Life of this receiver, which stands in all that it says.
        window_chunks: How many chunks may be under way.
        receipt_chunks: A receipt follows so many.
        receipt_s: While chunks arrive, so much time lies between two receipts at the most.
        last_number: Of the grants given so far; its own are greater, also where an earlier place of
            the same transfer was forgotten.
    """

    def __init__(
        self,
        *,
        transfer_id: bytes,
        manifest: Manifest,
        key: str,
        stage: Stage,
        epoch: int,
        window_chunks: int,
        receipt_chunks: int,
        receipt_s: float,
        last_number: int,
    ) -> None:
        """Begin without a slot and without a place in the stage."""
        self.transfer_id = transfer_id
        self.manifest = manifest
        self.key = key
        self._stage = stage
        self._epoch = epoch
        self._window_chunks = min(window_chunks, manifest.chunk_count)
        self._receipt_chunks = min(receipt_chunks, manifest.chunk_count)
        self._receipt_s = receipt_s
        self._grant_number = last_number
        self._missing_at_receipt = manifest.chunk_count
        self._receipt_due_s: float | None = None
        self.state = ReceiverState.WAITING
        self.heard_at_s = self.since_s = self._said_at_s = 0.0
        self.is_too_slow = False

    @property
    def is_staged(self) -> bool:
        """Tell whether it has a place in the stage."""
        return self.state in (ReceiverState.ACTIVE, ReceiverState.PARKED)

    @property
    def is_whole(self) -> bool:
        """Tell whether every chunk is there."""
        return self.is_staged and self._stage.missing_count(self.key) == 0

    @property
    def window_bytes(self) -> int:
        """How much may be under way without a receipt."""
        return self._window_chunks * self.manifest.chunk_bytes

    @property
    def receipt_due_s(self) -> float | None:
        """When a receipt is due, if chunks came since the last one."""
        return self._receipt_due_s if self.state is ReceiverState.ACTIVE else None

    def grant(self, now_s: float, deadline_s: float) -> TransferGrant:
        """Return the newest grant: it says what is missing, and makes all earlier ones stale."""
        self._grant_number += 1
        self.heard_at_s = self._said_at_s = now_s
        self._receipt_due_s = None
        is_active = self.state is ReceiverState.ACTIVE
        if is_active:
            self._missing_at_receipt = self._stage.missing_count(self.key)
        return TransferGrant(
            transfer_id=self.transfer_id,
            epoch=self._epoch,
            number=self._grant_number,
            window_bytes=self.window_bytes if is_active else 0,
            deadline_ms=round(1000 * deadline_s),
            missing=self._missing(),
        )

    def note_chunks(self, now_s: float) -> TransferProgress | None:
        """Look at what has arrived; return a receipt when one is due at once, or None."""
        if self.state is not ReceiverState.ACTIVE:
            return None
        self.heard_at_s = now_s
        missing_count = self._stage.missing_count(self.key)
        arrived = self._missing_at_receipt - missing_count
        # Once all that is missing may be under way, a receipt opens nothing: it can take its time.
        opens_more = self._missing_at_receipt > self._window_chunks
        if opens_more and missing_count and arrived >= self._receipt_chunks:
            return self.receipt(now_s)
        if self._receipt_due_s is None:
            # What tells of chunks may have waited itself: a sender that hears nothing asks.
            self._receipt_due_s = max(now_s, self._said_at_s + self._receipt_s)
        return None

    def receipt(self, now_s: float) -> TransferProgress:
        """Return what is here now."""
        self._receipt_due_s = None
        self._said_at_s = now_s
        if self.state is ReceiverState.ACTIVE:
            self._missing_at_receipt = self._stage.missing_count(self.key)
        return self._progress(is_done=False)

    def done(self) -> TransferProgress:
        """Return the last receipt: the whole is safe."""
        return self._progress(is_done=True)

    def _progress(self, *, is_done: bool) -> TransferProgress:
        return TransferProgress(
            transfer_id=self.transfer_id,
            epoch=self._epoch,
            number=self._grant_number,
            missing=self._missing(),
            is_done=is_done,
        )

    def _missing(self) -> bytes:
        if self.is_staged:
            return self._stage.missing(self.key)
        count = self.manifest.chunk_count
        return pack_missing(() if self.state is ReceiverState.TAKEN else range(count), count)
