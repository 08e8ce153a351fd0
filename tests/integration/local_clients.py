"""One honest client of the endpoint's plaintext port, and how long it waits for its own word."""

import asyncio
import itertools
import time

from tests.integration.hostile_clients import HOST, connect, packet, publish, text

_PATIENCE_S = 20.0
_AGAIN_S = 0.1
_numbers = itertools.count()


async def round_trip_s(port: int) -> float:
    """Connect, subscribe, publish, and wait for the message; again where it is turned away."""
    started_s = time.monotonic()
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            try:
                await _round_trip(port)
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(_AGAIN_S)
            else:
                return time.monotonic() - started_s


async def _round_trip(port: int) -> None:
    name = f"honest-{next(_numbers)}"
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(connect(name))
        await reader.readexactly(4)
        writer.write(packet(0x82, b"\0\1" + text(name) + b"\0"))
        await reader.readexactly(5)
        message = publish(name, b"hello")
        writer.write(message)
        assert await reader.readexactly(len(message)) == message
    finally:
        writer.transport.abort()
