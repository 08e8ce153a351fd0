"""What the cores of agent and gateway have in common with their shells: link, payloads, time."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRestored:
    """The transport is connected, and the subscriptions are in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLost:
    """The transport lost its connection and is trying again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A payload arrived on a topic."""

    topic: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Woken:
    """The time that the core asked for by `wakeup_s` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Publish a payload."""

    topic: str
    payload: bytes = field(repr=False)
    retain: bool = False
