"""What an operator is told about a round: who arrived in each phase, who dropped out, and why."""

from dataclasses import dataclass
from enum import Enum

from edgefl.protocol.reasons import AbortReason, DropReason, Phase


class DropKind(Enum):
    """What a dropout means for the result.

    - BEFORE_MASKED_INPUT: the device's update is not in the sum.
    - AFTER_MASKED_INPUT: its update is in the sum; others answered in its place.
    - TERMINATED: it did all that it was asked for, and the round ended without a sum.
    """

    BEFORE_MASKED_INPUT = "before-masked-input"
    AFTER_MASKED_INPUT = "after-masked-input"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """One device that was announced for a phase and did not complete it."""

    device: str
    phase: Phase
    reason: DropReason

    @property
    def kind(self) -> DropKind:
        """What it means for the result."""
        if self.phase <= Phase.MASKED_INPUT:
            return DropKind.BEFORE_MASKED_INPUT
        return DropKind.AFTER_MASKED_INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCount:
    """How many devices a phase waited for, needed and got.

    Attributes:
        last_arrival_s: When the last device completed it, since its begin; 0 where none did.
    """

    phase: Phase
    expected: int
    needed: int
    arrived: int
    duration_s: float
    last_arrival_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReport:
    """The outcome of one attempt at one round.

    Attributes:
        dropouts: By device id, each device once, with the first phase that it did not complete.
        terminated: Members of the cohort that completed every phase until the round was aborted.
        survivors: Devices whose update is in the sum; empty where there is none.
        unmasked: Devices that answered the unmask request.
        liars: Devices whose shares were wrong although others sufficed; they are dropouts too.
        skipped_edges: Pairs of neighbours without a mask, since one could not open what the other
            had sealed.
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
    terminated: tuple[str, ...] = ()
    survivors: tuple[str, ...]
    unmasked: int
    liars: tuple[str, ...] = ()
    skipped_edges: int = 0
    sum_check_held: bool | None
    charged: bool

    def of_kind(self, kind: DropKind) -> tuple[str, ...]:
        """Return the devices that dropped out, by what it means for the result."""
        if kind is DropKind.TERMINATED:
            return self.terminated
        return tuple(dropout.device for dropout in self.dropouts if dropout.kind is kind)
