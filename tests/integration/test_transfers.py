"""Transfers over a real broker with small packets: whole fleets, 5 MB, and links that are cut."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.mailer import Mailer
from broker.uploads import Uploads, stage_for
from edgefl._native import Seed, SigningKey
from edgefl.agent.outbox import Outbox
from edgefl.agent.pen import Pen
from edgefl.agent.post import Post
from edgefl.agent.settings import AgentSettings
from edgefl.protocol import topics
from edgefl.protocol.envelope import Header, open_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.round_messages import MaskedInput
from edgefl.transfer.intake import IntakeLimits
from edgefl.transfer.manifest import MAX_BLOB_BYTES
from edgefl.transfer.messages import TRANSFER_ANSWERS, TransferOffer
from edgefl.transport.base import Inbound, LinkUp
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.core_events import Publish
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from edgefl.types import DeviceId, FleetName
from tests.integration.brokers import mosquitto, stock_mosquitto, until
from tests.integration.real import Process, agent_words, submit_words, wait_until
from tests.round_boards import POLICY
from tests.staged_inputs import in_one_piece

FLEET, DEVICE = FleetName("test"), DeviceId("d1")
LIMITS = IntakeLimits()
WINDOW_BYTES = 4 * 65_536
PLACE = Header(session_id=bytes(32), round_number=1, attempt=1, sender=DEVICE)


class DeviceEnd:
    """A device's letter box on a real link."""

    def __init__(self, address: BrokerAddress) -> None:
        identity = DeviceIdentity(device=DEVICE, signing_key=key(1))
        settings = AgentSettings(fleet=FLEET, identity=identity, policy=POLICY, agent_version="1")
        self.post = Post(fleet=FLEET, pen=Pen(settings), outbox=Outbox())
        self.transport = client(address, DEVICE)
        self.is_done = False
        self.chunk_bytes = 0

    async def send(self, effects: list[object]) -> None:
        for effect in effects:
            assert isinstance(effect, Publish)
            self.chunk_bytes += len(effect.payload) if "/up/" in effect.topic else 0
            await self.transport.publish(effect.topic, effect.payload)

    async def run(self, message: MaskedInput) -> None:
        await self.transport.subscribe(topics.downlink(FLEET, DEVICE))
        await self.transport.start()
        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(self._tick())
            async for event in self.transport.events():
                if isinstance(event, LinkUp):
                    self.post.on_link(now_s(), self.transport.max_packet_bytes)
                    await self.send(self.post.send("round", message, PLACE, now_s()))
                elif isinstance(event, Inbound):
                    answer = open_envelope(event.topic, event.payload).message
                    assert isinstance(answer, TRANSFER_ANSWERS)
                    received, effects = self.post.on_answer(answer, now_s())
                    await self.send(effects)
                    if received is not None:
                        self.is_done = True
                        break
            ticking.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            await self.send(self.post.due(now_s()))


class GatewayEnd:
    """The gateway's uploads on a real link."""

    def __init__(self, address: BrokerAddress) -> None:
        self.uploads = Uploads(
            stage=stage_for(LIMITS), epoch=1, mailer=Mailer(FLEET, key(2)), limits=LIMITS
        )
        self.transport = client(address, "aggregator")
        self.received: list[MaskedInput] = []

    async def run(self) -> None:
        await self.transport.subscribe(topics.all_uplinks(FLEET), topics.all_uploads(FLEET))
        await self.transport.start()
        async for event in self.transport.events():
            if isinstance(event, Inbound):
                for effect in self._take(event):
                    assert isinstance(effect, Publish)
                    await self.transport.publish(effect.topic, effect.payload)

    def _take(self, event: Inbound) -> list[object]:
        upload = topics.upload_of(event.topic)
        if upload is None:
            envelope = open_envelope(event.topic, event.payload)
            assert isinstance(envelope.message, TransferOffer)
            return [
                *self.uploads.on_offer(
                    DEVICE, envelope.header, envelope.message, now_s(), largest_bytes=MAX_BLOB_BYTES
                )
            ]
        effects = self.uploads.on_chunk(*upload, event.payload, now_s())
        whole, more = self.uploads.take_whole(*upload)
        if whole is None:
            return [*effects, *more]
        self.received.append(in_one_piece(whole.message))
        return [*effects, *self.uploads.settle(whole)]


def key(number: int) -> SigningKey:
    return SigningKey.from_seed(Seed.from_bytes(bytes([number]) * 32))


def client(address: BrokerAddress, name: str) -> MqttTransport:
    settings = MqttSettings(
        brokers=(address,), client_id=name, keepalive_s=20, backoff_first_s=0.05, backoff_cap_s=0.2
    )
    return MqttTransport(settings)


def now_s() -> float:
    return asyncio.get_running_loop().time()


@contextlib.asynccontextmanager
async def both_ends(
    at: BrokerAddress, device_at: BrokerAddress, message: MaskedInput
) -> AsyncIterator[tuple[DeviceEnd, GatewayEnd]]:
    device, gateway = DeviceEnd(device_at), GatewayEnd(at)
    tasks = [asyncio.create_task(gateway.run()), asyncio.create_task(device.run(message))]
    try:
        yield device, gateway
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await device.transport.close()
        await gateway.transport.close()


class CuttingProxy:
    """Passes bytes to a broker, and cuts the connection after so many from the client."""

    def __init__(self, target: BrokerAddress, cuts_after: list[int]) -> None:
        self._target = target
        self._cuts_after = cuts_after
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[None]] = []
        self.cuts = 0

    async def __aenter__(self) -> "CuttingProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = BrokerAddress(host="127.0.0.1", port=port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._target.host, self._target.port)
        self._writers += [writer, up_writer]
        left_bytes = self._cuts_after.pop(0) if self._cuts_after else None
        ways = (self._pass_up(reader, up_writer, left_bytes), pump(up_reader, writer))
        both = [asyncio.create_task(way) for way in ways]
        self._serving += both
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, up_writer):
            one.transport.abort()

    async def _pass_up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left_bytes: int | None
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(16_384):
                if left_bytes is not None:
                    left_bytes -= len(data)
                    if left_bytes <= 0:
                        self.cuts += 1
                        return
                writer.write(data)
                await writer.drain()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


def test_5_mb_pass_a_broker_that_takes_40_kb(tmp_path: Path) -> None:
    message = MaskedInput(packed=random.Random(1).randbytes(5_000_000))

    async def run(at: BrokerAddress) -> None:
        async with both_ends(at, at, message) as (device, gateway):
            await until(lambda: device.is_done, "the last receipt")
            assert gateway.received == [message]
            assert device.transport.max_packet_bytes == 40_000

    with stock_mosquitto(tmp_path, "max_queued_messages 0\nmax_packet_size 40000") as brokers:
        asyncio.run(run(brokers.addresses[0]))


def test_a_link_that_is_cut_ten_times_sends_one_window_again_each_time(tmp_path: Path) -> None:
    message = MaskedInput(packed=random.Random(2).randbytes(3_000_000))

    async def run(at: BrokerAddress) -> None:
        async with (
            CuttingProxy(at, [400_000] * 10) as proxy,
            both_ends(at, proxy.address, message) as (device, gateway),
        ):
            await until(lambda: device.is_done, "the last receipt", within_s=60)
            assert proxy.cuts >= 7
            assert gateway.received == [message]
            again_bytes = device.chunk_bytes - len(message.packed)
            assert again_bytes <= proxy.cuts * (WINDOW_BYTES + 4 * 64)

    with mosquitto(tmp_path) as brokers:
        asyncio.run(run(brokers.addresses[0]))


@pytest.mark.long
@pytest.mark.timeout(120)
def test_rounds_are_committed_over_a_broker_with_small_packets(tmp_path: Path) -> None:
    """The model bundle, of 26 kB, travels in chunks, and so does all else above 8 kB."""
    state, out = tmp_path / "gateway", tmp_path / "out"
    with stock_mosquitto(tmp_path, "max_queued_messages 0\nmax_packet_size 9000") as brokers:
        (address,) = brokers.addresses
        words = ["gateway", "run", "--broker", brokers.urls, "--state", state, "--fleet", "test"]
        accepted = [
            word
            for code in ("E-BROKER-PACKET-SIZE", "E-BROKER-QUEUE")
            for word in ("--accept-finding", code)
        ]
        gateway = Process(out, *words, *accepted)
        wait_until((state / "gateway.json").exists, "the gateway's start")
        agents = [
            Process(
                out,
                *agent_words(tmp_path / name, address.port, "--max-epsilon", 10_000, device=name),
                "--fleet", "test", "--ignore-power",
            )
            for name in ("d0", "d1", "d2", "d3")
        ]  # fmt: skip
        try:
            assert Process(out, *submit_words(state, **{"--rounds": 1}), "spar").wait().code == 0
            events = state / "events.jsonl"
            wait_until(lambda: '"outcome": "COMMITTED"' in events.read_text(), "a round", 90)
        finally:
            for process in (*agents, gateway):
                process.stop()
        assert '"survivors": 4' in events.read_text()
