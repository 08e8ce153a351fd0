"""A transport whose events are recorded, at our own endpoint or at any broker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from broker.endpoint_transport import EndpointTransport
from edgefl.transport.base import (
    Inbound,
    LinkDown,
    LinkDownReason,
    LinkUp,
    Transport,
    TransportEvent,
    Will,
)
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from tests.integration.local_endpoint import local_endpoint


class Client:
    """A transport whose events are recorded."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.events: list[TransportEvent] = []

    @property
    def inbound(self) -> list[Inbound]:
        return [event for event in self.events if isinstance(event, Inbound)]

    @property
    def down_reasons(self) -> list[LinkDownReason]:
        return [event.reason for event in self.events if isinstance(event, LinkDown)]

    @property
    def ups(self) -> list[LinkUp]:
        return [event for event in self.events if isinstance(event, LinkUp)]

    def payloads(self, topic: str) -> list[bytes]:
        return [event.payload for event in self.inbound if event.topic == topic]

    async def record(self) -> None:
        async for event in self.transport.events():
            self.events.append(event)
            if isinstance(self.transport, EndpointTransport) and isinstance(event, Inbound):
                # As the gateway does, or a device is stuck behind its window.
                self.transport.acknowledge([] if event.ticket is None else [event.ticket])


@contextlib.asynccontextmanager
async def recorded(transport: Transport, *filters: str) -> AsyncIterator[Client]:
    """Start a transport, without waiting for its connection."""
    client = Client(transport)
    await transport.subscribe(*filters)
    await transport.start()
    recorder = asyncio.create_task(client.record())
    try:
        yield client
    finally:
        await transport.close()
        await recorder


@contextlib.asynccontextmanager
async def endpoint_at(port: int = 0) -> AsyncIterator[int]:
    """Serve our own endpoint on loopback; yields the port."""
    with local_endpoint(port) as bound:
        yield bound


def link_to(port: int, name: str, will: Will | None = None, **settings: object) -> MqttTransport:
    """Return a link to the endpoint, which is not started."""
    return MqttTransport(
        MqttSettings(brokers=(plain_broker(port),), client_id=name, **settings), will
    )


def connected(
    port: int, name: str, *filters: str, will: Will | None = None, **settings: object
) -> contextlib.AbstractAsyncContextManager[Client]:
    """Start a link to the endpoint."""
    return recorded(link_to(port, name, will, **settings), *filters)
