"""Mosquitto that drops what it has acknowledged, as it does with its own defaults, loses no update.

`edgefl gateway run` refuses such a broker by name; this is what happens where the operator accepts.
"""

import asyncio
from pathlib import Path

import pytest

from broker.mailer import Mailer
from broker.uploads import Uploads, stage_for
from edgefl.protocol import topics
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.round_messages import MaskedInput
from edgefl.transfer.intake import IntakeLimits
from edgefl.transfer.messages import TransferOffer
from edgefl.transport.base import Inbound
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.core_events import Publish
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from tests.benchmarks.gateway.lab_device import LabDevice
from tests.benchmarks.gateway.lab_fleet import FLEET, device_name, packed_vector, signing_key
from tests.integration.brokers import stock_mosquitto
from tests.staged_inputs import in_one_piece

DEVICES = 12
VECTOR_BYTES = 300_000
SMALL_QUEUE = "max_inflight_messages 2\nmax_queued_messages 4"
"""The default is 1,000, which a thousand boards overrun as these do this."""
LIMITS = IntakeLimits()


class SlowGateway:
    """Takes uploads, more slowly than they come."""

    def __init__(self, address: BrokerAddress) -> None:
        self.uploads = Uploads(
            stage=stage_for(LIMITS), epoch=1, mailer=Mailer(FLEET, signing_key(-1)), limits=LIMITS
        )
        self.transport = MqttTransport(
            MqttSettings(
                brokers=(address,),
                client_id="aggregator",
                keepalive_s=20,
                acknowledges_late=True,
                receive_maximum=2,
            )
        )
        self.received: list[str] = []
        self.chunks = 0

    async def run(self) -> None:
        await self.transport.subscribe(topics.all_uplinks(FLEET), topics.all_uploads(FLEET))
        await self.transport.start()
        async for event in self.transport.events():
            if isinstance(event, Inbound):
                for effect in self._take(event):
                    assert isinstance(effect, Publish)
                    await self.transport.publish(effect.topic, effect.payload)
                await asyncio.sleep(0.005)
                if event.ticket is not None:
                    self.transport.acknowledge([event.ticket])

    def _take(self, event: Inbound) -> list[object]:
        now_s = asyncio.get_running_loop().time()
        upload = topics.upload_of(event.topic)
        if upload is None:
            envelope = open_envelope(event.topic, event.payload)
            assert isinstance(envelope.message, TransferOffer)
            sender, offer = envelope.header.sender, envelope.message
            if self.uploads.is_done(sender, envelope.header, offer):
                return [*self.uploads.say_done(sender, envelope.header, offer)]
            return [
                *self.uploads.on_offer(
                    sender, envelope.header, offer, now_s, largest_bytes=VECTOR_BYTES
                )
            ]
        self.chunks += 1
        effects = self.uploads.on_chunk(*upload, event.payload, now_s)
        whole, more = self.uploads.take_whole(*upload)
        if whole is None:
            return [*effects, *more]
        assert in_one_piece(whole.message) == MaskedInput(packed=packed_vector(VECTOR_BYTES))
        self.received.append(whole.device)
        return [*effects, *self.uploads.settle(whole)]


@pytest.mark.timeout(120)
def test_every_upload_that_is_done_has_arrived_once(tmp_path: Path) -> None:
    async def run(address: BrokerAddress) -> tuple[SlowGateway, int]:
        gateway = SlowGateway(address)
        serving = asyncio.create_task(gateway.run())
        devices = [LabDevice(number) for number in range(DEVICES)]
        for device in devices:
            await device.open(address.port)
        try:
            packed = packed_vector(VECTOR_BYTES)
            await asyncio.gather(*(device.upload(packed, 1) for device in devices))
        finally:
            for device in devices:
                device.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await gateway.transport.close()
        return gateway, sum(device.chunk_count for device in devices)

    with stock_mosquitto(tmp_path, SMALL_QUEUE) as brokers:
        gateway, sent = asyncio.run(run(brokers.addresses[0]))
    assert sorted(gateway.received) == [device_name(number) for number in range(DEVICES)]
    assert gateway.chunks < sent, "the broker has dropped some, and they were sent again"
