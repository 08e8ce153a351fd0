"""An in-process broker for tests and simulations: deterministic, no sockets, no clock."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from edgefl.errors import TransportError
from edgefl.transport.base import (
    Inbound,
    LinkDown,
    LinkDownReason,
    LinkUp,
    TransportEvent,
    Will,
    require_filter,
    require_topic,
)
from edgefl.transport.matching import topic_matches


class EventSink(Protocol):
    """Where a client's events go; called in order, must not block."""

    def __call__(self, event: TransportEvent) -> None:
        """Take one event."""


class MemoryBroker:
    """Topics, retained messages, wills and subscriptions of one process, without I/O.

    Every call delivers at once, to clients in the order in which they first connected. Nothing is
    queued for a client that is away, which is the worst that a real broker may do.
    """

    def __init__(self) -> None:
        """Start with no clients and nothing retained."""
        self.is_up = True
        self.retained: dict[str, bytes] = {}
        self.published_count = 0
        self._clients: dict[str, _Session] = {}

    def attach(self, client_id: str, will: Will | None, sink: EventSink) -> None:
        """Connect a client; one that has the same id is cut off first, as MQTT asks.

        Raises:
            TransportError: the broker is down.
        """
        if not self.is_up:
            raise TransportError("E-BROKER-UNREACHABLE", "a running broker", "one that is down")
        earlier = self._clients.get(client_id)
        if earlier is not None and earlier.sink is not None:
            self.cut(client_id, LinkDownReason.TAKEN_OVER)
        session = self._clients.setdefault(client_id, _Session())
        session.sink = sink
        session.will = will
        sink(LinkUp(session_present=earlier is not None))

    def subscribe(self, client_id: str, *filters: str) -> None:
        """Add filters and replay what is retained under them."""
        session = self._clients[client_id]
        for topic_filter in filters:
            require_filter(topic_filter)
            session.filters[topic_filter] = None
            for topic, payload in list(self.retained.items()):
                if session.sink is not None and topic_matches(topic_filter, topic):
                    session.sink(Inbound(topic=topic, payload=payload, retained=True))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Deliver to every connected client whose filters match, once each."""
        require_topic(topic)
        self.published_count += 1
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        for session in list(self._clients.values()):
            if session.sink is not None and session.wants(topic):
                session.sink(Inbound(topic=topic, payload=payload, retained=False))

    def detach(self, client_id: str) -> None:
        """Disconnect a client the normal way: no will."""
        session = self._clients.get(client_id)
        if session is not None:
            session.sink = None
            session.will = None

    def cut(self, client_id: str, reason: LinkDownReason = LinkDownReason.LOST) -> None:
        """Break a client's link as a dead battery would: its will is published."""
        session = self._clients.get(client_id)
        if session is None or session.sink is None:
            return
        sink, will = session.sink, session.will
        session.sink = None
        session.will = None
        sink(LinkDown(reason=reason))
        if will is not None:
            self.publish(will.topic, will.payload, retain=will.retain)

    def crash(self) -> None:
        """Die and forget everything; every client sees its link break and no will is sent."""
        self.is_up = False
        self.retained.clear()
        sessions = list(self._clients.values())
        self._clients.clear()
        for session in sessions:
            if session.sink is not None:
                session.sink(LinkDown(reason=LinkDownReason.LOST))

    def restart(self) -> None:
        """Come back empty; clients must attach again."""
        self.is_up = True


class MemoryTransport:
    """A `Transport` over a `MemoryBroker`, for one event loop.

    Args:
        broker: The broker shared by all clients.
        client_id: Name of this client at the broker.
        will: What the broker publishes when this client is cut off.
    """

    def __init__(self, broker: MemoryBroker, client_id: str, will: Will | None = None) -> None:
        """Prepare; nothing happens before `start`."""
        self._broker = broker
        self._client_id = client_id
        self._will = will
        self._filters: dict[str, None] = {}
        self._queue: asyncio.Queue[TransportEvent | None] = asyncio.Queue()
        self._is_up = False
        self._is_closed = False
        self.dropped_count = 0

    async def start(self) -> None:
        """Connect, or note that the broker is down; `reconnect` tries again."""
        self._require_open()
        self.reconnect()

    def reconnect(self) -> None:
        """Connect now if the broker is up; tests decide when, for there is no clock here."""
        if self._is_up:
            return
        if not self._broker.is_up:
            self._queue.put_nowait(LinkDown(reason=LinkDownReason.UNREACHABLE))
            return
        self._broker.attach(self._client_id, self._will, self._take)
        self._broker.subscribe(self._client_id, *self._filters)

    async def events(self) -> AsyncIterator[TransportEvent]:
        """Yield events in order until `close`."""
        while (event := await self._queue.get()) is not None:
            yield event

    async def subscribe(self, *filters: str) -> None:
        """Remember the filters and ask for them now and at each reconnect."""
        self._require_open()
        for topic_filter in filters:
            require_filter(topic_filter)
            self._filters[topic_filter] = None
        if self._is_up:
            self._broker.subscribe(self._client_id, *filters)

    @property
    def max_packet_bytes(self) -> int | None:
        """No limit."""
        return None

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry_s: float | None = None
    ) -> None:
        """Publish at once, or drop and count while the link is down; nothing waits to expire."""
        del expiry_s
        self._require_open()
        require_topic(topic)
        if self._is_up:
            self._broker.publish(topic, payload, retain=retain)
        else:
            self.dropped_count += 1

    def acknowledge(self, tickets: Sequence[int]) -> None:
        """Do nothing: there is nobody to tell."""
        del tickets

    async def close(self) -> None:
        """Take leave without a will and end `events`."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_up:
            self._is_up = False
            self._broker.detach(self._client_id)
        self._queue.put_nowait(LinkDown(reason=LinkDownReason.CLOSED))
        self._queue.put_nowait(None)

    def _take(self, event: TransportEvent) -> None:
        """Queue an event from the broker and follow the state of the link."""
        if isinstance(event, LinkUp):
            self._is_up = True
        elif isinstance(event, LinkDown):
            self._is_up = False
        self._queue.put_nowait(event)

    def _require_open(self) -> None:
        if self._is_closed:
            raise TransportError("E-TRANSPORT-CLOSED", "an open transport", "a closed one")


class _Session:
    """What the broker knows of one client; `sink` is None while it is away."""

    def __init__(self) -> None:
        self.sink: EventSink | None = None
        self.will: Will | None = None
        self.filters: dict[str, None] = {}

    def wants(self, topic: str) -> bool:
        return any(topic_matches(topic_filter, topic) for topic_filter in self.filters)
