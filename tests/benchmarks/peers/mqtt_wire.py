"""A thin MQTT 3.1.1 client: thousands of devices in one process, for load, on loopback only.

What it sends and answers are ordinary packets; it costs its own process little, so that the other
side is what a machine is busy with. Source: MQTT 3.1.1, sections 2 and 3.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Sequence

CONNACK, PUBLISH, PUBACK, SUBACK, PINGRESP = 2, 3, 4, 9, 13
_PING = b"\xc0\x00"
_DISCONNECT = b"\xe0\x00"
_PATIENCE_S = 120.0

Heard = Callable[[str, bytes], None]
"""Called with topic and payload."""


class MqttWire(asyncio.Protocol):
    """One connection. Packets that arrive in pieces are put together, and answered when whole.

    Args:
        on_message: Called with each message; its PUBACK has gone out before.

    Attributes:
        session_present: What the server said of the session.
        received_bytes: Payloads so far.
    """

    def __init__(self, on_message: Heard | None = None) -> None:
        """Prepare; the event loop connects it."""
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._needed_bytes = 2
        self._connack: asyncio.Future[bool] = self._loop.create_future()
        self._acks: dict[int, asyncio.Future[None]] = {}
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._number = 0
        self._lost = asyncio.Event()
        self.session_present = False
        self.received_bytes = 0

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone."""
        return self._lost.is_set()

    @property
    def socket(self) -> socket.socket:
        """What the connection's bytes go through.

        Raises:
            ConnectionError: There is none.
        """
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is None:
            raise ConnectionError("no socket")
        return found  # type: ignore[no-any-return]

    # ------------------------------------------------------------ what a user does

    async def begin(
        self,
        client_id: str,
        *,
        is_clean: bool = True,
        keepalive_s: int = 600,
        will: tuple[str, bytes] | None = None,
    ) -> None:
        """Send CONNECT and wait for its answer.

        Raises:
            ConnectionError: The server refuses.
        """
        self._write(connect_packet(client_id, is_clean, keepalive_s, will))
        async with asyncio.timeout(_PATIENCE_S):
            self.session_present = await self._connack

    async def subscribe(self, filters: Sequence[str]) -> None:
        """Subscribe at QoS 1 and wait for the answer."""
        number, answered = self._expect()
        self._write(subscribe_packet(number, filters))
        async with asyncio.timeout(_PATIENCE_S):
            await answered

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool = False
    ) -> asyncio.Future[None]:
        """Send a message at QoS 1, when there is room; return what its PUBACK ends."""
        await self._resumed.wait()
        number, answered = self._expect()
        self._write(publish_head(topic, number, len(payload), retain=retain))
        self._write(payload)
        return answered

    async def until_lost(self) -> None:
        """Wait until the connection is gone."""
        await self._lost.wait()

    def ping(self) -> None:
        """Send PINGREQ."""
        self._write(_PING)

    def leave(self) -> None:
        """Say goodbye; the session stays where it is not clean."""
        self._write(_DISCONNECT)
        if self._transport is not None:
            self._transport.close()

    def vanish(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note where to write."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def pause_writing(self) -> None:
        """Hold back publishers."""
        self._resumed.clear()

    def resume_writing(self) -> None:
        """Let publishers go on."""
        self._resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End whatever waits."""
        self._lost.set()
        self._resumed.set()
        _fail(self._connack, exc)
        for waiting in self._acks.values():
            _fail(waiting, exc)
        self._acks.clear()

    def data_received(self, data: bytes) -> None:
        """Collect until a packet is whole: a large one costs one joining, not one for each part."""
        self._parts.append(data)
        self._part_bytes += len(data)
        if self._part_bytes < self._needed_bytes:
            return
        buffer = data if len(self._parts) == 1 else b"".join(self._parts)
        at = 0
        while (found := packet_at(buffer, at)) is not None and found[1] <= len(buffer):
            body, end = found
            self._take(buffer[at], buffer[body:end])
            at = end
        rest = buffer[at:]
        self._parts, self._part_bytes = [rest], len(rest)
        self._needed_bytes = len(rest) + 1 if found is None else found[1] - at

    # ------------------------------------------------------------ packets

    def _take(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == PUBLISH:
            self._on_publish(first, body)
        elif kind == CONNACK and not self._connack.done():
            if body[1]:
                self._connack.set_exception(ConnectionError(f"CONNACK says {body[1]}"))
            else:
                self._connack.set_result(bool(body[0] & 1))
        elif kind in (PUBACK, SUBACK):
            waiting = self._acks.pop(int.from_bytes(body[:2], "big"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def _on_publish(self, first: int, body: bytes) -> None:
        topic_end = 2 + int.from_bytes(body[:2], "big")
        start = topic_end
        if first >> 1 & 3:
            start += 2
            self._write(b"\x40\x02" + body[topic_end:start])
        self.received_bytes += len(body) - start
        if self._on_message is not None:
            self._on_message(body[2:topic_end].decode(), body[start:])

    def _expect(self) -> tuple[int, asyncio.Future[None]]:
        if self.is_lost:
            raise ConnectionError("the connection ended before")
        self._number = self._number % 65_535 + 1
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._acks[self._number] = waiting
        return self._number, waiting

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.is_lost:
            self._transport.write(data)


def _fail(waiting: asyncio.Future[bool] | asyncio.Future[None], cause: Exception | None) -> None:
    if not waiting.done():
        waiting.set_exception(ConnectionError(f"the connection ended: {cause}"))
        waiting.exception()  # nobody may look at it any more


async def connect(
    port: int,
    client_id: str,
    *,
    is_clean: bool = True,
    keepalive_s: int = 600,
    will: tuple[str, bytes] | None = None,
    on_message: Heard | None = None,
    tls: ssl.SSLContext | None = None,
) -> MqttWire:
    """Return a connected client of 127.0.0.1.

    Raises:
        ConnectionError: Nobody listens, or the server refuses.
    """
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(
        lambda: MqttWire(on_message),
        "127.0.0.1",
        port,
        ssl=tls,
        server_hostname=None if tls is None else "127.0.0.1",
    )
    await client.begin(client_id, is_clean=is_clean, keepalive_s=keepalive_s, will=will)
    return client


def connect_packet(
    client_id: str, is_clean: bool, keepalive_s: int, will: tuple[str, bytes] | None
) -> bytes:
    """Return CONNECT of MQTT 3.1.1; a will is retained and QoS 1."""
    flags = 0x02 if is_clean else 0
    tail = _text(client_id)
    if will is not None:
        flags |= 0x04 | 0x08 | 0x20
        tail += _text(will[0]) + struct.pack(">H", len(will[1])) + will[1]
    body = _text("MQTT") + bytes((4, flags)) + struct.pack(">H", keepalive_s) + tail
    return b"\x10" + _length(len(body)) + body


def subscribe_packet(number: int, filters: Sequence[str]) -> bytes:
    """Return SUBSCRIBE at QoS 1."""
    wished = b"".join(_text(one) + b"\x01" for one in filters)
    return b"\x82" + _length(2 + len(wished)) + struct.pack(">H", number) + wished


def publish_head(topic: str, number: int, payload_bytes: int, *, retain: bool = False) -> bytes:
    """Return PUBLISH at QoS 1 up to its payload."""
    name = _text(topic)
    size = len(name) + 2 + payload_bytes
    return bytes((0x32 | retain,)) + _length(size) + name + struct.pack(">H", number)


def packet_at(buffer: bytes, at: int) -> tuple[int, int] | None:
    """Return where a packet's body begins and ends; None while its length has not arrived."""
    size = shift = 0
    for index in range(at + 1, min(at + 5, len(buffer))):
        byte = buffer[index]
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return index + 1, index + 1 + size
    return None


def _length(size: int) -> bytes:
    out = bytearray()
    while True:
        size, low = size >> 7, size & 0x7F
        out.append(low | (0x80 if size else 0))
        if not size:
            return bytes(out)


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw
