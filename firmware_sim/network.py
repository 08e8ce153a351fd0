"""A broker and radio links in virtual time: topics, retained messages, wills, latency, loss."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from edgefl.transport.matching import topic_matches
from firmware_sim.clock import VirtualClock


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkQuality:
    """One way through the air.

    Attributes:
        latency_s: Least delay of a message.
        jitter_s: Largest extra delay, uniform.
        loss: Chance that a message never arrives, 0 to below 1.
        bytes_per_s: Throughput.
    """

    latency_s: float = 0.02
    jitter_s: float = 0.03
    loss: float = 0.0
    bytes_per_s: float = 250_000.0


@dataclass(slots=True)
class _Client:
    deliver: Callable[[str, bytes], None]
    filters: tuple[str, ...]
    will: tuple[str, bytes] | None
    is_connected: bool = True
    sent_bytes: int = field(default=0)


class VirtualNetwork:
    """All links of a simulated fleet.

    Args:
        clock: Virtual time.
        rng: Seeded; decides latency and loss.
        quality: Of every link.
    """

    def __init__(self, clock: VirtualClock, rng: random.Random, quality: LinkQuality) -> None:
        """Start without clients."""
        self._clock = clock
        self._rng = rng
        self._quality = quality
        self._clients: dict[str, _Client] = {}
        self._retained: dict[str, bytes] = {}
        self._by_topic: dict[str, list[str]] = {}

    def connect(
        self,
        name: str,
        *,
        filters: tuple[str, ...],
        deliver: Callable[[str, bytes], None],
        will: tuple[str, bytes] | None = None,
    ) -> None:
        """Connect a client; retained messages that match reach it first."""
        self._clients[name] = _Client(deliver=deliver, filters=filters, will=will)
        self._by_topic.clear()
        for topic, payload in sorted(self._retained.items()):
            if any(topic_matches(topic_filter, topic) for topic_filter in filters):
                self._schedule(name, topic, payload)

    def vanish(self, name: str) -> None:
        """Cut a client without a goodbye: its will is published."""
        client = self._clients.pop(name, None)
        if client is None:
            return
        client.is_connected = False
        self._by_topic.clear()
        if client.will is not None:
            topic, payload = client.will
            self._route(topic, payload, retain=True)

    def publish(self, name: str, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Take a message from a client."""
        client = self._clients.get(name)
        if client is None:
            return
        client.sent_bytes += len(payload)
        self._route(topic, payload, retain=retain)

    def _route(self, topic: str, payload: bytes, *, retain: bool) -> None:
        if retain:
            self._retained[topic] = payload
        for name in self._subscribers(topic):
            self._schedule(name, topic, payload)

    def _subscribers(self, topic: str) -> list[str]:
        """Return the clients that a topic goes to, remembered until somebody comes or goes."""
        if topic not in self._by_topic:
            self._by_topic[topic] = [
                name
                for name, client in self._clients.items()
                if any(topic_matches(topic_filter, topic) for topic_filter in client.filters)
            ]
        return self._by_topic[topic]

    def _schedule(self, name: str, topic: str, payload: bytes) -> None:
        quality = self._quality
        if quality.loss and self._rng.random() < quality.loss:
            return
        delay_s = quality.latency_s + self._rng.random() * quality.jitter_s
        delay_s += len(payload) / quality.bytes_per_s
        client = self._clients[name]

        def arrive() -> None:
            if client.is_connected and self._clients.get(name) is client:
                client.deliver(topic, payload)

        self._clock.call_after(delay_s, arrive)
