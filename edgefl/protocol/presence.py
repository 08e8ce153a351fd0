"""The text on a device's status topic: there, gone, or asleep for a while.

`online ready high`, `online away low`, `sleeping 900 ready middle`, `offline`. It is not signed,
and nothing but waiting depends on it. Of the battery only a coarse bucket is told, since an exact
level would tell boards apart; of why a device is away nothing is told at all.
"""

from dataclasses import dataclass
from enum import Enum

from edgefl.errors import WireError

MOST_SLEEP_S = 24 * 3600
_MOST_BYTES = 64


class PowerBucket(Enum):
    """How a device is fed, coarsely."""

    EXTERNAL = "external"
    HIGH = "high"
    MIDDLE = "middle"
    LOW = "low"
    UNKNOWN = "unknown"


class PresenceKind(Enum):
    """Whether a device is there."""

    ONLINE = "online"
    SLEEPING = "sleeping"
    """It has no link, keeps its session, and comes back by itself."""
    OFFLINE = "offline"


_AVAILABLE = {True: "ready", False: "away"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """What a device says of itself outside of rounds.

    Attributes:
        is_available: It would answer a call, as far as power, heat, hours, network and room go.
        wakes_in_s: Seconds until it is back, for one that sleeps.

    Raises:
        WireError: A sleep without an end, or with one too far away.
    """

    kind: PresenceKind
    is_available: bool = True
    bucket: PowerBucket = PowerBucket.UNKNOWN
    wakes_in_s: int = 0

    def __post_init__(self) -> None:
        """Check the sleep."""
        is_asleep = self.kind is PresenceKind.SLEEPING
        if not (1 if is_asleep else 0) <= self.wakes_in_s <= (MOST_SLEEP_S if is_asleep else 0):
            raise WireError(
                "E-WIRE-STATUS", f"a sleep of 1 to {MOST_SLEEP_S} s", str(self.wakes_in_s)
            )

    def to_bytes(self) -> bytes:
        """Return the payload."""
        if self.kind is PresenceKind.OFFLINE:
            return b"offline"
        asleep = [str(self.wakes_in_s)] if self.kind is PresenceKind.SLEEPING else []
        words = [self.kind.value, *asleep, _AVAILABLE[self.is_available], self.bucket.value]
        return " ".join(words).encode()


ONLINE = Presence(kind=PresenceKind.ONLINE).to_bytes()
OFFLINE = Presence(kind=PresenceKind.OFFLINE).to_bytes()


def parse_presence(payload: bytes) -> Presence:
    """Read a payload; words that are missing or of a later version keep their defaults.

    Raises:
        WireError: It is none of the three kinds, or a sleep without an end.
    """
    words = payload[:_MOST_BYTES].decode(errors="replace").split()
    try:
        kind = PresenceKind(words[0])
    except (ValueError, IndexError):
        raise WireError(
            "E-WIRE-STATUS", "online, sleeping or offline", repr(payload[:40])
        ) from None
    if kind is PresenceKind.OFFLINE:
        return Presence(kind=kind)
    wakes_in_s = 0
    if kind is PresenceKind.SLEEPING:
        wakes_in_s = _whole_seconds(words.pop(1) if len(words) > 1 else "")
    return Presence(
        kind=kind,
        is_available=words[1:2] != [_AVAILABLE[False]],
        bucket=_bucket(words[2] if len(words) > 2 else ""),
        wakes_in_s=wakes_in_s,
    )


def _whole_seconds(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        raise WireError("E-WIRE-STATUS", "whole seconds of sleep", repr(text[:40]))
    return int(text)


def _bucket(text: str) -> PowerBucket:
    try:
        return PowerBucket(text)
    except ValueError:
        return PowerBucket.UNKNOWN
