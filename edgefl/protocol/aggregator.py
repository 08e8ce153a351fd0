"""The aggregator's half of a round: a pure machine from events and time to effects.

A device that falls silent in any phase costs only its own update. The sum is opened only for at
least `survivor_floor` survivors, and only after the privacy ledger says that the row is durable.
"""

from collections.abc import Callable, Set
from typing import ClassVar

from edgefl.errors import LocalProtocolError
from edgefl.protocol.envelope import NO_SESSION
from edgefl.protocol.events import (
    AggregatorEffect,
    AggregatorEvent,
    Cancelled,
    Charged,
    DeviceOffline,
    DeviceOnline,
    DeviceSaid,
    PhaseChanged,
    RoundFinished,
    SendDown,
    SetTimer,
    TimerFired,
    Unmasked,
)
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import PhaseCount
from edgefl.protocol.round_attendance import Attendance
from edgefl.protocol.round_journal import (
    JournalPart,
    LedgerCharged,
    PhaseClosed,
    Removed,
    RoundJournal,
    Took,
    without_vector,
)
from edgefl.protocol.round_log import RoundLog
from edgefl.protocol.round_messages import Call, Leave, RoundClosed
from edgefl.protocol.round_phases import CheckInPhase, RoundPhase, UnmaskingPhase
from edgefl.protocol.round_replay import replay
from edgefl.protocol.round_setup import PhaseLimits, RoundSetup


class AggregatorRound:
    """One attempt at one round, seen from the aggregator.

    Args:
        setup: The gateway's decisions.
        offline: Devices of the population that are known to be gone.
        now_s: The time.
        first: The phase that the round opens with; CHECK_IN if not given.
        keeps_journal: Whether the driver stores what `take_journal` gives, for `replay`.
    """

    def __init__(
        self,
        *,
        setup: RoundSetup,
        offline: frozenset[str],
        now_s: float,
        first: RoundPhase | None = None,
        keeps_journal: bool = False,
    ) -> None:
        """Prepare the round. Nothing is sent before `begin`."""
        self._setup = setup
        self._phase_started_s = self._last_arrival_s = now_s
        self._open: RoundPhase = CheckInPhase(setup) if first is None else first
        self._outcome: Phase | None = None
        self._is_unmasking = False
        self._enough_until_s: float | None = None
        self._log = RoundLog(setup.call)
        self._attendance = Attendance(self._log, offline)
        self._closing: dict[str, RoundClosed] = {}
        self._journal = RoundJournal(is_kept=keeps_journal)

    # ------------------------------------------------------------ public

    def begin(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Open the check-in. The driver publishes `call`."""
        self._phase_started_s = now_s
        return (
            PhaseChanged(phase=Phase.CHECK_IN, needed=self._open.needed),
            SetTimer(at_s=now_s + self._setup.limits.check_in_s),
            *self._advance_if_complete(now_s),
        )

    @property
    def phase(self) -> Phase:
        """The open phase, or how the round ended."""
        return self._open.phase if self._outcome is None else self._outcome

    @property
    def plan(self) -> SessionPlan | None:
        """The session plan, once the cohort is fixed."""
        return None if self._open.session is None else self._open.session.plan

    @property
    def call(self) -> Call:
        """The call that opened this attempt."""
        return self._setup.call

    @property
    def limits(self) -> PhaseLimits:
        """How long each phase waits."""
        return self._setup.limits

    @property
    def population(self) -> frozenset[str]:
        """Devices that may take part."""
        return self._setup.population

    @property
    def arrived(self) -> int:
        """Devices that completed the current phase."""
        return 0 if self.phase.is_final else len(self._open.done)

    @property
    def needed(self) -> int:
        """Least number of devices that the current phase can go on with."""
        return 0 if self.phase.is_final else self._open.needed

    @property
    def expected(self) -> int:
        """Devices that the current phase was opened for."""
        return 0 if self.phase.is_final else len(self._open.expected)

    def waiting_for(self) -> list[str]:
        """Return the devices that the current phase still waits for."""
        if self.phase.is_final:
            return []
        return sorted(self._open.expected - self._open.done - self._attendance.silent)

    def has_input_of(self, device: str) -> bool:
        """Tell whether a device's vector is in the sum."""
        session = None if self.phase.is_final else self._open.session
        return session is not None and device in session.survivors

    def takes(self, message: type[DeviceMessage]) -> bool:
        """Tell whether the current phase has any use for a kind of message."""
        return not self.phase.is_final and issubclass(message, self._open.takes)

    def message_for(self, device: str) -> AggregatorMessage | None:
        """Return what `device` should have received by now, for sending it again."""
        if self.phase.is_final:
            return self._closing.get(device)
        if device not in self._open.expected:
            return None
        if device in self._attendance.left and self.phase is not Phase.CHECK_IN:
            return None
        return self._open.message_for(device)

    def handle(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Take one event and return what to do, in order.

        Raises:
            RemoteProtocolError: A device broke the protocol; the state is unchanged, and the
                driver is to call `remove`.
        """
        if self.phase.is_final:
            return ()
        if isinstance(event, DeviceSaid):
            return self._on_message(event, now_s)
        return self._EVENTS[type(event)](self, event, now_s)

    def remove(self, device: str, reason: DropReason, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Stop waiting for a device that left or broke the protocol. What it already gave stays."""
        if (
            self.phase.is_final
            or device in self._attendance.left
            or device not in self._open.present
        ):
            return ()
        self._attendance.note_left(device, reason, self._open)
        self._journal.note(Removed(device=device, reason=reason))
        return self._advance_if_complete(now_s)

    # ------------------------------------------------------------ a gateway that restarts

    @property
    def has_unsaved_inputs(self) -> bool:
        """Whether masked inputs are in the sum that the journal was not yet asked for."""
        return self._journal.has_unsaved_inputs

    def take_journal(self, *, with_inputs: bool) -> JournalPart:
        """Return what has to be stored before anything is said about it.

        Args:
            with_inputs: Whether to store the sum, and the masked inputs that are new in it. When
                their phase closes, that is done in any case.
        """
        entries, has_new_sum = self._journal.take(with_inputs=with_inputs)
        session = self._open.session if has_new_sum else None
        total = None if session is None else session.packed_total()
        return JournalPart(entries=entries, total=total)

    def replay(self, part: JournalPart, now_s: float) -> None:
        """Take what an earlier life has stored, in place of `begin`; `resume` goes on.

        Raises:
            RemoteProtocolError: It is not the journal of this round.
            WireError: The sum is of another plan.
        """
        for entry in part.entries:
            self._open = replay(entry, self._open, self._attendance, self._log)
        session = self._open.session
        if part.total is not None and session is not None:
            session.restore_total(part.total)
        self._phase_started_s = self._last_arrival_s = now_s

    def resume(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Go on with a round that was replayed; its open phase may last as long as a new one.

        Nothing is sent: devices are asked again as they come back, and when they are silent.
        """
        self._phase_started_s = self._last_arrival_s = now_s
        if isinstance(self._open, UnmaskingPhase) and not self._open.is_charged:
            return (self._open.charge(),)
        timer = SetTimer(at_s=now_s + self._setup.limits.of(self.phase))
        return (timer, *self._advance_if_complete(now_s))

    # ------------------------------------------------------------ events

    def _on_message(self, event: DeviceSaid, now_s: float) -> tuple[AggregatorEffect, ...]:
        if isinstance(event.message, Leave):
            return self._on_leave(event, now_s)
        if not isinstance(event.message, self._open.takes) or event.device in self._attendance.left:
            return ()
        if self._open.take(event):
            self._last_arrival_s = now_s
            self._journal.note(self._took(event))
        return self._advance_if_complete(now_s)

    def _took(self, event: DeviceSaid) -> Took:
        session, digest = self._open.session, None
        if session is not None and self.phase is Phase.MASKED_INPUT:
            position = session.position_of(event.device)
            digest = None if position is None else session.input_digest(position)
        return Took(
            device=event.device,
            session_id=event.session_id,
            message=without_vector(event.message),
            input_digest=digest,
        )

    def _on_leave(self, event: DeviceSaid, now_s: float) -> tuple[AggregatorEffect, ...]:
        # A leave from an earlier session says nothing about this one.
        session = self._open.session
        session_ids: set[bytes] = set() if session is None else {session.plan.session_id}
        if session is None or event.device not in session.shared:
            # A device that refuses the plan belongs to no session yet.
            session_ids.add(NO_SESSION)
        if event.session_id not in session_ids:
            return ()
        return self.remove(event.device, DropReason.LEFT, now_s)

    def _on_offline(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        if isinstance(event, DeviceOffline):
            self._attendance.offline.add(event.device)
        return self._advance_if_complete(now_s)

    def _on_online(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        del now_s
        if isinstance(event, DeviceOnline):
            self._attendance.offline.discard(event.device)
            message = self.message_for(event.device)
            if message is not None and event.device not in self._open.done:
                return (SendDown(device=event.device, message=message),)
        return ()

    def _on_timer(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        del event
        if not self._waits_for_devices:
            return ()
        due_s = self._phase_started_s + self._setup.limits.of(self.phase)
        if now_s >= due_s:
            return self._close_phase(now_s)
        return self._advance_if_complete(now_s) or (SetTimer(at_s=due_s),)

    def _on_charged(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        del event
        if not isinstance(self._open, UnmaskingPhase) or self._open.is_charged:
            return ()
        self._open.is_charged = True
        self._journal.note(LedgerCharged())
        self._phase_started_s = now_s
        return self._ask_devices(now_s)

    def _on_cancelled(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        if not isinstance(event, Cancelled):
            raise LocalProtocolError("E-AGGREGATOR-EVENT", "Cancelled", type(event).__name__)
        return self._abort(event.reason, now_s)

    def _on_unmasked(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        session = self._open.session
        if not isinstance(event, Unmasked) or not self._is_unmasking or session is None:
            return ()
        for device in session.holder_names(event.liars):
            self._log.note_liar(device)
        if event.total is None:
            if event.failure is AbortReason.SUM_CHECK_FAILED:
                self._log.sum_check_held = False
            return self._abort(event.failure, now_s)
        self._log.sum_check_held = True
        self._count_phase(now_s)
        return self._finish(Phase.COMMITTED, AbortReason.NONE, event)

    # ------------------------------------------------------------ phases

    @property
    def _waits_for_devices(self) -> bool:
        """Whether devices are waited for, and not the ledger or the unmasking job."""
        is_uncharged = isinstance(self._open, UnmaskingPhase) and not self._open.is_charged
        return not (is_uncharged or self._is_unmasking)

    def _advance_if_complete(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        if not self._waits_for_devices:
            return ()
        is_ample = self._open.is_ample(self._attendance.silent)
        if is_ample and not self._open.waits_for_stragglers:
            return self._close_phase(now_s, is_early=True)
        may_be_all = len(self._open.done) + len(self._attendance.silent) >= len(self._open.expected)
        if may_be_all and not self.waiting_for():
            return self._close_phase(now_s)
        # Most messages end here, without a look at every device.
        return self._wait_for_stragglers(now_s) if is_ample else ()

    def _wait_for_stragglers(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Give those who seem to be there a moment, so that the dead among them are named."""
        if self._enough_until_s is None:
            self._enough_until_s = now_s + self._setup.limits.stragglers_s
        if now_s >= self._enough_until_s:
            return self._close_phase(now_s, is_early=True)
        due_s = self._phase_started_s + self._setup.limits.of(self.phase)
        return (SetTimer(at_s=min(due_s, self._enough_until_s)),)

    def _close_phase(self, now_s: float, *, is_early: bool = False) -> tuple[AggregatorEffect, ...]:
        self._enough_until_s = None
        missing = self._open.expected - self._open.done
        # After an early end the others may still answer; nobody needs them to.
        noted = missing & self._attendance.silent if is_early else missing
        dropouts = self._attendance.note_dropouts(noted, self._open)
        failure = self._open.close()
        self._attendance.leave_out_cut_off(self._open)
        if failure is not None:
            return self._abort(failure, now_s)
        if isinstance(self._open, UnmaskingPhase):
            self._is_unmasking = True
            return (self._open.session.unmask_job(),)
        count = self._count_phase(now_s)
        self._open = self._open.next()
        self._phase_started_s = now_s
        if self.plan is not None:
            self._journal.note(
                PhaseClosed(count=count, session_id=self.plan.session_id, dropouts=dropouts)
            )
        changed = PhaseChanged(phase=self.phase, needed=self._open.needed)
        if isinstance(self._open, UnmaskingPhase):
            return (changed, self._open.charge())
        return (changed, *self._ask_devices(now_s))

    def _ask_devices(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Ask for the phase's message, and wait for it as long as the phase may last."""
        asked = (
            (device, self._open.message_for(device))
            for device in sorted(self._open.expected - self._attendance.left.keys())
        )
        return (
            *(SendDown(device=device, message=message) for device, message in asked if message),
            SetTimer(at_s=now_s + self._setup.limits.of(self.phase)),
            *self._advance_if_complete(now_s),
        )

    def _abort(self, reason: AbortReason, now_s: float) -> tuple[AggregatorEffect, ...]:
        self._count_phase(now_s)
        return self._finish(Phase.ABORTED, reason, None)

    def _finish(
        self, outcome: Phase, reason: AbortReason, result: Unmasked | None
    ) -> tuple[AggregatorEffect, ...]:
        last, session = self._open, self._open.session
        members: Set[str] = last.done if session is None else session.members
        survivors: Set[str] = set() if session is None else session.survivors
        self._outcome = outcome
        report = self._log.report(
            outcome,
            reason,
            members=members,
            survivors=survivors,
            unmasked=0 if session is None else len(session.revealers),
            skipped_edges=0 if session is None else session.skipped_edges,
            charged=isinstance(last, UnmaskingPhase) and last.is_charged,
        )
        self._closing = {
            device: RoundClosed(
                phase=outcome, reason=reason, counted=result is not None and device in survivors
            )
            for device in sorted(members)
        }
        finished = RoundFinished(
            report=report,
            plan=self.plan,
            total=None if result is None else result.total,
            total_weight=0 if result is None else result.total_weight,
        )
        # The model and the report come first: a device that hears "counted" must be able
        # to rely on it.
        return (
            finished,
            *(SendDown(device=device, message=closed) for device, closed in self._closing.items()),
        )

    # ------------------------------------------------------------ bookkeeping

    def _count_phase(self, now_s: float) -> PhaseCount:
        count = PhaseCount(
            phase=self.phase,
            expected=len(self._open.expected),
            needed=self._open.needed,
            arrived=len(self._open.done),
            duration_s=now_s - self._phase_started_s,
            last_arrival_s=max(0.0, self._last_arrival_s - self._phase_started_s),
        )
        self._log.note_phase(count)
        return count

    _EVENTS: ClassVar[
        dict[
            type,
            Callable[["AggregatorRound", AggregatorEvent, float], tuple[AggregatorEffect, ...]],
        ]
    ] = {
        DeviceOffline: _on_offline,
        DeviceOnline: _on_online,
        TimerFired: _on_timer,
        Charged: _on_charged,
        Cancelled: _on_cancelled,
        Unmasked: _on_unmasked,
    }
