"""Clients that mean no good: silent, endlessly slow, deaf, flooding.

Run as a script with a port: a thousand of them, until it is killed.
"""

import asyncio
import contextlib
import struct
import sys
from collections.abc import Awaitable, Callable

HOST = "127.0.0.1"
_FLOOD_BYTES = 1_000
_DEAF_BYTES = 50_000
Hostility = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


def packet(kind: int, body: bytes, announced_bytes: int | None = None) -> bytes:
    """Return a packet, or the beginning of one that is said to be longer."""
    remaining = len(body) if announced_bytes is None else announced_bytes
    header = bytearray([kind])
    while True:
        remaining, low = divmod(remaining, 128)
        header.append(low | (128 if remaining else 0))
        if not remaining:
            return bytes(header) + body


def connect(client_id: str) -> bytes:
    return packet(0x10, b"\0\4MQTT\4\2\0\x3c" + text(client_id))


def publish(topic: str, payload: bytes) -> bytes:
    return packet(0x30, text(topic) + payload)


async def stay_silent(
    _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _number: int
) -> None:
    """Never say a word."""
    await asyncio.sleep(3600)


async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Say a CONNECT a byte at a time."""
    for byte in connect(f"drip-{number}" + "x" * 200):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.2)


async def stop_half_way(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> None:
    """Announce a large packet, and send little of it."""
    writer.write(connect(f"half-{number}"))
    await reader.readexactly(4)
    writer.write(packet(0x30, text("half") + bytes(100), announced_bytes=250_000))
    await asyncio.sleep(3600)


async def be_deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Subscribe to what one says oneself, say much, and read nothing."""
    topic = f"deaf/{number}"
    writer.write(connect(f"deaf-{number}"))
    await reader.readexactly(4)
    writer.write(packet(0x82, b"\0\1" + text(topic) + b"\1"))
    await reader.readexactly(5)
    writer.transport.pause_reading()
    while True:
        writer.write(packet(0x32, text(topic) + b"\0\7" + bytes(_DEAF_BYTES)))
        await writer.drain()


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Send a device's topic full of rubbish, as fast as it is taken."""
    writer.write(connect(f"edgefl-local-flood{number}"))
    await reader.readexactly(4)
    rubbish = publish(f"efl/1/local/d/flood{number}/q", bytes(_FLOOD_BYTES)) * 20
    while True:
        writer.write(rubbish)
        await writer.drain()


SIEGE: dict[Hostility, int] = {
    stay_silent: 350,
    drip: 250,
    stop_half_way: 250,
    be_deaf: 100,
    flood: 50,
}


async def besiege(port: int) -> None:
    """Open so many connections of each kind, and keep at it."""

    async def attack(hostility: Hostility, number: int) -> None:
        # Being thrown out, also half way through a word, is what these are here for.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(HOST, port, limit=1024)
            try:
                await hostility(reader, writer, number)
            finally:
                writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        for hostility, count in SIEGE.items():
            for number in range(count):
                group.create_task(attack(hostility, number))
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(besiege(int(sys.argv[1])))
