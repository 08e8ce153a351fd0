"""Take a round from its journal to where an earlier life of the gateway had it."""

from edgefl.errors import RemoteProtocolError
from edgefl.protocol.events import DeviceSaid
from edgefl.protocol.round_attendance import Attendance
from edgefl.protocol.round_journal import JournalEntry, PhaseClosed, Removed, Took
from edgefl.protocol.round_log import RoundLog
from edgefl.protocol.round_phases import RoundPhase, UnmaskingPhase


def replay(
    entry: JournalEntry, phase: RoundPhase, attendance: Attendance, log: RoundLog
) -> RoundPhase:
    """Take one entry, and return the phase that is open then.

    Args:
        entry: The next one of the journal.
        phase: The phase that is open.
        attendance: Of the round.
        log: Of the round.

    Raises:
        RemoteProtocolError: The journal is not of this round.
    """
    if isinstance(entry, Took):
        _take(entry, phase)
    elif isinstance(entry, Removed):
        attendance.note_left(entry.device, entry.reason, phase)
    elif isinstance(entry, PhaseClosed):
        return _close(entry, phase, attendance, log)
    elif isinstance(phase, UnmaskingPhase):
        phase.is_charged = True
    return phase


def _take(entry: Took, phase: RoundPhase) -> None:
    if entry.input_digest is None:
        said = DeviceSaid(device=entry.device, session_id=entry.session_id, message=entry.message)
        phase.take(said)
        return
    session = phase.session
    position = None if session is None else session.position_of(entry.device)
    if session is None or position is None:
        raise _other_journal("an input of a member", "one of a stranger")
    session.note_input(position, entry.message, entry.input_digest)


def _close(
    entry: PhaseClosed, phase: RoundPhase, attendance: Attendance, log: RoundLog
) -> RoundPhase:
    for device, reason in entry.dropouts:
        log.note_dropout(device, phase.phase, reason)
    closed = entry.count.phase
    if closed is not phase.phase or phase.close() is not None:
        raise _other_journal(f"the end of {phase.phase.name}", f"that of {closed.name}")
    attendance.leave_out_cut_off(phase)
    log.note_phase(entry.count)
    following = phase.next()
    session = following.session
    if session is None or session.plan.session_id != entry.session_id:
        raise _other_journal("the plan that was announced", "another one")
    return following


def _other_journal(expected: str, found: str) -> RemoteProtocolError:
    return RemoteProtocolError("E-JOURNAL", expected, found)
