"""What the gateway decides before it calls a round."""

from dataclasses import dataclass

from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol.messages import Call
from edgefl.protocol.plan import TrainingPlan
from edgefl.protocol.reasons import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLimits:
    """How long each phase waits for silent devices, in seconds."""

    check_in_s: float = 30.0
    share_keys_s: float = 30.0
    masked_input_s: float = 120.0
    unmasking_s: float = 30.0

    def of(self, phase: Phase) -> float:
        """Return the limit of an open phase."""
        return {
            Phase.CHECK_IN: self.check_in_s,
            Phase.SHARE_KEYS: self.share_keys_s,
            Phase.MASKED_INPUT: self.masked_input_s,
            Phase.UNMASKING: self.unmasking_s,
        }[phase]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSetup:
    """What the gateway decides before it calls a round.

    Attributes:
        population: Identity key by device, of every device that may check in.
        ledger_head: Hash of the newest ledger row.
    """

    fleet: str
    call: Call
    population: dict[str, bytes]
    privacy: PrivacyPlan
    training: TrainingPlan
    bundle_sha256: bytes
    parameters_sha256: bytes
    ledger_head: bytes
    limits: PhaseLimits


def threshold_for(cohort: int) -> int:
    """Return the reconstruction threshold of a complete graph: a strict majority of the cohort.

    With more than half, no two lists of the same session can both be answered by enough devices.
    """
    return cohort // 2 + 1
