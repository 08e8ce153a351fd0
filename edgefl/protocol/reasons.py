"""Every phase, and every way in which a device or a round can end."""

from enum import Enum, IntEnum


class Phase(IntEnum):
    """Steps of a round, after Bonawitz et al. 2017, figure 4."""

    CHECK_IN = 1
    SHARE_KEYS = 2
    MASKED_INPUT = 3
    CERTIFICATE = 4
    UNMASKING = 5
    COMMITTED = 6
    ABORTED = 7

    @property
    def is_final(self) -> bool:
        """Tell whether no further step follows."""
        return self in (Phase.COMMITTED, Phase.ABORTED)


OPEN_PHASES = (
    Phase.CHECK_IN,
    Phase.SHARE_KEYS,
    Phase.MASKED_INPUT,
    Phase.CERTIFICATE,
    Phase.UNMASKING,
)


class DropReason(Enum):
    """Why the aggregator stopped waiting for a device in a phase."""

    OFFLINE = "offline"
    TIMED_OUT = "timed-out"
    LEFT = "left"
    BAD_MESSAGE = "bad-message"
    CUT_OFF = "cut-off"
    """It shared keys, but too few of its neighbours did to protect its update."""
    REVOKED = "revoked"
    """The operator put it out of the fleet."""


class LeaveReason(IntEnum):
    """Why a device says that it leaves a round. None of them tells anything about its data."""

    NOT_AVAILABLE = 1
    PLAN_REFUSED = 2
    STATE_LOST = 3
    TRAINING_FAILED = 4
    REQUEST_REFUSED = 5
    ROUND_UNKNOWN = 6


class AbortReason(IntEnum):
    """Why a round ended without a model."""

    NONE = 0
    TOO_FEW_CHECKED_IN = 1
    TOO_FEW_SHARED_KEYS = 2
    BELOW_SURVIVOR_FLOOR = 3
    TOO_FEW_UNMASKED = 4
    SUM_CHECK_FAILED = 5
    RECONSTRUCTION_FAILED = 6
    GATEWAY_RESTARTED = 7
    BUDGET_EXHAUSTED = 8
    CANCELLED = 9
    TOO_FEW_SIGNATURES = 10
    NEIGHBOURHOOD_LOST = 11
    """Some survivor or dropped device has fewer reachable neighbours than the threshold."""
    TOO_MANY_CHECKED_IN = 12
    """More coins fell heads than the round has room for; nobody is turned away."""


class AdversaryClass(IntEnum):
    """What the aggregator is assumed to do; checked against the device's policy.

    - HONEST_BUT_CURIOUS: it follows the protocol, and learns from what it and colluders see.
    - SEMI_MALICIOUS: it enrols and draws honestly, and may lie about who dropped out.
    - MALICIOUS: it does whatever helps it, except to enrol identities.
    """

    HONEST_BUT_CURIOUS = 1
    SEMI_MALICIOUS = 2
    MALICIOUS = 3


def phases_of(adversary: AdversaryClass) -> tuple[Phase, ...]:
    """Return the open phases of a round in a class, in order."""
    has_certificate = adversary is AdversaryClass.MALICIOUS
    return tuple(p for p in OPEN_PHASES if p is not Phase.CERTIFICATE or has_certificate)


class RoundMode(IntEnum):
    """How often a device publishes in a round.

    - SECAGG: shares, masked input and unmasking, three times after check-in.
    - ONE_UPLOAD: once; a small committee reveals. Experimental.
    """

    SECAGG = 1
    ONE_UPLOAD = 2


class Prg(IntEnum):
    """What expands a mask seed; chosen for each pair."""

    CHACHA20 = 1
    AES_128_CTR = 2

    @property
    def bit(self) -> int:
        """Its bit in a bundle's or plan's set of PRGs."""
        return 1 << (self.value - 1)


ALL_PRGS = Prg.CHACHA20.bit | Prg.AES_128_CTR.bit
