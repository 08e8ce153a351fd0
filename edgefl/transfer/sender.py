"""The sending end of a transfer: a small window, receipts instead of PUBACKs, resume by bitmap."""

from enum import Enum

from edgefl.errors import ConfigError, LocalProtocolError
from edgefl.transfer.bitmap import unpack_missing
from edgefl.transfer.manifest import Manifest
from edgefl.transfer.messages import Chunk, Receipt
from edgefl.types import Seconds

DEFAULT_WINDOW = 4
DEFAULT_RESEND_S = Seconds(3.0)
DEFAULT_MAX_SILENT_RESENDS = 20


class SenderState(Enum):
    """Where an upload stands."""

    SENDING = "sending"  # chunks are missing at the receiver, as far as it has said
    WAITING_FOR_DONE = "waiting-for-done"  # it has all chunks, but has not stored the whole yet
    DONE = "done"  # it has stored the whole; the copy here may go
    GAVE_UP = "gave-up"  # it has said nothing for too many re-sends


class Sender:
    """Sends one blob. Time is an argument; what to send is pulled.

    Transitions: SENDING -> WAITING_FOR_DONE -> DONE, back to SENDING when a receipt misses chunks
    again (the receiver was restarted), to DONE from each, to GAVE_UP from the first two.

    Args:
        blob: The bytes.
        manifest: Their manifest.
        window: Chunks that may be under way without a receipt.
        resend_s: Silence after which what is under way is sent again.
        max_silent_resends: Re-sends without any receipt before it gives up.

    Raises:
        ConfigError: the blob does not fit the manifest, or a bound is out of range.
    """

    def __init__(
        self,
        blob: bytes,
        manifest: Manifest,
        *,
        window: int = DEFAULT_WINDOW,
        resend_s: Seconds = DEFAULT_RESEND_S,
        max_silent_resends: int = DEFAULT_MAX_SILENT_RESENDS,
    ) -> None:
        """Begin with nothing received at the other end."""
        if len(blob) != manifest.size_bytes:
            expected = f"a blob of {manifest.size_bytes} bytes"
            raise ConfigError("E-MANIFEST", expected, f"{len(blob)} bytes")
        if window < 1 or not resend_s > 0 or max_silent_resends < 1:
            found = f"window {window}, resend_s {resend_s}, resends {max_silent_resends}"
            raise ConfigError("E-TRANSFER-SETTING", "positive bounds", found)
        self._blob = blob
        self._manifest = manifest
        self._window = window
        self._resend_s = resend_s
        self._max_silent_resends = max_silent_resends
        self._missing = set(range(manifest.chunk_count))
        self._under_way: dict[int, Seconds] = {}
        self._asked_at: Seconds | None = None
        self._silent_resends = 0
        self._state = SenderState.SENDING
        self.sent_chunk_count = 0

    @property
    def state(self) -> SenderState:
        """Where the upload stands."""
        return self._state

    @property
    def missing_count(self) -> int:
        """How many chunks the receiver has not confirmed."""
        return len(self._missing)

    def due(self, now: Seconds) -> tuple[Chunk, ...]:
        """Return the chunks to send now: new ones within the window, and overdue ones again.

        While it waits for `done`, the last chunk is sent again when overdue: its duplicate makes
        the receiver repeat its receipt.
        """
        if self._state is SenderState.SENDING:
            return self._due_chunks(now)
        if self._state is SenderState.WAITING_FOR_DONE and self._is_overdue(self._asked_at, now):
            self._asked_at = now
            if not self._count_resend():
                return ()
            return (self._chunk(self._manifest.chunk_count - 1),)
        return ()

    def wakes_at(self) -> Seconds | None:
        """Return when `due` will next have something without a receipt, or None."""
        if self._state is SenderState.WAITING_FOR_DONE and self._asked_at is not None:
            return Seconds(self._asked_at + self._resend_s)
        if self._state is SenderState.SENDING and self._under_way:
            return Seconds(min(self._under_way.values()) + self._resend_s)
        return None

    def on_receipt(self, receipt: Receipt, now: Seconds) -> None:
        """Take what the receiver says that it has.

        A receipt may be older than a later one that overtook it: it can only cause a chunk to be
        sent once more.

        Raises:
            WireError: its bitmap does not fit the blob.
        """
        missing = unpack_missing(receipt.missing, self._manifest.chunk_count)
        if self._state in {SenderState.DONE, SenderState.GAVE_UP}:
            return
        self._silent_resends = 0
        self._missing = set(missing)
        self._under_way = {
            index: sent_at for index, sent_at in self._under_way.items() if index in missing
        }
        if receipt.is_done and not missing:
            self._state = SenderState.DONE
        elif missing:
            self._state = SenderState.SENDING
        elif self._state is SenderState.SENDING:
            self._state = SenderState.WAITING_FOR_DONE
            self._asked_at = now

    def on_link_up(self) -> None:
        """Note that the link is new: whatever was under way may be lost and is sent at once."""
        self._under_way.clear()
        self._silent_resends = 0
        if self._state is SenderState.WAITING_FOR_DONE:
            self._asked_at = None

    def resume(self, now: Seconds) -> None:
        """Go on after giving up.

        Raises:
            LocalProtocolError: it has not given up.
        """
        if self._state is not SenderState.GAVE_UP:
            raise LocalProtocolError("E-TRANSFER-STATE", "gave-up", self._state.value)
        self._state = SenderState.SENDING if self._missing else SenderState.WAITING_FOR_DONE
        self._asked_at = now
        self.on_link_up()

    def _due_chunks(self, now: Seconds) -> tuple[Chunk, ...]:
        """Choose chunks in order; overdue ones first, they hold the window."""
        overdue = sorted(
            index for index, sent_at in self._under_way.items() if self._is_overdue(sent_at, now)
        )
        if overdue and not self._count_resend():
            return ()
        free = self._window - len(self._under_way)
        fresh = sorted(self._missing - self._under_way.keys())[: max(free, 0)]
        chosen = [*overdue, *fresh]
        self._under_way.update(dict.fromkeys(chosen, now))
        return tuple(self._chunk(index) for index in chosen)

    def _is_overdue(self, sent_at: Seconds | None, now: Seconds) -> bool:
        return sent_at is None or now >= sent_at + self._resend_s

    def _count_resend(self) -> bool:
        """Count a re-send without a receipt in between; tell whether to go on."""
        self._silent_resends += 1
        if self._silent_resends > self._max_silent_resends:
            self._state = SenderState.GAVE_UP
            return False
        return True

    def _chunk(self, index: int) -> Chunk:
        self.sent_chunk_count += 1
        start = index * self._manifest.chunk_bytes
        return Chunk(index=index, data=self._blob[start : start + self._manifest.chunk_bytes])
