"""A device of the measurements: the agent's own transfers over a thin MQTT client."""

import asyncio
import ssl
from collections import deque

from edgefl._native import UploadStage
from edgefl.agent.downloads import LIMITS, STAGE_BYTES, Downloads
from edgefl.agent.events import AgentEffect
from edgefl.agent.outbox import Outbox
from edgefl.agent.pen import Pen
from edgefl.agent.post import Post
from edgefl.agent.settings import AgentSettings
from edgefl.protocol import topics
from edgefl.protocol.envelope import open_envelope
from edgefl.protocol.identity import DeviceIdentity
from edgefl.protocol.round_messages import MaskedInput
from edgefl.protocol.service_messages import Blob, GetBlob
from edgefl.transfer.messages import TRANSFER_ANSWERS, TransferOffer
from edgefl.transfer.packets import read_down
from edgefl.transport.core_events import Publish
from edgefl.transport.settings import MAX_IN_FLIGHT_BYTES
from tests.benchmarks.gateway.lab_fleet import FLEET, client_id, device_name, header, signing_key
from tests.benchmarks.peers.mqtt_wire import MqttWire, connect
from tests.round_boards import POLICY

_TICK_S = 0.25


class LabDevice:
    """Sends masked vectors, and fetches model parts, as an agent does.

    Args:
        number: Which one.
        stage: Where model parts arrive.

    Attributes:
        chunk_bytes: Payloads of upload chunks so far.
        chunk_count: How many these were.
    """

    def __init__(self, number: int, stage: UploadStage | None = None) -> None:
        """Prepare; `open` connects."""
        self.number = number
        identity = DeviceIdentity(device=device_name(number), signing_key=signing_key(number))
        settings = AgentSettings(fleet=FLEET, identity=identity, policy=POLICY, agent_version="1")
        self._pen = Pen(settings)
        self._post = Post(fleet=FLEET, pen=self._pen, outbox=Outbox())
        self._downloads = Downloads(
            stage=stage or UploadStage(STAGE_BYTES, LIMITS.offers_per_peer), pen=self._pen
        )
        self._wire: MqttWire | None = None
        self._done: asyncio.Future[None] | None = None
        self._news: asyncio.Queue[list[AgentEffect]] = asyncio.Queue()
        self._speaker: asyncio.Task[None] | None = None
        self._under_way: deque[tuple[asyncio.Future[None], int]] = deque()
        self._under_way_bytes = 0
        self.chunk_bytes = self.chunk_count = 0

    @property
    def wire(self) -> MqttWire:
        """The connection.

        Raises:
            ConnectionError: There is none yet.
        """
        if self._wire is None:
            raise ConnectionError("not connected yet")
        return self._wire

    async def open(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Connect, for the first time or again, with will and subscriptions as an agent's."""
        if self._speaker is not None:
            self._speaker.cancel()
        self._news = asyncio.Queue()
        self._under_way.clear()
        self._under_way_bytes = 0
        name = device_name(self.number)
        self._wire = await connect(
            port,
            client_id(self.number),
            is_clean=False,
            will=(topics.status(FLEET, name), b"offline"),
            on_message=self._on_message,
            tls=tls,
        )
        await self._wire.subscribe(
            (topics.downlink(FLEET, name), topics.calls(FLEET), topics.aggregator(FLEET))
        )
        self._post.on_link(self._now_s(), None)
        self._speaker = asyncio.get_running_loop().create_task(self._speak())

    def close(self) -> None:
        """Break the connection."""
        if self._speaker is not None:
            self._speaker.cancel()
        self.wire.vanish()

    async def upload(self, packed: bytes, attempt: int) -> None:
        """Send a masked vector, until the gateway says that it is safe."""
        place = header(self.number, attempt)
        await self._until_done(
            self._post.send("round", MaskedInput(packed=packed), place, self._now_s())
        )

    async def fetch(self, sha256: bytes) -> None:
        """Fetch a model part."""
        wish = GetBlob(sha256=sha256)
        await self._until_done([self._pen.outside_of_rounds(wish)])

    async def _until_done(self, effects: list[AgentEffect]) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._news.put_nowait(effects)
        while not self._done.done():
            await asyncio.wait((self._done,), timeout=_TICK_S)
            self._news.put_nowait(
                [*self._post.due(self._now_s()), *self._downloads.wake(self._now_s())]
            )
        self._done = None

    async def _speak(self) -> None:
        """Publish in order, as fast as the connection takes it."""
        while True:
            for effect in await self._news.get():
                if isinstance(effect, Publish):
                    if "/up/" in effect.topic:
                        self.chunk_bytes += len(effect.payload)
                        self.chunk_count += 1
                    await self._publish(effect)

    async def _publish(self, effect: Publish) -> None:
        """Publish when there is room among what has no PUBACK yet, as an agent does."""
        size_bytes = len(effect.payload)
        while self._under_way and self._under_way_bytes + size_bytes > MAX_IN_FLIGHT_BYTES:
            answered, bytes_before = self._under_way.popleft()
            await answered
            self._under_way_bytes -= bytes_before
        self._under_way.append((await self.wire.publish(effect.topic, effect.payload), size_bytes))
        self._under_way_bytes += size_bytes

    def _on_message(self, topic: str, payload: bytes) -> None:
        if topic != topics.downlink(FLEET, device_name(self.number)):
            return
        packet = read_down(payload)
        if packet is not None:
            whole, effects = self._downloads.on_chunk(packet, self._now_s())
            self._news.put_nowait(effects)
            if whole is not None and isinstance(whole.message, Blob):
                self._end()
            return
        envelope = open_envelope(topic, payload)
        message = envelope.message
        if isinstance(message, TransferOffer):
            _, effects = self._downloads.on_offer(envelope.header, message, self._now_s())
            self._news.put_nowait(effects)
        elif isinstance(message, TRANSFER_ANSWERS):
            received, effects = self._post.on_answer(message, self._now_s())
            self._news.put_nowait(effects)
            if received is not None:
                self._end()

    def _end(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
