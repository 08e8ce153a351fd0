"""The gateway's own side of the endpoint: a `Transport` without a connection.

Messages are pulled out of the endpoint's bounded queue, never pushed: while the gateway is busy
they wait there, and the endpoint stops reading the sockets that they come from.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import edgefl._native as native
from broker.events import SendChunks, StopChunks
from edgefl.errors import EnvironmentProblem, TransportError
from edgefl.transport.base import (
    Inbound,
    LinkDown,
    LinkDownReason,
    LinkUp,
    TransportEvent,
    require_filter,
    require_topic,
)

if TYPE_CHECKING:  # a build for devices has none
    from edgefl._native import EndpointEvent, MqttEndpoint

_MAX_EVENTS = 256
MAX_PACKET_BYTES = 262_144
"""What the endpoint takes and announces, unless it is told otherwise."""


def require_endpoint() -> None:
    """Check that this build has an endpoint.

    Raises:
        EnvironmentProblem: It was built for devices, which need none.
    """
    if not hasattr(native, "MqttEndpoint"):
        raise EnvironmentProblem(
            "E-NO-ENDPOINT",
            "a build with the MQTT endpoint",
            "one for devices, without it",
            "install edgefl-runtime from source on the gateway, or use a broker with --broker",
        )


class EndpointTransport:
    """A `Transport` over the endpoint in this process.

    `acknowledge` lets the PUBACK of a message go out: whoever sent it may then forget it.

    Args:
        endpoint: Started before the transport, and closed by whoever made it.
        on_notice: Called in the event loop with whatever is no message: who came and went, was
            refused or taken over, and how uploads get on.
        max_packet_bytes: Largest packet that the endpoint takes.
    """

    def __init__(
        self,
        endpoint: "MqttEndpoint",
        on_notice: "Callable[[EndpointEvent], None]",
        max_packet_bytes: int = MAX_PACKET_BYTES,
    ) -> None:
        """Prepare; nothing is taken before `events`."""
        self._endpoint = endpoint
        self._on_notice = on_notice
        self._max_packet_bytes = max_packet_bytes
        self._is_started = False
        self._is_closed = False
        self._woken = asyncio.Event()

    @property
    def max_packet_bytes(self) -> int:
        """Largest packet that clients may send, topic and header included."""
        return self._max_packet_bytes

    async def start(self) -> None:
        """Note that events may be taken.

        Raises:
            TransportError: It was started or closed before.
        """
        self._require_open()
        if self._is_started:
            raise TransportError("E-TRANSPORT-STARTED", "one start", "a second one")
        self._is_started = True

    async def events(self) -> AsyncIterator[TransportEvent]:
        """Yield events in order until `close`. For one consumer only.

        The link is up from the beginning, and has forgotten everything: sessions and retained
        messages live as long as the process.
        """
        yield LinkUp(session_present=False)
        while not self._is_closed:
            taken = self._endpoint.take_events(_MAX_EVENTS)
            for event in taken:
                message = _message(event)
                if message is None:
                    self._on_notice(event)
                else:
                    yield message
            if not taken:
                await self._wait()
        yield LinkDown(reason=LinkDownReason.CLOSED)

    async def subscribe(self, *filters: str) -> None:
        """Ask for messages, and for retained ones at once.

        Raises:
            ConfigError: A filter is malformed.
            TransportError: The transport is closed.
        """
        self._require_open()
        for topic_filter in filters:
            require_filter(topic_filter)
        self._endpoint.subscribe(filters)

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry_s: float | None = None
    ) -> None:
        """Put a message (QoS 1) into its subscribers' queues.

        Those are bounded: where one is full, what has the least time left in it goes, and a notice
        says so.

        Raises:
            ConfigError: The topic is malformed.
            TransportError: The transport is closed.
        """
        require_topic(topic)
        self._require_open()
        whole_s = None if expiry_s is None else max(1, math.ceil(expiry_s))
        self._endpoint.publish(topic, payload, 1, retain, whole_s)

    def send_chunks(self, wish: SendChunks) -> None:
        """Have chunks of a download cut and sent as its device acknowledges those before."""
        self._endpoint.send_chunks(
            wish.topic,
            wish.transfer_id,
            wish.blob,
            wish.chunk_bytes,
            wish.indices,
            math.ceil(wish.expiry_s),
        )

    def stop_chunks(self, wish: StopChunks) -> None:
        """Cut no more chunks of a download."""
        self._endpoint.stop_chunks(wish.topic, wish.transfer_id)

    def acknowledge(self, tickets: Sequence[int]) -> None:
        """Let the senders know that messages are safe."""
        if tickets:
            self._endpoint.acknowledge(tickets)

    async def close(self) -> None:
        """End `events`; the endpoint goes on until it is closed itself."""
        self._is_closed = True
        self._woken.set()

    async def _wait(self) -> None:
        """Wait for an event or for `close`."""
        loop = asyncio.get_running_loop()
        descriptor = self._endpoint.fileno()
        # The descriptor stays readable while events wait, so the reader is there only for this.
        loop.add_reader(descriptor, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            loop.remove_reader(descriptor)
            self._woken.clear()

    def _require_open(self) -> None:
        if self._is_closed:
            raise TransportError("E-TRANSPORT-CLOSED", "an open transport", "a closed one")


def _message(event: "EndpointEvent") -> Inbound | None:
    """Return the message that an event is, if it is one."""
    if event.kind != "message" or event.topic is None or event.payload is None:
        return None
    return Inbound(
        topic=event.topic,
        payload=event.payload,
        retained=event.retained,
        ticket=event.ticket,
        sender=event.identity,
    )
