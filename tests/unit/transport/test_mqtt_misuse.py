"""The MQTT transport refuses misuse and closes cleanly at any point of its life."""

import asyncio
import socket

import pytest

from edgefl.errors import ConfigError, TransportError
from edgefl.transport.base import LinkDown, LinkDownReason
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings

# port 9 (discard): nothing listens there on a test machine, and nothing needs to
SETTINGS = MqttSettings(brokers=(plain_broker(9),), client_id="a")


def test_misuse_is_refused():
    async def run():
        transport = MqttTransport(SETTINGS)
        with pytest.raises(ConfigError, match="E-TOPIC"):
            await transport.subscribe("good", "bad#")
        with pytest.raises(ConfigError, match="E-TOPIC"):
            await transport.publish("a/+", b"")
        await transport.start()
        with pytest.raises(TransportError, match="E-TRANSPORT-STARTED"):
            await transport.start()
        await transport.close()
        await transport.close()
        for misuse in (transport.start(), transport.subscribe("a"), transport.publish("a", b"")):
            with pytest.raises(TransportError, match="E-TRANSPORT-CLOSED"):
                await misuse

    asyncio.run(run())


def test_close_without_start_ends_the_events():
    async def run():
        transport = MqttTransport(SETTINGS)
        await transport.close()
        return [event async for event in transport.events()]

    (event,) = asyncio.run(run())
    assert isinstance(event, LinkDown)
    assert event.reason is LinkDownReason.CLOSED


def test_close_does_not_wait_for_a_broker_that_is_not_there():
    async def run():
        transport = MqttTransport(SETTINGS)
        await transport.start()
        await transport.publish("a", b"never sent")
        async with asyncio.timeout(1.5):
            await transport.close()
        return [event async for event in transport.events()]

    assert isinstance(asyncio.run(run())[-1], LinkDown)


def test_a_socket_that_fails_after_connecting_is_not_a_foreign_service(monkeypatch):
    """The broker's death may show as an error of any call on the socket."""

    def fail(*_args: object) -> int:
        raise OSError(107, "Transport endpoint is not connected")

    async def run() -> LinkDown:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            monkeypatch.setattr("paho.mqtt.client.Client.loop_misc", fail)
            transport = MqttTransport(MqttSettings(brokers=(plain_broker(port),), client_id="a"))
            await transport.start()
            async with asyncio.timeout(5):
                async for event in transport.events():
                    assert isinstance(event, LinkDown)
                    break
            await transport.close()
            return event

    assert asyncio.run(run()).reason is LinkDownReason.UNREACHABLE
