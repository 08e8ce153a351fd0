"""A broker and radio links in virtual time: topics, retained messages, wills, latency, loss."""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from edgefl.errors import ConfigError
from edgefl.transport.matching import topic_matches
from firmware_sim.clock import VirtualClock

_WILDCARDS = ("+", "#")
_LONGEST_RESEND_S = 60.0
_BROKER = ""
"""Sender of retained messages and wills; no client has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkQuality:
    """One way through the air.

    Attributes:
        latency_s: Least delay of a message.
        jitter_s: Largest extra delay, uniform.
        loss: Chance that one transmission is lost, 0 to below 1. As TCP does, the link sends it
            again, so that a message to who stays connected is late rather than gone, and later ones
            from the same client wait for it.
        resend_s: Wait before the first repetition; it doubles each time.
        bytes_per_s: Throughput.
        max_packet_bytes: The broker swallows larger packets, without a word; None: it has no limit.
        tells_limit: The broker tells its clients of the limit when they connect.
    """

    latency_s: float = 0.02
    jitter_s: float = 0.03
    loss: float = 0.0
    resend_s: float = 0.5
    bytes_per_s: float = 250_000.0
    max_packet_bytes: int | None = None
    tells_limit: bool = True

    def __post_init__(self) -> None:
        """Check the ranges; NaN is in none."""
        if not 0 <= self.loss < 1:
            raise ConfigError("E-SIM-LOSS", "a loss from 0 to below 1", repr(self.loss))
        if not (self.latency_s >= 0 and self.jitter_s >= 0 and self.resend_s > 0):
            raise ConfigError("E-SIM-LINK", "delays of 0 or more", repr(self))
        if not self.bytes_per_s > 0:
            raise ConfigError("E-SIM-LINK", "a throughput above 0", repr(self.bytes_per_s))


@dataclass(slots=True, kw_only=True)
class _Client:
    deliver: Callable[[str, bytes], None]
    filters: tuple[str, ...]
    will: tuple[str, bytes] | None
    last_arrival_s: dict[str, float] = field(default_factory=dict)


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
        # Names by whole topic, in order of connection; filters with wildcards are few.
        self._exact: dict[str, dict[str, None]] = {}
        self._wild: dict[str, tuple[str, ...]] = {}
        self._transcript = hashlib.sha256()
        self.transmissions_lost = 0
        self.swallowed = 0

    @property
    def told_packet_bytes(self) -> int | None:
        """What the broker says of the largest packet that it takes."""
        return self._quality.max_packet_bytes if self._quality.tells_limit else None

    @property
    def transcript_sha256(self) -> str:
        """SHA-256 in hex over time, topic and bytes of every message published so far."""
        return self._transcript.hexdigest()

    def connect(
        self,
        name: str,
        *,
        filters: tuple[str, ...],
        deliver: Callable[[str, bytes], None],
        will: tuple[str, bytes] | None = None,
    ) -> None:
        """Connect a client; retained messages that match reach it first."""
        self._remove(name)
        self._clients[name] = _Client(deliver=deliver, filters=filters, will=will)
        wild = tuple(text for text in filters if any(mark in text for mark in _WILDCARDS))
        if wild:
            self._wild[name] = wild
        for topic_filter in filters:
            if topic_filter not in wild:
                self._exact.setdefault(topic_filter, {})[name] = None
        for topic in self._retained_topics(filters, wild):
            self._schedule(_BROKER, name, topic, self._retained[topic])

    def vanish(self, name: str) -> None:
        """Cut a client without a goodbye: its will is published."""
        client = self._remove(name)
        if client is not None and client.will is not None:
            topic, payload = client.will
            self._route(_BROKER, topic, payload, retain=True)

    def publish(self, name: str, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Take a message from a client; one that is not connected is not heard."""
        most_bytes = self._quality.max_packet_bytes
        if most_bytes is not None and len(topic) + len(payload) > most_bytes:
            self.swallowed += 1
        elif name in self._clients:
            self._route(name, topic, payload, retain=retain)

    def _remove(self, name: str) -> _Client | None:
        client = self._clients.pop(name, None)
        self._wild.pop(name, None)
        for topic_filter in () if client is None else client.filters:
            self._exact.get(topic_filter, {}).pop(name, None)
        return client

    def _retained_topics(self, filters: tuple[str, ...], wild: tuple[str, ...]) -> list[str]:
        found = {topic for topic in filters if topic in self._retained}
        if wild:
            found.update(topic for topic in self._retained if _selects(wild, topic))
        return sorted(found)

    def _route(self, sender: str, topic: str, payload: bytes, *, retain: bool) -> None:
        self._transcript.update(f"{self._clock.now_s!r} {topic} {len(payload)} ".encode())
        self._transcript.update(payload)
        if retain:
            self._retained[topic] = payload
        exact = self._exact.get(topic, {})
        for name in exact:
            self._schedule(sender, name, topic, payload)
        for name, wild in self._wild.items():
            if name not in exact and _selects(wild, topic):
                self._schedule(sender, name, topic, payload)

    def _schedule(self, sender: str, name: str, topic: str, payload: bytes) -> None:
        quality = self._quality
        delay_s = quality.latency_s + self._rng.random() * quality.jitter_s
        delay_s += len(payload) / quality.bytes_per_s
        resend_s = quality.resend_s
        while quality.loss and self._rng.random() < quality.loss:
            self.transmissions_lost += 1
            delay_s += resend_s
            resend_s = min(2 * resend_s, _LONGEST_RESEND_S)
        client = self._clients[name]
        # One TCP connection at each end: what one client sent later never arrives earlier.
        at_s = max(client.last_arrival_s.get(sender, 0.0), self._clock.now_s + delay_s)
        client.last_arrival_s[sender] = at_s

        def arrive() -> None:
            if self._clients.get(name) is client:
                client.deliver(topic, payload)

        self._clock.call_at(at_s, arrive)


def _selects(filters: tuple[str, ...], topic: str) -> bool:
    return any(topic_matches(topic_filter, topic) for topic_filter in filters)
