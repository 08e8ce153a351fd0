"""Watch the fleet's messages over MQTT, as anyone on the broker could."""

import asyncio
import logging
from collections.abc import Callable

from edgefl.demo.chaos import Seen
from edgefl.errors import WireError
from edgefl.protocol import topics
from edgefl.protocol.envelope import open_envelope
from edgefl.transport.base import Inbound
from edgefl.transport.broker_url import plain_broker
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from edgefl.types import FleetName

_LOGGER = logging.getLogger(__name__)


async def observe(fleet: FleetName, port: int, on_seen: Callable[[Seen], None]) -> None:
    """Call `on_seen` for each message of a device, until cancelled."""
    settings = MqttSettings(
        brokers=(plain_broker(port),), client_id="observer-of-the-demo", keepalive_s=20
    )
    transport = MqttTransport(settings)
    try:
        await transport.start()
        await transport.subscribe(topics.all_uplinks(fleet))
        async for event in transport.events():
            if isinstance(event, Inbound):
                _tell(event, on_seen)
    finally:
        await asyncio.shield(transport.close())


def _tell(event: Inbound, on_seen: Callable[[Seen], None]) -> None:
    try:
        device = topics.device_of(event.topic)
        envelope = open_envelope(event.topic, event.payload)
    except WireError as error:
        _LOGGER.debug("not a message of this version: %s", error.code)
        return
    on_seen(
        Seen(
            device=device,
            kind=envelope.message.kind,
            round_number=envelope.header.round_number,
        )
    )
