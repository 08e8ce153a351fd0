"""What the layers above know about a message transport: events in, publishes out."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from edgefl.errors import ConfigError
from edgefl.transport.matching import filter_problem, topic_problem

_LONGEST_WILL_DELAY_S = 86_400


class LinkDownReason(StrEnum):
    """Why the link to the broker is not usable."""

    UNREACHABLE = "unreachable"  # nothing accepts a connection there (yet)
    SILENT = "silent"  # something accepts, but has not answered in time
    NOT_MQTT = "not-mqtt"  # something accepts, but does not answer like a broker
    REFUSED = "refused"  # the broker answered and said no
    TLS = "tls"  # the certificates of the two ends do not satisfy each other
    LOST = "lost"  # an established link broke
    TAKEN_OVER = (
        "taken-over"  # the broker keeps closing it: another process uses the same client id
    )
    MESSAGE_REFUSED = "message-refused"  # the broker closes at one message; it has been set aside
    CLOSED = "closed"  # this side closed it


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A message arrived.

    Attributes:
        topic: Topic it was published on.
        payload: The bytes; not in the repr, for a payload is never logged.
        retained: True when the broker replays a stored message: it may be old.
        ticket: What `Transport.acknowledge` is to be called with once the payload is safe; None
            where the link acknowledges by itself.
        sender: Device whose identity the link has proven; None where it proves none.
    """

    topic: str
    payload: bytes = field(repr=False)
    retained: bool
    ticket: int | None = None
    sender: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUp:
    """The link stands and every remembered subscription has been asked for again.

    Attributes:
        session_present: True when the broker kept this client's session. False means that the
            broker may have forgotten everything, also messages that it acknowledged.
        broker: The address, where there is one.
    """

    session_present: bool
    broker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDown:
    """The link is down; the transport goes on trying unless it was closed.

    Attributes:
        reason: Machine-readable reason.
        detail: One phrase for the log.
    """

    reason: LinkDownReason
    detail: str = ""


TransportEvent = Inbound | LinkUp | LinkDown


@dataclass(frozen=True, slots=True, kw_only=True)
class Will:
    """What the broker publishes (QoS 1) when this client vanishes without a DISCONNECT.

    Attributes:
        topic: Where.
        payload: What.
        retain: Whether the broker keeps it.
        delay_s: How long the broker waits for the client to come back first. Only MQTT 5 brokers
            do; who listens must apply a grace period of its own.

    Raises:
        ConfigError: the topic cannot be published on, or the delay is negative.
    """

    topic: str
    payload: bytes = field(repr=False)
    retain: bool = True
    delay_s: int = 0

    def __post_init__(self) -> None:
        """Refuse a topic that the broker would close the connection for."""
        require_topic(self.topic)
        if not 0 <= self.delay_s <= _LONGEST_WILL_DELAY_S:
            found = f"{self.delay_s}"
            raise ConfigError("E-TRANSPORT-SETTING", "a will delay from 0 s to a day", found)


class Transport(Protocol):
    """One client's link to a broker.

    Delivery is at least once while the broker lives and at most once across its death: a PUBACK is
    no receipt. The protocol above must send again until its own receipt arrives, and ignore
    duplicates.
    """

    async def start(self) -> None:
        """Begin connecting; return at once, also when there is no broker yet."""

    def events(self) -> AsyncIterator[TransportEvent]:
        """Yield events in order until `close`. For one consumer only."""

    async def subscribe(self, *filters: str) -> None:
        """Remember the filters (QoS 1) and ask for them now and at each reconnect.

        Raises:
            ConfigError: a filter is malformed.
            TransportError: the transport is closed.
        """

    @property
    def max_packet_bytes(self) -> int | None:
        """Largest packet that the broker takes, topic and header included; None: it did not say."""

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool = False, expiry_s: float | None = None
    ) -> None:
        """Hand a message (QoS 1) to the bounded outbox.

        Waits for room while the link flows (back-pressure). While it does not the oldest messages
        are dropped and counted instead, for the protocol above re-sends by its own receipts.

        Args:
            topic: Where.
            payload: What.
            retain: Whether the broker keeps it for later subscribers.
            expiry_s: Time after which nobody needs it any more: it then leaves no outbox, and an
                MQTT 5 broker forgets it. Others deliver it late: the receiver must tell by itself.

        Raises:
            ConfigError: the topic is malformed.
            TransportError: the transport is closed.
        """

    def acknowledge(self, tickets: Sequence[int]) -> None:
        """Let the senders know that messages are safe; a link without tickets does nothing."""

    async def close(self) -> None:
        """Flush for a short while, DISCONNECT normally (no will), and end `events`."""


def require_topic(topic: str) -> None:
    """Check a topic to publish on.

    Raises:
        ConfigError: it is empty, too long, or has a wildcard.
    """
    problem = topic_problem(topic)
    if problem is not None:
        raise ConfigError(
            "E-TOPIC", "a topic without wildcards, 1 to 512 bytes", problem, "rename it"
        )


def require_filter(topic_filter: str) -> None:
    """Check a topic filter to subscribe to.

    Raises:
        ConfigError: it is empty, too long, or has a misplaced wildcard.
    """
    problem = filter_problem(topic_filter)
    if problem is not None:
        raise ConfigError(
            "E-TOPIC", "a topic filter, 1 to 512 bytes", problem, "correct the filter"
        )
