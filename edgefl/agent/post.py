"""What the device sends until it is received: small messages whole, large ones in chunks."""

import hashlib
from dataclasses import dataclass, field

from edgefl.agent.events import AgentEffect, Noticed
from edgefl.agent.outbox import Outbox
from edgefl.agent.pen import Pen
from edgefl.errors import ConfigError, TransportError
from edgefl.protocol import topics
from edgefl.protocol.bulk import BulkyMessage, may_be_whole, split_bulky, transfer_id_of
from edgefl.protocol.envelope import Header
from edgefl.protocol.messages import DeviceMessage
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES
from edgefl.transfer.messages import TransferAnswer
from edgefl.transfer.packets import PACKET_BYTES, UP_HEAD_BYTES, pack_chunk
from edgefl.transfer.sender import GiveUpReason, Heard, SendChunk, Sender, SenderState, Step
from edgefl.transport.core_events import Publish
from edgefl.types import FleetName

_MOST_REPETITIONS = 3
"""So often a large message may stay unheard beside small ones that are answered."""


@dataclass(slots=True, kw_only=True)
class _Upload:
    """A message that travels as a transfer, until it is done or something takes its place."""

    message: DeviceMessage = field(repr=False)
    header: Header
    parts: BulkyMessage = field(repr=False)
    offer: Publish = field(repr=False)
    transfer_id: bytes
    sender: Sender
    done_in_epoch: int | None = None

    @property
    def digest(self) -> bytes:
        """What names the message as its receipt would."""
        return hashlib.sha256(self.offer.payload).digest()


class Post:
    """The device's letter box.

    Args:
        fleet: The fleet's name.
        pen: Signs and addresses.
        outbox: Where small messages wait for their receipts; others use it too.
    """

    def __init__(self, *, fleet: FleetName, pen: Pen, outbox: Outbox) -> None:
        """Start with nothing under way."""
        self._fleet = fleet
        self._pen = pen
        self._outbox = outbox
        self._uploads: dict[str, _Upload] = {}
        # What travels whole, and is large enough to be swallowed on the way.
        self._large: dict[str, tuple[DeviceMessage, Header]] = {}
        self._link_bytes = MAX_CHUNK_BYTES
        self._gateway_bytes = DEFAULT_CHUNK_BYTES
        self._is_answered = False
        self._epoch = 0
        self.stale_answers = 0

    # ------------------------------------------------------------ sending

    @property
    def is_empty(self) -> bool:
        """Tell whether every message has its receipt."""
        is_open = any(upload.sender.is_open for upload in self._uploads.values())
        return self._outbox.is_empty and not is_open

    @property
    def wakeup_s(self) -> float | None:
        """When `due` will have something."""
        wishes = [upload.sender.wakes_at_s for upload in self._uploads.values()]
        wishes.append(self._outbox.wakeup_s)
        return min((wish for wish in wishes if wish is not None), default=None)

    @property
    def link_chunk_bytes(self) -> int:
        """Largest chunk that this device's link passes, as far as is known."""
        return self._link_bytes

    def send(
        self, slot: str, message: DeviceMessage, header: Header, now_s: float
    ) -> list[AgentEffect]:
        """Send a message until it is received; it takes the place of the slot's older one.

        The same large message again goes on with the transfer that is under way.
        """
        known = self._uploads.get(slot)
        if known is not None and self._is_current(known, message, header):
            return self._carry_out(known, known.sender.due(now_s))
        self.drop(slot)
        if may_be_whole(message, self._chunk_bytes):
            publish = self._pen.sealed(message, header)
            if len(publish.payload) <= self._chunk_bytes:
                if len(publish.payload) > MIN_CHUNK_BYTES:
                    self._large[slot] = (message, header)
                return [self._outbox.put(slot, publish, now_s)]
        try:
            parts = split_bulky(message, self._chunk_bytes)
        except ConfigError as error:
            return [Noticed(error=error)]
        upload = self._begin(message, header, parts, now_s)
        self._uploads[slot] = upload
        return self._carry_out(upload, upload.sender.due(now_s))

    def digest_of(self, slot: str) -> bytes | None:
        """Return what the receipt of a slot's message will name, or None."""
        upload = self._uploads.get(slot)
        return self._outbox.digest_of(slot) if upload is None else upload.digest

    def drop(self, prefix: str) -> None:
        """Forget the messages of the slots that begin with a prefix."""
        self._outbox.drop(prefix)
        for slot in [slot for slot in self._uploads if slot.startswith(prefix)]:
            del self._uploads[slot]
        for slot in [slot for slot in self._large if slot.startswith(prefix)]:
            del self._large[slot]

    def due(self, now_s: float) -> list[AgentEffect]:
        """Return what is to be sent now."""
        effects: list[AgentEffect] = [*self._outbox.due(now_s)]
        for slot in list(self._large):
            effects += self._look_whether_swallowed(slot, now_s)
        for upload in self._uploads.values():
            effects += self._carry_out(upload, upload.sender.due(now_s))
        return effects

    # ------------------------------------------------------------ what is heard

    def settle(self, digest: bytes) -> None:
        """Forget the small message that a receipt names."""
        self._is_answered = True
        self._outbox.settle(digest)

    def on_answer(
        self, answer: TransferAnswer, now_s: float
    ) -> tuple[bytes | None, list[AgentEffect]]:
        """Take what the gateway says about a transfer of this device.

        Returns:
            The digest of the message that is received now, or None; and what to do.
        """
        found = [
            (slot, upload)
            for slot, upload in self._uploads.items()
            if upload.transfer_id == answer.transfer_id
        ]
        if not found:
            self.stale_answers += 1
            return None, []
        slot, upload = found[0]
        if upload.sender.on_answer(answer, now_s) is not Heard.TAKEN:
            self.stale_answers += 1
            return None, []
        if upload.sender.state is SenderState.DONE:
            upload.done_in_epoch = self._epoch
            return upload.digest, []
        if upload.sender.state is SenderState.GAVE_UP:
            return None, self._on_gave_up(slot, upload, now_s)
        return None, self._carry_out(upload, upload.sender.due(now_s))

    def on_link(self, now_s: float, max_packet_bytes: int | None) -> None:
        """Note a new link, and the largest packet that its broker takes."""
        if max_packet_bytes is not None:
            self._limit_link(max_packet_bytes - PACKET_BYTES)
        for upload in self._uploads.values():
            upload.sender.on_link_up(now_s)

    def on_gateway(self, epoch: int, chunk_bytes: int, now_s: float) -> None:
        """Note how often the gateway has started, and the largest chunk that it wants."""
        self._epoch = epoch
        self._gateway_bytes = chunk_bytes
        for upload in self._uploads.values():
            upload.sender.on_epoch(epoch, now_s)

    # ------------------------------------------------------------ helpers

    def _is_current(self, known: _Upload, message: DeviceMessage, header: Header) -> bool:
        """Tell whether a transfer goes on; what an earlier life took is offered once more."""
        is_same = (known.message, known.header) == (message, header)
        return is_same and (known.sender.is_open or known.done_in_epoch == self._epoch)

    @property
    def _chunk_bytes(self) -> int:
        return min(self._link_bytes, self._gateway_bytes)

    def _limit_link(self, most_bytes: int) -> None:
        self._link_bytes = max(MIN_CHUNK_BYTES, min(self._link_bytes, most_bytes))

    def _look_whether_swallowed(self, slot: str, now_s: float) -> list[AgentEffect]:
        """Send a message in chunks that never arrives whole although others do."""
        waiting = self._outbox.digest_of(slot)
        if waiting is None:
            del self._large[slot]
            return []
        if not self._is_answered or self._outbox.repetitions_of(slot) < _MOST_REPETITIONS:
            return []
        message, header = self._large[slot]
        size_bytes = len(self._pen.sealed(message, header).payload)
        self._is_answered = False
        self._limit_link(size_bytes // 2)
        error = TransportError(
            "E-TRANSFER-LOST",
            f"a broker that passes packets of {size_bytes} bytes",
            "one that swallows them, for smaller ones arrive",
            f"packets of {self._link_bytes} bytes are tried next",
        )
        return [Noticed(error=error), *self.send(slot, message, header, now_s)]

    def _begin(
        self, message: DeviceMessage, header: Header, parts: BulkyMessage, now_s: float
    ) -> _Upload:
        return _Upload(
            message=message,
            header=header,
            parts=parts,
            offer=self._pen.sealed(parts.offer, header),
            transfer_id=transfer_id_of(parts.offer, header),
            sender=Sender(parts.offer.manifest, now_s, least_epoch=self._epoch),
        )

    def _carry_out(self, upload: _Upload, steps: list[Step]) -> list[AgentEffect]:
        return [
            self._chunk(upload, step.index) if isinstance(step, SendChunk) else upload.offer
            for step in steps
        ]

    def _chunk(self, upload: _Upload, index: int) -> Publish:
        manifest = upload.parts.offer.manifest
        start = index * manifest.chunk_bytes
        data = memoryview(upload.parts.blob)[start : start + manifest.size_of_chunk(index)]
        topic = topics.upload(self._fleet, self._pen.device, upload.transfer_id.hex())
        return Publish(topic=topic, payload=pack_chunk(index, data))

    def _on_gave_up(self, slot: str, upload: _Upload, now_s: float) -> list[AgentEffect]:
        sender, manifest = upload.sender, upload.parts.offer.manifest
        if sender.reason is GiveUpReason.NOT_WANTED:
            del self._uploads[slot]
            return []
        if sender.reason is GiveUpReason.CHUNKS_LOST and manifest.chunk_bytes > MIN_CHUNK_BYTES:
            # Something on the way swallows large packets: smaller ones may pass.
            self._limit_link(manifest.chunk_bytes // 2)
            return [
                self._notice(upload, f"chunks of {self._chunk_bytes} bytes are tried next"),
                *self.send(slot, upload.message, upload.header, now_s),
            ]
        del self._uploads[slot]
        return [self._notice(upload, "the update of this round is lost; the next round goes on")]

    def _notice(self, upload: _Upload, advice: str) -> Noticed:
        sender, manifest = upload.sender, upload.parts.offer.manifest
        if sender.reason is GiveUpReason.TOO_LARGE:
            return Noticed(
                error=TransportError(
                    "E-TRANSFER-SIZE",
                    f"a message of at most {sender.limit_bytes} bytes",
                    f"one of {manifest.size_bytes} bytes",
                    advice,
                )
            )
        if sender.reason is GiveUpReason.CHUNKS_LOST:
            return Noticed(
                error=TransportError(
                    "E-TRANSFER-LOST",
                    f"a broker that passes packets of {manifest.chunk_bytes + UP_HEAD_BYTES} bytes",
                    f"none that arrived of a message of {manifest.size_bytes} bytes",
                    advice,
                )
            )
        return Noticed(
            error=TransportError(
                "E-TRANSFER-BROKEN",
                "a message that the gateway can read",
                f"one of {manifest.size_bytes} bytes that it cannot",
                advice,
            )
        )
