"""Find out what listens at an address: a broker, something else, nothing; and what it retains."""

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from edgefl.errors import TransportError
from edgefl.transport.base import require_topic
from edgefl.transport.broker_url import require_loopback, require_port

_CONNACK, _PUBLISH, _SUBACK = 0x20, 0x30, 0x90
_MAX_PACKET_BYTES = 1 << 20


async def probe_broker(host: str, port: int, *, timeout_s: float = 5.0) -> None:
    """Connect once as an MQTT client and leave again.

    Args:
        host: Loopback name or address.
        port: TCP port.
        timeout_s: Bound on the whole.

    Raises:
        ConfigError: the host is not loopback, or the port is out of range.
        TransportError: E-BROKER-UNREACHABLE, nothing listens; E-NOT-MQTT, something else does;
            E-BROKER-REFUSED, the broker wants credentials or another protocol version.
    """
    async with _bounded(host, port, timeout_s), _connection(host, port):
        pass


async def read_retained(
    host: str, port: int, topic: str, *, timeout_s: float = 5.0
) -> bytes | None:
    """Return the retained message of a topic, or None when there is none within the time.

    A gateway of ours keeps one on its fleet's `agg` topic; a broker without it is a stranger's,
    or its gateway has not come up yet.

    Args:
        host: Loopback name or address.
        port: TCP port.
        topic: The exact topic.
        timeout_s: Bound on connecting, and again on waiting for the message.

    Raises:
        ConfigError: the host is not loopback, the port is out of range, the topic is malformed.
        TransportError: as `probe_broker`.
    """
    require_topic(topic)
    async with _bounded(host, port, 2 * timeout_s), _connection(host, port) as (reader, writer):
        name = topic.encode()
        body = struct.pack(">HH", 1, len(name)) + name + b"\0"
        writer.write(bytes([0x82]) + _length(len(body)) + body)
        await writer.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await _first_retained(reader, topic)
    return None


async def _first_retained(reader: asyncio.StreamReader, topic: str) -> bytes | None:
    """Read packets until the message on the topic comes or the subscription is refused."""
    while True:
        head, body = await _read_packet(reader)
        if head & 0xF0 == _SUBACK and body[2:3] == b"\x80":
            return None
        if head & 0xF0 == _PUBLISH and len(body) >= 2:
            (name_bytes,) = struct.unpack(">H", body[:2])
            payload_start = 2 + name_bytes + (2 if head & 0x06 else 0)
            if body[2 : 2 + name_bytes] == topic.encode():
                return body[payload_start:]


@asynccontextmanager
async def _bounded(host: str, port: int, timeout_s: float) -> AsyncIterator[None]:
    """Turn what a stranger's bytes or silence cause into one error."""
    require_loopback(host)
    require_port(port)
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (TimeoutError, OSError, asyncio.IncompleteReadError, _NotMqttError) as error:
        is_foreign = isinstance(error, _NotMqttError)
        raise TransportError(
            "E-NOT-MQTT",
            f"an MQTT broker at {host}:{port}",
            str(error) if is_foreign else "a server that gives no answer to CONNECT",
            "correct the port: another kind of server is there",
        ) from error


@asynccontextmanager
async def _connection(
    host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give an MQTT 3.1.1 connection with a clean session."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise TransportError(
            "E-BROKER-UNREACHABLE",
            f"a broker at {host}:{port}",
            "nothing listening",
            "start the gateway (edgefl gateway run), or correct the address",
        ) from error
    try:
        client_id = f"probe-{secrets.token_hex(6)}".encode()
        body = b"\0\4MQTT\4\2" + struct.pack(">HH", 30, len(client_id)) + client_id
        writer.write(bytes([0x10]) + _length(len(body)) + body)
        await writer.drain()
        _require_accepted(await reader.readexactly(4), f"{host}:{port}")
        yield reader, writer
        writer.write(b"\xe0\0")
        await writer.drain()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _require_accepted(answer: bytes, address: str) -> None:
    """Check a CONNACK: four bytes, the last is the verdict."""
    if answer[:2] != bytes([_CONNACK, 2]) or answer[2] > 1:
        raise _NotMqttError("an answer that is no CONNACK")
    if answer[3] != 0:
        raise TransportError(
            "E-BROKER-REFUSED",
            f"a broker at {address} that takes MQTT 3.1.1 clients without credentials",
            f"refusal code {answer[3]}",
            "point the agent at the gateway's own broker",
        )


async def _read_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one packet of bounded size: its first byte and its body."""
    (head,) = await reader.readexactly(1)
    size_bytes = 0
    for position in range(4):
        (byte,) = await reader.readexactly(1)
        size_bytes |= (byte & 0x7F) << (7 * position)
        if not byte & 0x80:
            break
    if size_bytes > _MAX_PACKET_BYTES:
        raise _NotMqttError("a packet of impossible length")
    return head, await reader.readexactly(size_bytes)


def _length(size_bytes: int) -> bytes:
    """Return MQTT's variable-length size for bodies below 16 KiB."""
    if size_bytes < 0x80:
        return bytes([size_bytes])
    return bytes([size_bytes & 0x7F | 0x80, size_bytes >> 7])


class _NotMqttError(Exception):
    """The peer's bytes are not MQTT."""
