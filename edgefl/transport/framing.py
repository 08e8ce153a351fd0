"""Send messages of any size over a broker that limits packets: split, and put together again.

A message up to one chunk travels as it is. A larger one becomes a manifest and chunks on the same
topic; when it is sent again, chunks that arrived already are kept. What arrives whole is handed up
as if it had come in one piece; its signature is checked there.
"""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.transfer.manifest import (
    DEFAULT_CHUNK_BYTES,
    HASH_BYTES,
    Manifest,
    chunks_of,
    describe,
    read_manifest,
)
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
    manifest = describe(payload, chunk_bytes)
    sizes: wire.Body = {0: manifest.size_bytes, 1: manifest.chunk_bytes, 2: manifest.chunk_hashes}
    return [
        wire.encode([_MANIFEST, manifest.root, sizes]),
        *(
            wire.encode([_CHUNK, manifest.root, {0: index, 1: bytes(data)}])
            for index, data in enumerate(chunks_of(payload, chunk_bytes))
        ),
    ]


class _Unfinished:
    """One message whose packets are arriving."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.chunks: dict[int, bytes] = {}

    def accept(self, index: int, data: bytes) -> None:
        """Take a chunk if it is the right one."""
        start = index * HASH_BYTES
        if hashlib.sha256(data).digest() == self.manifest.chunk_hashes[start : start + HASH_BYTES]:
            self.chunks[index] = data

    @property
    def is_whole(self) -> bool:
        """Tell whether every chunk is there."""
        return len(self.chunks) == self.manifest.chunk_count

    def whole(self) -> bytes:
        """Return the message."""
        return b"".join(self.chunks[index] for index in range(self.manifest.chunk_count))


class Reassembler:
    """Puts the packets of large messages together, within a bound of memory.

    Args:
        largest_total_bytes: Over all unfinished messages; the oldest is dropped to keep it.
    """

    def __init__(self, largest_total_bytes: int = _LARGEST_TOTAL_BYTES) -> None:
        """Start with nothing unfinished."""
        self._largest_total_bytes = largest_total_bytes
        self._unfinished: OrderedDict[str, _Unfinished] = OrderedDict()

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
        unfinished = self._unfinished.get(topic)
        if unfinished is None or unfinished.manifest.root != sha256:
            return None  # Its manifest got lost or is outdated; the message will be sent again.
        body = wire.as_body(content)
        index = wire.as_int(wire.field(body, 0), 0, 2**32)
        unfinished.accept(index, wire.as_bytes(wire.field(body, 1)))
        if not unfinished.is_whole:
            return None
        del self._unfinished[topic]
        return unfinished.whole()

    def _begin(self, topic: str, content: wire.WireValue) -> None:
        body = wire.as_body(content)
        manifest = read_manifest(
            wire.as_int(wire.field(body, 0), 1, _LARGEST_MESSAGE_BYTES),
            wire.as_int(wire.field(body, 1), 1, _LARGEST_MESSAGE_BYTES),
            wire.as_bytes(wire.field(body, 2)),
        )
        present = self._unfinished.get(topic)
        if present is not None and present.manifest == manifest:
            return
        self._unfinished.pop(topic, None)
        self._unfinished[topic] = _Unfinished(manifest)
        while self._held_bytes() > self._largest_total_bytes and len(self._unfinished) > 1:
            self._unfinished.popitem(last=False)

    def _held_bytes(self) -> int:
        return sum(one.manifest.size_bytes for one in self._unfinished.values())


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

    @property
    def max_packet_bytes(self) -> int | None:
        """Largest packet that the broker takes."""
        return self._inner.max_packet_bytes

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry_s: float | None = None
    ) -> None:
        """Publish a message in as many packets as it needs; a retained one must fit into one."""
        for packet in [payload] if retain else frames_of(payload, self._chunk_bytes):
            await self._inner.publish(topic, packet, retain=retain, expiry_s=expiry_s)

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

    def acknowledge(self, tickets: Sequence[int]) -> None:
        """Pass it on."""
        self._inner.acknowledge(tickets)

    async def close(self) -> None:
        """Close below."""
        await self._inner.close()
