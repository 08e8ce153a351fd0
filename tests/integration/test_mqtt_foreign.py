"""What an agent meets at a wrong address: nothing, another kind of server, another's broker."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from edgefl._native import MqttEndpoint
from edgefl.errors import ConfigError, TransportError
from edgefl.transport.base import LinkDown, LinkDownReason
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.probe import probe_broker, read_retained
from edgefl.transport.settings import MqttSettings

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.2\r\n"
ANSWERS = {
    "http": HTTP,
    "ssh": SSH,
    "zeros": bytes(16),
    "closes": b"",
    "almost": b"\x20\x02\x07\x00",
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


def free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


async def probe_error(port: int) -> TransportError:
    with pytest.raises(TransportError) as caught:
        await probe_broker("127.0.0.1", port, timeout_s=1.0)
    assert "\n" not in str(caught.value)
    assert str(port) in str(caught.value)
    return caught.value


@pytest.mark.parametrize("name", ANSWERS)
def test_the_probe_names_a_server_that_is_no_broker(name):
    async def run():
        async with server(ANSWERS[name]) as port:
            return await probe_error(port)

    assert asyncio.run(run()).code == "E-NOT-MQTT"


def test_the_probe_names_a_silent_server():
    async def run():
        async with server(None) as port:
            return await probe_error(port)

    assert asyncio.run(run()).code == "E-NOT-MQTT"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_probe_names_an_empty_port(host):
    with pytest.raises(TransportError) as caught:
        asyncio.run(probe_broker(host, free_port()))
    assert caught.value.code == "E-BROKER-UNREACHABLE"
    assert caught.value.exit_code == 5


def test_the_probe_names_a_broker_that_refuses():
    async def run():
        async with server(b"\x20\x02\x00\x05") as port:
            return await probe_error(port)

    assert asyncio.run(run()).code == "E-BROKER-REFUSED"


def test_a_strangers_broker_has_no_gateway_status_and_ours_has():
    endpoint = MqttEndpoint("fleet", mqtt="127.0.0.1:0")
    topic = "efl/1/fleet/agg"

    async def run(port):
        await probe_broker("127.0.0.1", port)
        before = await read_retained("127.0.0.1", port, topic, timeout_s=0.3)
        endpoint.publish(topic, b"online", 1, True)
        return before, await read_retained("127.0.0.1", port, topic)

    try:
        assert asyncio.run(run(endpoint.start()["mqtt"])) == (None, b"online")
    finally:
        endpoint.close()


@pytest.mark.parametrize("name", ["http", "ssh", "zeros"])
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


def test_other_machines_are_refused_before_any_packet():
    with pytest.raises(ConfigError, match="E-PLAINTEXT-REMOTE"):
        asyncio.run(probe_broker("192.0.2.1", 1883))
