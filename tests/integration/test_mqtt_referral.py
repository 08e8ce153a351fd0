"""A broker that sends its clients elsewhere, a cluster that answers late, brokers that are gone."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

import pytest

from edgefl.transport.base import LinkDown, LinkDownReason, LinkUp
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings, MqttVersion
from tests.integration.real import free_port

TAKEN = b"\x20\x03\x00\x00\x00"


def referral(to: str) -> bytes:
    """Return a CONNACK of MQTT 5 with 'use another server'."""
    name = to.encode()
    properties = b"\x1c" + struct.pack(">H", len(name)) + name
    body = b"\x00\x9c" + bytes([len(properties)]) + properties
    return b"\x20" + bytes([len(body)]) + body


@contextlib.asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[int]:
    """Answer each CONNECT alike, and keep the connection where it was taken."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(2)
            writer.write(answer)
            await writer.drain()
            if answer == TAKEN:
                while await reader.read(1000):
                    pass
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


async def first_up(*ports: int) -> tuple[MqttTransport, int]:
    """Connect, and return where it led."""
    brokers = tuple(plain_broker(port) for port in ports)
    transport = MqttTransport(MqttSettings(brokers=brokers, client_id="a", version=MqttVersion.V5))
    await transport.start()
    async with asyncio.timeout(20):
        async for event in transport.events():
            if isinstance(event, LinkUp):
                return transport, transport.address.port
    raise AssertionError("closed")


def test_a_referral_is_followed():
    async def run() -> None:
        async with server(TAKEN) as there, server(referral(f"127.0.0.1:{there}")) as here:
            transport, port = await first_up(here)
            assert port == there
            await transport.close()

    asyncio.run(run())


@pytest.mark.parametrize("to", ["broker.example:1883", "mqtts://broker.example", "nonsense"])
def test_a_referral_off_this_machine_is_not_followed_without_tls(to):
    async def run() -> None:
        async with server(TAKEN) as there, server(referral(to)) as here:
            transport, port = await first_up(here, there)
            assert port == there  # the second address that was given
            await transport.close()

    asyncio.run(run())


def test_the_next_address_is_tried_without_a_pause():
    async def run() -> None:
        async with server(TAKEN) as there:
            gone = [free_port() for _ in range(3)]
            began = asyncio.get_running_loop().time()
            transport, port = await first_up(*gone, there)
            assert port == there
            assert asyncio.get_running_loop().time() - began < 2.0
            await transport.close()

    asyncio.run(run())


def test_a_link_that_stands_can_be_moved():
    async def run() -> None:
        async with server(TAKEN) as there, server(TAKEN) as here:
            transport, port = await first_up(here)
            assert port == here
            assert not transport.move_to("broker.example:1883")
            assert transport.move_to(f"127.0.0.1:{there}")
            async with asyncio.timeout(10):
                async for event in transport.events():
                    if isinstance(event, LinkUp):
                        break
            assert transport.address.port == there
            await transport.close()

    asyncio.run(run())


@pytest.mark.parametrize("version", [MqttVersion.V311, MqttVersion.V5])
def test_a_refusal_that_says_nothing_is_told_with_what_it_may_mean(version):
    """A broker of 3.1.1 that was told to let a revoked device in no more can only say 'no'."""
    no = b"\x20\x02\x00\x05" if version is MqttVersion.V311 else b"\x20\x03\x00\x87\x00"

    async def run() -> LinkDown:
        async with server(no) as here:
            settings = MqttSettings(brokers=(plain_broker(here),), client_id="a", version=version)
            transport = MqttTransport(settings)
            await transport.start()
            try:
                async with asyncio.timeout(10):
                    async for event in transport.events():
                        if isinstance(event, LinkDown):
                            return event
            finally:
                await transport.close()
        raise AssertionError("closed")

    down = asyncio.run(run())
    assert down.reason is LinkDownReason.REFUSED
    assert "may have put this device out" in down.detail
    assert "revoked" not in down.detail, "at that word of its own gateway an agent stops for good"
