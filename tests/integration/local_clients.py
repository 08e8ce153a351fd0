"""One honest client of the endpoint's plaintext port, and how long it waits for its own word."""

import asyncio
import itertools
import time

from tests.integration.hostile_clients import HOST, connect, packet, publish, text

_PATIENCE_S = 20.0
_numbers = itertools.count()


async def round_trip_s(port: int) -> float:
    """Connect, subscribe, publish, and wait for the message."""
    name = f"honest-{next(_numbers)}"
    started_s = time.monotonic()
    async with asyncio.timeout(_PATIENCE_S):
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
            writer.close()
            await writer.wait_closed()
    return time.monotonic() - started_s
