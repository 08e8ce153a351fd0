"""What happened in a round so far, for its report."""

from collections.abc import Set

from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import Dropout, PhaseCount, RoundReport
from edgefl.protocol.round_messages import Call


class RoundLog:
    """Counts and dropouts of one attempt.

    Args:
        call: The attempt.
    """

    def __init__(self, call: Call) -> None:
        """Start empty."""
        self._call = call
        self._counts: list[PhaseCount] = []
        self._dropouts: dict[str, Dropout] = {}
        self._liars: set[str] = set()
        self.sum_check_held: bool | None = None

    def note_dropout(self, device: str, phase: Phase, reason: DropReason) -> None:
        """Note the first phase that a device did not complete."""
        self._dropouts.setdefault(device, Dropout(device=device, phase=phase, reason=reason))

    def note_liar(self, device: str) -> None:
        """Note a device whose shares were wrong."""
        self._liars.add(device)
        self.note_dropout(device, Phase.UNMASKING, DropReason.BAD_MESSAGE)

    def note_phase(self, count: PhaseCount) -> None:
        """Note how a phase ended."""
        self._counts.append(count)

    def report(
        self,
        outcome: Phase,
        reason: AbortReason,
        *,
        members: Set[str],
        survivors: Set[str],
        unmasked: int,
        skipped_edges: int,
        charged: bool,
    ) -> RoundReport:
        """Return the report.

        Args:
            outcome: COMMITTED or ABORTED.
            reason: Why it was aborted.
            members: The cohort.
            survivors: Devices whose masked input arrived.
            unmasked: Devices that answered the unmask request.
            skipped_edges: Pairs of neighbours without a mask.
            charged: The privacy ledger was charged.
        """
        committed = outcome is Phase.COMMITTED
        return RoundReport(
            task=self._call.task,
            round_number=self._call.round_number,
            attempt=self._call.attempt,
            outcome=outcome,
            abort_reason=reason,
            phases=tuple(self._counts),
            dropouts=tuple(self._dropouts[device] for device in sorted(self._dropouts)),
            terminated=() if committed else tuple(sorted(members - self._dropouts.keys())),
            survivors=tuple(sorted(survivors)) if committed else (),
            unmasked=unmasked,
            liars=tuple(sorted(self._liars)),
            skipped_edges=skipped_edges,
            sum_check_held=self.sum_check_held,
            charged=charged,
        )
