"""Inputs and outputs of the two key-epoch machines; drivers carry out effects in order."""

from dataclasses import dataclass
from enum import Enum

from edgefl.errors import EdgeflError
from edgefl.protocol.epoch_messages import (
    EpochAggregatorMessage,
    EpochDeviceMessage,
    KeyBundleMessage,
    NonceReveal,
)
from edgefl.protocol.key_epoch import OpenEpoch
from edgefl.protocol.roster import Roster

# ---------------------------------------------------------------- both ends


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistEpoch:
    """Write the machine's snapshot to durable storage before any later effect is carried out.

    Security: a device's holds the secrets of its key epochs. The version before it is to be wiped,
    and it holds secrets that were released since: copies in a log or journal count too.
    """

    snapshot: bytes

    def __repr__(self) -> str:
        """Hide the content."""
        return f"PersistEpoch(<{len(self.snapshot)} bytes>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReady:
    """A key epoch is open: rounds can use it, and those before it are over."""

    epoch: OpenEpoch


# ---------------------------------------------------------------- device


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEpochUp:
    """Send a message to the aggregator, until it gives a receipt."""

    message: NonceReveal


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBundle:
    """Publish the device's bundle, retained, on its bundle topic."""

    message: KeyBundleMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRefused:
    """The device refused what the aggregator asked for; for the log and the counters."""

    error: EdgeflError


DeviceEpochEffect = PersistEpoch | SendEpochUp | PublishBundle | EpochRefused | EpochReady

# ---------------------------------------------------------------- aggregator


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceJoined:
    """A device has said hello with the identity that the roster names.

    Attributes:
        roster_number: Number of the header that it has pinned; 0 for none or unknown.
        key_epoch: Number of the key epoch that is open on the device; 0 for none or unknown.
    """

    device: str
    roster_number: int = 0
    key_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLeft:
    """The broker says that a device is gone."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochDeviceSaid:
    """A message from a device, with its identity's signature checked."""

    device: str
    message: EpochDeviceMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpoch:
    """Set up the next key epoch.

    Attributes:
        needed: Least members.
        least_answer_s: How long devices have for each step, where that is longer than usual: some
            sleep.
    """

    needed: int
    least_answer_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterSigned:
    """The enrolment key has signed a newer roster."""

    roster: Roster


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimerFired:
    """The time asked for by `SetEpochTimer` has come."""


AggregatorEpochEvent = (
    DeviceJoined | DeviceLeft | EpochDeviceSaid | BeginEpoch | RosterSigned | EpochTimerFired
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEpochDown:
    """Send a message to one device."""

    device: str
    message: EpochAggregatorMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SetEpochTimer:
    """Feed back `EpochTimerFired` at this time; replaces an earlier wish."""

    at_s: float


class EpochAbortReason(Enum):
    """Why a key epoch did not open."""

    TOO_FEW_PRESENT = "too-few-present"
    TOO_FEW_BUNDLES = "too-few-bundles"
    MISSING_NONCES = "missing-nonces"
    ROSTER_CHANGED = "roster-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochAborted:
    """A key epoch will not open; the one before it stays open.

    Attributes:
        silent: Who did not answer in time; not invited again until it is heard.
    """

    key_epoch: int
    reason: EpochAbortReason
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRefused:
    """A device's message was refused; for the log and the counters."""

    device: str
    error: EdgeflError


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochFull:
    """More devices are present than one key epoch can hold.

    Attributes:
        left_out: How many were not invited; the next key epoch draws anew.
    """

    key_epoch: int
    left_out: int


AggregatorEpochEffect = (
    PersistEpoch
    | SendEpochDown
    | SetEpochTimer
    | EpochReady
    | EpochAborted
    | EpochFull
    | DeviceRefused
)
