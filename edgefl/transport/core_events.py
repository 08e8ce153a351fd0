"""What the cores of agent and gateway have in common with their shells: link, payloads, time."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRestored:
    """The transport is connected, and the subscriptions are in place.

    Attributes:
        max_packet_bytes: Largest packet that the broker takes; None: it did not say.
    """

    max_packet_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLost:
    """The transport lost its connection and is trying again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A payload arrived on a topic.

    Attributes:
        ticket: What the shell wants `Acknowledge` for, once the payload is safe; None: nothing.
        retained: The broker replays what it keeps: it may be old.
    """

    topic: str
    payload: bytes = field(repr=False)
    ticket: int | None = None
    retained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """The time that the core asked for by `wakeup_s` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """What arrived with this ticket is safe: the link may say so to whoever sent it."""

    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Publish a payload.

    Attributes:
        topic: Where.
        payload: What.
        retain: Whether the broker keeps it for later subscribers.
        expiry_s: Time after which nobody needs it any more; None: it stays of use.
    """

    topic: str
    payload: bytes = field(repr=False)
    retain: bool = False
    expiry_s: float | None = None
