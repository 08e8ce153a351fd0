"""What an operator is told about a round: who arrived in each phase, who dropped out, and why."""

from dataclasses import dataclass

from edgefl.protocol.reasons import AbortReason, DropReason, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """One device that was announced for a phase and did not complete it."""

    device: str
    phase: Phase
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCount:
    """How many devices a phase waited for, needed and got."""

    phase: Phase
    expected: int
    needed: int
    arrived: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """The outcome of one attempt at one round.

    Attributes:
        survivors: Devices whose update is in the sum; empty where there is none.
        unmasked: Devices that answered the unmask request.
        sum_check_held: None where no sum was unmasked.
        charged: The privacy ledger was charged for this attempt.
    """

    task: str
    round_number: int
    attempt: int
    outcome: Phase
    abort_reason: AbortReason
    phases: tuple[PhaseCount, ...]
    dropouts: tuple[Dropout, ...]
    survivors: tuple[str, ...]
    unmasked: int
    sum_check_held: bool | None
    charged: bool
