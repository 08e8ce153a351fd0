"""The MQTT transport: paho's packets in a network thread, events and publishes in asyncio."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

from edgefl.errors import TransportError
from edgefl.transport.base import (
    LinkDown,
    LinkDownReason,
    LinkUp,
    TransportEvent,
    Will,
    require_filter,
    require_topic,
)
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.mqtt5 import BrokerLimits
from edgefl.transport.mqtt_link import MqttLink
from edgefl.transport.outbox import Outbox, Outgoing
from edgefl.transport.settings import MqttSettings

_FLUSH_S = 2.0
_BLOCK_POLL_S = 0.2


class MqttTransport:
    """A `Transport` to one of several brokers: MQTT 5 or 3.1.1, persistent session, QoS 1.

    It connects whenever a broker comes up and goes on trying until `close`. Messages that the
    broker has not acknowledged when a link breaks are sent again on the next, so duplicates
    happen; an acknowledged one may still be lost with the broker.

    Args:
        settings: Where the brokers are and how the link behaves.
        will: What the broker publishes when this process vanishes.
    """

    def __init__(self, settings: MqttSettings, will: Will | None = None) -> None:
        """Prepare; nothing happens before `start`."""
        self._settings = settings
        self._outbox = Outbox(
            max_messages=settings.max_outbox_messages, max_bytes=settings.max_outbox_bytes
        )
        self._link = MqttLink(settings, will, self._outbox, self._emit, self._wake_publishers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: asyncio.Queue[TransportEvent | None] = asyncio.Queue()
        self._inbox_slots = threading.Semaphore(settings.max_inbox_messages)
        self._progress = asyncio.Event()
        self._publish_turn = asyncio.Lock()
        self._is_up = False
        self._is_inbox_full = False
        self._closing = threading.Event()

    @property
    def is_up(self) -> bool:
        """Tell whether the link stands, as far as this side knows."""
        return self._is_up

    @property
    def dropped_count(self) -> int:
        """How many messages were dropped because the outbox was full."""
        return self._outbox.dropped_count

    @property
    def refused_count(self) -> int:
        """How many messages were set aside because the broker will never take them."""
        return self._outbox.refused_count

    @property
    def max_packet_bytes(self) -> int | None:
        """Largest packet that the broker takes; None where it did not say."""
        return self._link.limits.max_packet_bytes

    @property
    def limits(self) -> BrokerLimits:
        """What the present broker said about itself."""
        return self._link.limits

    @property
    def address(self) -> BrokerAddress:
        """The broker that is used or tried now."""
        return self._link.address

    def move_to(self, reference: str) -> bool:
        """Leave for another broker, which then comes first; for commands to move a device.

        Args:
            reference: HOST:PORT or a URL, several separated by spaces.

        Returns:
            False where it names no usable broker; then the link stays.
        """
        return self._link.move_to(reference)

    async def start(self) -> None:
        """Begin connecting; return at once, also when there is no broker yet.

        Raises:
            TransportError: it was started or closed before.
        """
        self._require_open()
        if self._loop is not None:
            raise TransportError("E-TRANSPORT-STARTED", "one start", "a second one")
        self._loop = asyncio.get_running_loop()
        self._link.start()

    async def events(self) -> AsyncIterator[TransportEvent]:
        """Yield events in order until `close`. For one consumer only."""
        while (event := await self._queue.get()) is not None:
            self._inbox_slots.release()
            yield event

    async def subscribe(self, *filters: str) -> None:
        """Remember the filters and ask for them now and at each reconnect.

        Raises:
            ConfigError: a filter is malformed.
            TransportError: the transport is closed.
        """
        self._require_open()
        for topic_filter in filters:
            require_filter(topic_filter)
        for topic_filter in filters:
            self._link.add_filter(topic_filter)

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry_s: float | None = None
    ) -> None:
        """Hand a message to the outbox; wait for room only while the link is up.

        It does not wait while the inbox is full either, for the caller may be the one who should
        empty that: then the oldest message is dropped and counted.

        Raises:
            ConfigError: the topic is malformed.
            TransportError: the transport is closed.
        """
        require_topic(topic)
        async with self._publish_turn:
            self._require_open()
            while self._must_wait(len(payload)):
                self._progress.clear()
                await self._progress.wait()
                self._require_open()
            expires_at_s = None if expiry_s is None else time.monotonic() + expiry_s
            self._outbox.put(
                Outgoing(
                    topic=topic,
                    payload=bytes(payload),
                    retain=retain,
                    expires_at_s=expires_at_s,
                )
            )
        self._link.wake()

    def acknowledge(self, tickets: Sequence[int]) -> None:
        """Tell the broker that messages are safe; without `acknowledges_late` it knew before."""
        self._link.acknowledge(tickets)

    async def drain(self) -> None:
        """Wait until the broker has acknowledged everything that was published, however long."""
        while not self._outbox.is_settled:
            self._progress.clear()
            if not self._outbox.is_settled:
                await self._progress.wait()

    async def close(self) -> None:
        """Flush for up to two seconds, DISCONNECT normally, and end `events`."""
        if self._closing.is_set():
            return
        try:
            await self._flush()
        finally:
            self._closing.set()
            self._progress.set()
            await asyncio.to_thread(self._link.close)
            self._is_up = False
            self._queue.put_nowait(LinkDown(reason=LinkDownReason.CLOSED))
            self._queue.put_nowait(None)

    async def _flush(self) -> None:
        """Wait until the broker has acknowledged everything, the link breaks, or time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                while self._is_up and not self._outbox.is_settled:
                    self._progress.clear()
                    await self._progress.wait()

    def _must_wait(self, payload_bytes: int) -> bool:
        """Tell whether a publisher shall wait for room."""
        is_flowing = self._is_up and not self._is_inbox_full
        return is_flowing and not self._outbox.has_room(payload_bytes)

    def _emit(self, event: TransportEvent) -> None:
        """Pass an event on from the network thread; wait while the inbox is full."""
        while not self._inbox_slots.acquire(timeout=_BLOCK_POLL_S):
            if self._closing.is_set():
                return
            self._is_inbox_full = True
            self._wake_publishers()
        self._is_inbox_full = False
        self._call(lambda: self._take(event))

    def _take(self, event: TransportEvent) -> None:
        """Follow the state of the link and queue the event, in the event loop."""
        if isinstance(event, LinkUp):
            self._is_up = True
        elif isinstance(event, LinkDown):
            self._is_up = False
            self._progress.set()
        self._queue.put_nowait(event)

    def _wake_publishers(self) -> None:
        """Let waiting publishers look again; called in the network thread."""
        self._call(self._progress.set)

    def _call(self, action: Callable[[], None]) -> None:
        """Run something in the event loop, unless that is gone."""
        if self._loop is None or self._closing.is_set():
            return
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop was closed without closing this transport
            self._closing.set()

    def _require_open(self) -> None:
        if self._closing.is_set():
            raise TransportError("E-TRANSPORT-CLOSED", "an open transport", "a closed one")
