"""What the layers above know about a message transport: events in, publishes out."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from edgefl.errors import ConfigError
from edgefl.transport.matching import filter_problem, topic_problem


class LinkDownReason(StrEnum):
    """Why the link to the broker is not usable."""

    UNREACHABLE = "unreachable"  # nothing accepts a connection there (yet)
    NOT_MQTT = "not-mqtt"  # something accepts, but does not answer like a broker
    REFUSED = "refused"  # the broker answered and said no
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
    """

    topic: str
    payload: bytes = field(repr=False)
    retained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUp:
    """The link stands and every remembered subscription has been asked for again.

    Attributes:
        session_present: True when the broker kept this client's session. False means that the
            broker may have forgotten everything, also messages that it acknowledged.
    """

    session_present: bool


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

    Raises:
        ConfigError: the topic cannot be published on.
    """

    topic: str
    payload: bytes = field(repr=False)
    retain: bool = True

    def __post_init__(self) -> None:
        """Refuse a topic that the broker would close the connection for."""
        require_topic(self.topic)


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

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand a message (QoS 1) to the bounded outbox.

        Waits for room while the link flows (back-pressure). While it does not the oldest messages
        are dropped and counted instead, for the protocol above re-sends by its own receipts.

        Raises:
            ConfigError: the topic is malformed.
            TransportError: the transport is closed.
        """

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
