"""What an agent meets at a wrong address: another kind of server, or one that says nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from edgefl.transport.base import LinkDown, LinkDownReason
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.2\r\n"
ANSWERS = {
    "http": HTTP,
    "ssh": SSH,
    "zeros": bytes(16),
}


@contextlib.asynccontextmanager
async def server(answer: bytes | None) -> AsyncIterator[int]:
    """Serve on a free port: read, answer and close; None: stay silent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await listener.wait_closed()


@pytest.mark.parametrize("name", ANSWERS)
def test_the_transport_reports_a_server_that_is_no_broker_and_survives_it(name):
    async def run():
        async with server(ANSWERS[name]) as port:
            transport = MqttTransport(MqttSettings(brokers=(plain_broker(port),), client_id="a"))
            await transport.start()
            try:
                async with asyncio.timeout(5):
                    async for event in transport.events():
                        return event
            finally:
                await transport.close()
        return None

    event = asyncio.run(run())
    assert isinstance(event, LinkDown)
    assert event.reason is LinkDownReason.NOT_MQTT


def test_the_transport_reports_a_silent_server():
    async def run():
        async with server(None) as port:
            settings = MqttSettings(
                brokers=(plain_broker(port),), client_id="a", connect_timeout_s=0.3
            )
            transport = MqttTransport(settings)
            await transport.start()
            try:
                async with asyncio.timeout(12):
                    events = transport.events()
                    return [await anext(events), await anext(events)]
            finally:
                await transport.close()

    # Silence alone may be a cluster that chooses a leader; silence without end is no broker.
    reasons = [event.reason for event in asyncio.run(run()) if isinstance(event, LinkDown)]
    assert reasons == [LinkDownReason.SILENT, LinkDownReason.NOT_MQTT]
