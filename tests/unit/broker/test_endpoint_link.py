"""The gateway's link over its own endpoint: what it tells of itself, and that it lets go."""

import asyncio
import socket

import pytest

from broker.config import Listening
from broker.endpoint_link import EndpointLink
from edgefl import _native
from edgefl._native import UploadStage
from edgefl.errors import EnvironmentProblem, TransportError
from edgefl.protocol.topics import parse_fleet
from edgefl.transport.base import Inbound, LinkDown, LinkUp
from tests.integration.local_clients import round_trip_s

FLEET = parse_fleet("lab")


def link(**ports: int | None) -> EndpointLink:
    closed = {"mqtt_port": None, "mqtts_port": None, "wss_port": None, "ws_port": None}
    return EndpointLink(
        fleet=FLEET,
        listening=Listening(**{**closed, **ports}),
        topics=("efl/1/lab/d/+/q", "t/#"),
        stage=UploadStage(1 << 20, 4),
        tls=None,
        max_connections=10,
    )


def test_it_says_where_it_listens_and_frees_its_ports() -> None:
    async def run() -> tuple[dict, tuple[str, ...]]:
        one = link(mqtt_port=0, ws_port=0)
        await one.start()
        supervising = asyncio.create_task(one.supervise())
        described, addresses = one.describe(), one.addresses
        assert await round_trip_s(int(str(described["port"]))) < 10
        await one.close()
        await one.close()
        async with asyncio.timeout(5):
            await supervising
        return described, addresses

    described, addresses = asyncio.run(run())
    mqtt, ws = described["mqtt_port"], described["ws_port"]
    assert described == {"host": "127.0.0.1", "port": mqtt, "mqtt_port": mqtt, "ws_port": ws}
    assert addresses == (f"mqtt://127.0.0.1:{mqtt}", f"ws://127.0.0.1:{ws}/mqtt")
    for port in (mqtt, ws):
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_what_comes_before_the_first_subscribe_is_not_lost() -> None:
    """A device may be quicker than the gateway, which reads its tasks first."""

    async def run() -> list[object]:
        one = link(mqtt_port=0)
        await one.start()
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(str(one.describe()["port"]))
            )
            writer.write(b"\x10\x0d\0\4MQTT\4\2\0\x3c\0\1x" + b"\x32\x08\0\3t/1\0\7!")
            await reader.readexactly(4)
            await one.transport.start()
            events = []
            async for event in one.transport.events():
                events.append(event)
                if isinstance(event, Inbound):
                    one.transport.acknowledge([event.ticket or 0])
                    # The PUBACK comes after the acknowledgement, and only then.
                    assert await reader.readexactly(4) == b"\x40\2\0\7"
                    await one.transport.close()
            writer.close()
            return events
        finally:
            await one.close()

    up, message, down = asyncio.run(run())
    assert isinstance(up, LinkUp)
    assert isinstance(message, Inbound)
    assert (message.topic, message.payload, message.sender) == ("t/1", b"!", None)
    assert isinstance(down, LinkDown)


def test_a_gateway_that_listens_nowhere_is_refused() -> None:
    with pytest.raises(TransportError, match="E-NO-LISTENER"):
        asyncio.run(link().start())


def test_a_build_without_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_native, "MqttEndpoint")
    with pytest.raises(EnvironmentProblem, match="E-NO-ENDPOINT"):
        link(mqtt_port=0)
