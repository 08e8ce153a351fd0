"""Who is gone, who has left, and who did not complete a phase of one attempt."""

from collections.abc import Set

from edgefl.protocol.reasons import DropReason, Phase
from edgefl.protocol.round_log import RoundLog
from edgefl.protocol.round_phases import RoundPhase


class Attendance:
    """Devices that no phase waits for, and what the round's report says of them.

    Args:
        log: What happened in the round so far.
        offline: Devices that are known to be gone.

    Attributes:
        offline: Those that are gone now; they may come back.
        left: Why others take no further part.
    """

    def __init__(self, log: RoundLog, offline: Set[str]) -> None:
        """Start with nobody who has left."""
        self._log = log
        self.offline = set(offline)
        self.left: dict[str, DropReason] = {}

    @property
    def silent(self) -> set[str]:
        """Devices that no phase waits for."""
        return self.offline | self.left.keys()

    def note_left(self, device: str, reason: DropReason, phase: RoundPhase) -> None:
        """Note a device that takes no further part. What it already gave stays."""
        self.left[device] = reason
        if device in phase.expected - phase.done:
            self._log.note_dropout(device, phase.phase, reason)

    def note_dropouts(
        self, devices: Set[str], phase: RoundPhase
    ) -> tuple[tuple[str, DropReason], ...]:
        """Note who did not complete a phase, and return them with the reasons."""
        if not phase.silence_is_a_dropout:
            devices = devices & self.left.keys()
        silence = {
            device: DropReason.OFFLINE if device in self.offline else DropReason.TIMED_OUT
            for device in sorted(devices)
        }
        found = tuple((device, self.left.get(device, why)) for device, why in silence.items())
        for device, reason in found:
            self._log.note_dropout(device, phase.phase, reason)
        return found

    def leave_out_cut_off(self, phase: RoundPhase) -> None:
        """Wait no more for devices whose neighbourhood was lost when SHARE_KEYS closed."""
        session = phase.session
        if session is None or phase.phase is not Phase.SHARE_KEYS:
            return
        for device in session.cut_off:
            self.left.setdefault(device, DropReason.CUT_OFF)
            self._log.note_dropout(device, phase.phase, DropReason.CUT_OFF)
