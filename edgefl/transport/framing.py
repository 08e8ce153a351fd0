"""Send messages of any size over a broker that limits packets: split, and put together again.

A message up to one chunk travels as it is. A larger one becomes a manifest and chunks on the same
topic; when it is sent again, chunks that arrived already are kept. What arrives whole is handed up
as if it had come in one piece; its signature is checked there.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import cast

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, Manifest, split
from edgefl.transfer.messages import Chunk
from edgefl.transfer.receiver import Receiver
from edgefl.transport.base import Inbound, Transport, TransportEvent

_MARK = b"\x83"
"""First byte of a frame: a CBOR array of 3. No message of the round protocol begins with it."""
_MANIFEST, _CHUNK = 0, 1
_LARGEST_MESSAGE_BYTES = wire.MAX_MESSAGE_BYTES
_LARGEST_TOTAL_BYTES = 2 * _LARGEST_MESSAGE_BYTES


def frames_of(payload: bytes, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> list[bytes]:
    """Return the packets of one message: the message itself, or a manifest and its chunks."""
    if len(payload) <= chunk_bytes and not payload.startswith(_MARK):
        return [payload]
    manifest, chunks = split(payload, chunk_bytes)
    head = _frame(_MANIFEST, manifest.sha256, manifest.to_wire())
    return [
        head,
        *(
            _frame(_CHUNK, manifest.sha256, Chunk(index=index, data=data).to_wire())
            for index, data in enumerate(chunks)
        ),
    ]


def _frame(kind: int, sha256: bytes, content: dict[int, object]) -> bytes:
    return wire.encode([kind, sha256, cast("wire.Body", content)])


class Reassembler:
    """Puts the packets of large messages together, within a bound of memory.

    Args:
        largest_total_bytes: Over all unfinished messages; the oldest is dropped to keep it.
    """

    def __init__(self, largest_total_bytes: int = _LARGEST_TOTAL_BYTES) -> None:
        """Start with nothing unfinished."""
        self._largest_total_bytes = largest_total_bytes
        self._unfinished: OrderedDict[str, Receiver] = OrderedDict()

    def accept(self, topic: str, packet: bytes) -> bytes | None:
        """Take a packet.

        Returns:
            A whole message, or None while one is unfinished.

        Raises:
            WireError: The packet is a damaged frame.
        """
        if not packet.startswith(_MARK):
            return packet
        kind, sha256, content = wire.as_list(wire.decode(packet), 3)
        wire.as_bytes(sha256, 32)
        if wire.as_int(kind, _MANIFEST, _CHUNK) == _MANIFEST:
            self._begin(topic, content)
            return None
        receiver = self._unfinished.get(topic)
        if receiver is None or receiver.manifest.sha256 != sha256:
            return None  # Its manifest got lost or is outdated; the message will be sent again.
        receiver.accept(Chunk.from_wire(content))
        if not receiver.is_whole:
            return None
        del self._unfinished[topic]
        try:
            return receiver.blob()
        except RemoteProtocolError as error:  # a manifest that contradicts itself
            raise WireError(error.code, error.expected, error.found) from error

    def _begin(self, topic: str, content: wire.WireValue) -> None:
        manifest = Manifest.from_wire(content, max_blob_bytes=_LARGEST_MESSAGE_BYTES)
        present = self._unfinished.get(topic)
        if present is not None and present.manifest == manifest:
            return
        self._unfinished.pop(topic, None)
        self._unfinished[topic] = Receiver(manifest)
        while self._held_bytes() > self._largest_total_bytes and len(self._unfinished) > 1:
            self._unfinished.popitem(last=False)

    def _held_bytes(self) -> int:
        return sum(receiver.manifest.size_bytes for receiver in self._unfinished.values())


class FramedTransport:
    """A `Transport` without a limit of message size, over one that has it.

    Args:
        inner: The transport below.
        chunk_bytes: Largest packet's content.
    """

    def __init__(self, inner: Transport, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        """Wrap a transport."""
        self._inner = inner
        self._chunk_bytes = chunk_bytes
        self._reassembler = Reassembler()
        self.damaged_frames = 0

    async def start(self) -> None:
        """Begin connecting."""
        await self._inner.start()

    async def subscribe(self, *filters: str) -> None:
        """Subscribe below."""
        await self._inner.subscribe(*filters)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish a message in as many packets as it needs; a retained one must fit into one."""
        for packet in [payload] if retain else frames_of(payload, self._chunk_bytes):
            await self._inner.publish(topic, packet, retain=retain)

    async def events(self) -> AsyncIterator[TransportEvent]:
        """Yield events with whole messages; a damaged frame is counted and dropped."""
        async for event in self._inner.events():
            if not isinstance(event, Inbound):
                yield event
                continue
            try:
                payload = self._reassembler.accept(event.topic, event.payload)
            except WireError:
                self.damaged_frames += 1
                continue
            if payload is not None:
                yield Inbound(topic=event.topic, payload=payload, retained=event.retained)

    async def close(self) -> None:
        """Close below."""
        await self._inner.close()
