"""Inputs and outputs of the two round machines; drivers carry out effects in order."""

from dataclasses import dataclass, field

from edgefl._native import AgreementKey, RingSum, Seed
from edgefl.errors import EdgeflError
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase
from edgefl.protocol.report import RoundReport
from edgefl.secagg.session import Session
from edgefl.types import RingVector, Update

# ---------------------------------------------------------------- device


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorSaid:
    """Another message of the session, with the gateway's signature checked."""

    message: AggregatorMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Training ended; `update` is None where it failed or there is no data.

    Attributes:
        examples: How many examples it was trained on; the weight where the plan is weighted.
    """

    update: Update | None = field(repr=False)
    examples: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """The masked input is ready to be sent."""

    packed: bytes = field(repr=False)


DeviceEvent = AggregatorSaid | Trained | Masked


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Write the machine's snapshot to durable storage before any later effect is carried out.

    Security: it holds the session's secrets.

    Attributes:
        snapshot: The whole state but for the masked vector, of which it holds the hash.
        spool: The masked vector, where it is new: to be durable before the snapshot is.
    """

    snapshot: bytes
    spool: bytes | None = None

    def __repr__(self) -> str:
        """Hide the content."""
        return f"Persist(<{len(self.snapshot)} bytes>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendUp:
    """Send a message to the aggregator, until it gives a receipt."""

    message: DeviceMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Train as the plan says, and feed back `Trained`."""

    plan: SessionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskJob:
    """Encode and mask an update (`edgefl.protocol.masked_input.run`), and feed back `Masked`.

    Attributes:
        update: float32 [d], not yet clipped.
        weight: 1 to the plan's weight bound.
        neighbours: Positions that pairwise masks are shared with.
    """

    plan: SessionPlan
    session: Session
    own: int
    update: Update
    weight: int
    neighbours: tuple[int, ...]
    mask_secret: AgreementKey
    self_seed: Seed
    rounding_seed: Seed
    noise_seed: Seed

    def __repr__(self) -> str:
        """Hide the content."""
        return "MaskJob(<secret>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The device refused something that the aggregator asked for; for the log and the counters."""

    error: EdgeflError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFinished:
    """The round is over for this device; its snapshot can be wiped."""

    phase: Phase
    abort_reason: AbortReason
    left: LeaveReason | None
    counted: bool


DeviceEffect = PersistEpoch | Persist | SendUp | TrainJob | MaskJob | Refused | DeviceFinished

# ---------------------------------------------------------------- aggregator


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSaid:
    """A message from a device, with its identity's signature checked."""

    device: str
    session_id: bytes
    message: DeviceMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOffline:
    """The broker or a grace period says that a device is gone."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOnline:
    """A device is back."""

    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The time asked for by `SetTimer` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """The ledger row is durable: the unmask request may be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The operator, the budget or a shutdown ends the round."""

    reason: AbortReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmasked:
    """The result of an `UnmaskJob`: the sum, or why there is none.

    Attributes:
        total: uint32 [padded dimension], still rotated where the plan rotates.
        total_weight: Sum of the survivors' weights; their number where the plan has no weights.
        liars: Positions whose shares were wrong although others sufficed.
    """

    total: RingVector | None = field(repr=False)
    total_weight: int = 0
    failure: AbortReason
    liars: tuple[int, ...] = ()


AggregatorEvent = (
    DeviceSaid | DeviceOffline | DeviceOnline | TimerFired | Charged | Cancelled | Unmasked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDown:
    """Send a message to one device."""

    device: str
    message: AggregatorMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Feed back `TimerFired` at this time; replaces an earlier wish."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Write the ledger row durably; feed back `Charged`, or `Cancelled` if the budget refuses."""

    plan: SessionPlan
    n_survivors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskJob:
    """Reconstruct secrets, remove masks (`edgefl.protocol.unmasking`); feed back `Unmasked`.

    Attributes:
        total: Sum of the masked inputs; overwritten.
        commitments: Commitment to each survivor's self-mask seed, by position.
        seed_shares: For each survivor's position, shares of its self-mask seed by holder; a
            holder's Shamir point is 1 + its number here, which is its position in the plan, in the
            one-upload mode its position in the key epoch.
        key_shares: For each dropped position, shares of its mask key by holder.
        masked_with: For each dropped position, the survivors whose vectors hold their mask with it.
        skipped: Seed of a pairwise mask that of two survivors the first left out and the second
            used.
    """

    plan: SessionPlan
    session: Session
    total: RingSum
    commitments: dict[int, bytes]
    seed_shares: dict[int, dict[int, bytes]]
    key_shares: dict[int, dict[int, bytes]]
    masked_with: dict[int, tuple[int, ...]]
    skipped: dict[tuple[int, int], Seed]

    def __repr__(self) -> str:
        """Hide the content."""
        return "UnmaskJob(<secret>)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """A phase opened, for the operator."""

    phase: Phase
    needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFinished:
    """The round is over.

    Attributes:
        total: uint32 [padded dimension], exact sum of the survivors' ring vectors, where the round
            was committed.
        total_weight: Sum of the survivors' weights.
    """

    report: RoundReport
    plan: SessionPlan | None
    total: RingVector | None = field(repr=False)
    total_weight: int = 0


AggregatorEffect = SendDown | SetTimer | Charge | UnmaskJob | PhaseChanged | RoundFinished
