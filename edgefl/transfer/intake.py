"""Many transfers coming in: slots, windows and memory are bounded, whoever offers how much.

An offer waits for a slot. A slot ends when its blob is whole and taken, when its sender was silent
for too long, or after a deadline if others wait, so that nobody holds one by sending drop by drop.
What arrived then stays only while nobody else needs the room. A sender that goes on is told what is
missing, and waits behind the others. Time is an argument; nothing here knows what blobs mean.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edgefl._native import StagedBlob
from edgefl.errors import ConfigError
from edgefl.transfer.bitmap import pack_missing
from edgefl.transfer.manifest import MAX_BLOB_BYTES, Manifest
from edgefl.transfer.messages import (
    MAX_WINDOW_BYTES,
    RefusalReason,
    TransferAnswer,
    TransferProgress,
    TransferRefusal,
)
from edgefl.transfer.receiver import Receiver, ReceiverState
from edgefl.transfer.stage import ChunkVerdict, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """Bounds of what comes in.

    Attributes:
        slots: Transfers that may send at once.
        staged_bytes: Sum of the sizes of blobs that have a place in the stage.
        blob_bytes: Largest blob; a larger one is refused by name.
        window_chunks: Chunks that one sender may have under way without a receipt.
        receipt_chunks: A receipt follows so many chunks.
        asked_window_bytes: What a sender gets at most that asks for more under way, because its
            link holds back what is not taken; 0 gives nobody more.
        offers_per_peer: Transfers of one peer at once, waiting ones included.
        receipt_s: While chunks arrive, so much time lies between two receipts at the most.
        stall_s: A silent sender loses its slot after so long.
        deadline_s: A sender that sees no `done` for so long offers again; a slot that others wait
            for is held no longer.

    Raises:
        ConfigError: a bound admits nothing.
    """

    slots: int = 64
    staged_bytes: int = MAX_WINDOW_BYTES
    blob_bytes: int = MAX_BLOB_BYTES
    window_chunks: int = 4
    asked_window_bytes: int = 0
    receipt_chunks: int = 4
    offers_per_peer: int = 4
    receipt_s: float = 1.0
    stall_s: float = 15.0
    deadline_s: float = 120.0

    def __post_init__(self) -> None:
        """Check the bounds."""
        smallest = min(
            self.slots,
            self.staged_bytes,
            self.blob_bytes,
            self.window_chunks,
            self.receipt_chunks,
            self.offers_per_peer,
        )
        smallest = min(smallest, self.asked_window_bytes + 1)
        if smallest < 1 or min(self.receipt_s, self.stall_s, self.deadline_s) <= 0:
            raise ConfigError("E-INTAKE-LIMITS", "bounds above 0", f"{self}")
        if self.receipt_chunks > self.window_chunks:
            expected = f"receipts within the window of {self.window_chunks} chunks"
            raise ConfigError("E-INTAKE-LIMITS", expected, f"{self.receipt_chunks}")
        if self.blob_bytes > self.staged_bytes:
            expected = f"blobs of at most staged_bytes ({self.staged_bytes})"
            raise ConfigError("E-INTAKE-LIMITS", expected, f"{self.blob_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Something to tell a peer."""

    peer: str
    message: TransferAnswer


class Intake:
    """Every transfer on its way in, of all peers.

    Args:
        stage: Where chunks go; it must have room for `limits.staged_bytes` and the hash lists.
        epoch: Life of this receiver; greater than in every earlier life.
        limits: The bounds.
        on_pushed_out: Called with peer and transfer id of what is forgotten to make room for
            others.
    """

    def __init__(
        self,
        stage: Stage,
        *,
        epoch: int,
        limits: IntakeLimits,
        on_pushed_out: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """Begin with nothing."""
        self._stage = stage
        self._epoch = epoch
        self._limits = limits
        # In order of arrival; what waits longest gets the next slot.
        self._receivers: dict[tuple[str, bytes], Receiver] = {}
        self._queue: dict[tuple[str, bytes], Receiver] = {}
        self._active: dict[tuple[str, bytes], Receiver] = {}
        self._count_by_peer: Counter[str] = Counter()
        self._staged_bytes = 0
        self._last_number = 0
        # When a slot became free that nobody was given yet.
        self._freed_at_s: float | None = None
        self._heard_at_s = 0.0
        self._on_pushed_out = on_pushed_out
        self.refused_chunks: dict[ChunkVerdict, int] = {}

    # ------------------------------------------------------------ what is there

    @property
    def active_count(self) -> int:
        """How many transfers have a slot."""
        return len(self._active)

    @property
    def waiting_count(self) -> int:
        """How many transfers wait for a slot."""
        return len(self._queue)

    @property
    def granted_bytes(self) -> int:
        """Sum of the windows of all slots."""
        return sum(receiver.window_bytes for receiver in self._active.values())

    @property
    def staged_bytes(self) -> int:
        """Sum of the sizes of all blobs that have a place in the stage."""
        return self._staged_bytes

    @property
    def wakes_at_s(self) -> float | None:
        """When `wake` is wanted, or None."""
        return min(self._wishes(), default=None)

    def knows(self, peer: str, transfer_id: bytes) -> bool:
        """Tell whether a transfer was offered and is not over."""
        return (peer, transfer_id) in self._receivers

    # ------------------------------------------------------------ what senders do

    def offer(
        self,
        peer: str,
        transfer_id: bytes,
        manifest: Manifest,
        now_s: float,
        *,
        asked_window_bytes: int = 0,
    ) -> list[Answer]:
        """Take an offer, for the first time or again; its sender may ask for a larger window."""
        place = (peer, transfer_id)
        receiver = self._receivers.get(place)
        if receiver is None:
            refusal = self._why_not(peer, transfer_id, manifest)
            if refusal is not None:
                return [Answer(peer=peer, message=refusal)]
            receiver = self._begin(peer, transfer_id, manifest, asked_window_bytes)
        if receiver.state is ReceiverState.TAKEN:
            return [Answer(peer=peer, message=receiver.receipt(now_s))]
        if receiver.state is ReceiverState.ACTIVE:
            return [self._grant(peer, receiver, now_s)]
        self._queue.setdefault(place, receiver)
        granted = self._fill_slots(now_s)
        is_waiting = place in self._queue
        return [*granted, *([self._grant(peer, receiver, now_s)] if is_waiting else [])]

    def chunk(
        self, peer: str, transfer_id: bytes, packet: bytes, now_s: float
    ) -> tuple[ChunkVerdict, list[Answer]]:
        """Take a chunk packet."""
        receiver = self._receivers.get((peer, transfer_id))
        if receiver is None or not receiver.is_staged:
            return self._counted(ChunkVerdict.NO_SUCH_TRANSFER), []
        verdict = ChunkVerdict(self._stage.accept(receiver.key, packet))
        return self._counted(verdict), self.progress(peer, transfer_id, now_s)

    def progress(self, peer: str, transfer_id: bytes, now_s: float) -> list[Answer]:
        """Note that chunks went into the stage by another way."""
        self._heard_at_s = now_s
        receiver = self._receivers.get((peer, transfer_id))
        if receiver is None:
            return []
        if receiver.state is ReceiverState.PARKED:  # It is only slow, and goes on.
            self._queue.setdefault((peer, transfer_id), receiver)
            return self._fill_slots(now_s)
        receipt = receiver.note_chunks(now_s)
        return [] if receipt is None else [Answer(peer=peer, message=receipt)]

    # ------------------------------------------------------------ what becomes of blobs

    def is_whole(self, peer: str, transfer_id: bytes) -> bool:
        """Tell whether every chunk of a transfer is there, and nobody has taken them."""
        receiver = self._receivers.get((peer, transfer_id))
        return receiver is not None and receiver.is_whole

    def take(self, peer: str, transfer_id: bytes) -> bytes:
        """Return a whole blob; its slot and its memory are free for others at the next `wake`."""
        blob = self._stage.take(self._receivers[peer, transfer_id].key)
        self._note_taken(peer, transfer_id)
        return blob

    def take_out(self, peer: str, transfer_id: bytes) -> StagedBlob:
        """Return a whole blob as `take` does, without a copy."""
        blob = self._stage.take_out(self._receivers[peer, transfer_id].key)
        self._note_taken(peer, transfer_id)
        return blob

    def _note_taken(self, peer: str, transfer_id: bytes) -> None:
        receiver = self._receivers[peer, transfer_id]
        receiver.state = ReceiverState.TAKEN
        self._staged_bytes -= receiver.manifest.size_bytes
        self._active.pop((peer, transfer_id), None)
        self._queue.pop((peer, transfer_id), None)
        if self._queue:
            self._freed_at_s = self._heard_at_s

    def done(self, peer: str, transfer_id: bytes) -> list[Answer]:
        """Note that what was taken is safe, and forget the transfer."""
        receiver = self._receivers.get((peer, transfer_id))
        if receiver is None:
            return []
        message = receiver.done()
        self._forget(peer, transfer_id)
        return [Answer(peer=peer, message=message)]

    def done_before(self, peer: str, transfer_id: bytes, manifest: Manifest) -> Answer:
        """Return the receipt of a transfer that was done earlier, maybe in an earlier life."""
        message = TransferProgress(
            transfer_id=transfer_id,
            epoch=self._epoch,
            number=0,
            missing=pack_missing((), manifest.chunk_count),
            is_done=True,
        )
        return Answer(peer=peer, message=message)

    def refuse(
        self, peer: str, transfer_id: bytes, reason: RefusalReason, limit_bytes: int = 0
    ) -> list[Answer]:
        """Refuse a transfer, and forget it; one that is too large is told the limit."""
        self._forget(peer, transfer_id)
        refusal = TransferRefusal(transfer_id=transfer_id, reason=reason, limit_bytes=limit_bytes)
        return [Answer(peer=peer, message=refusal)]

    def forget(self, peer: str, transfer_id: bytes) -> None:
        """Forget a transfer without a word: it will be offered again if it is still of use."""
        self._forget(peer, transfer_id)

    def forget_all(self) -> None:
        """Forget every transfer."""
        for peer, transfer_id in list(self._receivers):
            self._forget(peer, transfer_id)

    # ------------------------------------------------------------ time

    def wake(self, now_s: float) -> list[Answer]:
        """Send the receipts that are due, take slots from the silent, and give out free ones."""
        answers = []
        for (peer, transfer_id), receiver in list(self._active.items()):
            due_s = receiver.receipt_due_s
            if due_s is not None and now_s >= due_s:
                answers.append(Answer(peer=peer, message=receiver.receipt(now_s)))
            if now_s >= self._slot_ends_s(receiver):
                receiver.state = ReceiverState.PARKED
                receiver.is_too_slow = now_s < receiver.heard_at_s + self._limits.stall_s
                del self._active[peer, transfer_id]
        return [*answers, *self._fill_slots(now_s)]

    def _wishes(self) -> Iterator[float]:
        if self._freed_at_s is not None:
            yield self._freed_at_s
        for receiver in self._active.values():
            if receiver.receipt_due_s is not None:
                yield receiver.receipt_due_s
            yield self._slot_ends_s(receiver)

    # ------------------------------------------------------------ slots

    def _slot_ends_s(self, receiver: Receiver) -> float:
        silent_s = receiver.heard_at_s + self._limits.stall_s
        is_wanted = bool(self._queue)
        return min(silent_s, receiver.since_s + self._limits.deadline_s) if is_wanted else silent_s

    def _why_not(self, peer: str, transfer_id: bytes, manifest: Manifest) -> TransferRefusal | None:
        if manifest.size_bytes > self._limits.blob_bytes:
            return TransferRefusal(
                transfer_id=transfer_id,
                reason=RefusalReason.TOO_LARGE,
                limit_bytes=self._limits.blob_bytes,
            )
        if self._count_by_peer[peer] >= self._limits.offers_per_peer:
            return TransferRefusal(transfer_id=transfer_id, reason=RefusalReason.TOO_MANY)
        return None

    def _begin(
        self, peer: str, transfer_id: bytes, manifest: Manifest, asked_window_bytes: int
    ) -> Receiver:
        asked_bytes = min(asked_window_bytes, self._limits.asked_window_bytes)
        asked_chunks = asked_bytes // manifest.chunk_bytes
        receiver = Receiver(
            transfer_id=transfer_id,
            manifest=manifest,
            key=f"{peer}/{transfer_id.hex()}",
            stage=self._stage,
            epoch=self._epoch,
            window_chunks=max(self._limits.window_chunks, asked_chunks),
            receipt_chunks=max(self._limits.receipt_chunks, asked_chunks // 2),
            receipt_s=self._limits.receipt_s,
            last_number=self._last_number,
        )
        self._receivers[peer, transfer_id] = receiver
        self._count_by_peer[peer] += 1
        return receiver

    def _grant(self, peer: str, receiver: Receiver, now_s: float) -> Answer:
        grant = receiver.grant(now_s, self._limits.deadline_s)
        # A sender takes a smaller number than it has seen for a late grant.
        self._last_number = max(self._last_number, grant.number)
        return Answer(peer=peer, message=grant)

    def _fill_slots(self, now_s: float) -> list[Answer]:
        answers = []
        self._freed_at_s = None
        while self._queue and len(self._active) < self._limits.slots:
            place = self._next_place()
            if place is None:
                break
            (peer, transfer_id), receiver = place, self._queue[place]
            del self._queue[peer, transfer_id]
            self._stage_blob(receiver)
            receiver.state, receiver.since_s = ReceiverState.ACTIVE, now_s
            self._active[peer, transfer_id] = receiver
            answers.append(self._grant(peer, receiver, now_s))
        return answers

    def _next_place(self) -> tuple[str, bytes] | None:
        """Return who waits longest, or, where that lacks room, who comes back to its own room."""
        first, receiver = next(iter(self._queue.items()))
        if self._has_room(receiver):
            return first
        return next((place for place, other in self._queue.items() if other.is_staged), None)

    def _stage_blob(self, receiver: Receiver) -> None:
        if receiver.is_staged:
            return
        manifest = receiver.manifest
        self._stage.open(
            receiver.key, manifest.size_bytes, manifest.chunk_bytes, manifest.chunk_hashes
        )
        self._staged_bytes += manifest.size_bytes

    def _has_room(self, receiver: Receiver) -> bool:
        """Tell whether a blob fits; forget what silent senders left behind if it takes that.

        A sender that comes back keeps what it sent, or two could push each other out for ever;
        unless it had its time and did not use it.
        """
        if receiver.is_staged:
            return True
        needed = receiver.manifest.size_bytes
        if self._staged_bytes + needed <= self._limits.staged_bytes:
            return True
        parked = [
            place
            for place, other in self._receivers.items()
            if other.state is ReceiverState.PARKED
            and (other.is_too_slow or place not in self._queue)
        ]
        parked.sort(key=lambda place: place in self._queue)
        for peer, transfer_id in parked:
            if self._staged_bytes + needed <= self._limits.staged_bytes:
                break
            self._forget(peer, transfer_id)
            if self._on_pushed_out is not None:
                self._on_pushed_out(peer, transfer_id)
        return self._staged_bytes + needed <= self._limits.staged_bytes

    def _forget(self, peer: str, transfer_id: bytes) -> None:
        place = (peer, transfer_id)
        receiver = self._receivers.pop(place, None)
        self._active.pop(place, None)
        self._queue.pop(place, None)
        if receiver is None:
            return
        self._count_by_peer[peer] -= 1
        if not self._count_by_peer[peer]:
            del self._count_by_peer[peer]
        if receiver.is_staged:
            self._staged_bytes -= receiver.manifest.size_bytes
            self._stage.discard(receiver.key)

    def _counted(self, verdict: ChunkVerdict) -> ChunkVerdict:
        if not verdict.is_taken:
            self.refused_chunks[verdict] = self.refused_chunks.get(verdict, 0) + 1
        return verdict
