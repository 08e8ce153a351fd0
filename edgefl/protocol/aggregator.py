"""The aggregator's half of a round: a pure machine from events and time to effects.

A device that falls silent in any phase costs only its own update. The sum is opened only for at
least `survivor_floor` survivors, and only after the privacy ledger says that the row is durable.
"""

from collections.abc import Callable
from typing import ClassVar

from edgefl.errors import ConfigError, LocalProtocolError
from edgefl.protocol.check_ins import CheckIns
from edgefl.protocol.collection import SessionCollection
from edgefl.protocol.envelope import NO_SESSION
from edgefl.protocol.events import (
    AggregatorEffect,
    AggregatorEvent,
    Cancelled,
    Charge,
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
from edgefl.protocol.messages import (
    AggregatorMessage,
    Call,
    CheckIn,
    Leave,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoundClosed,
    SharedKeys,
)
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import Dropout, PhaseCount, RoundReport
from edgefl.protocol.round_setup import RoundSetup, threshold_for
from edgefl.types import RingVector


class AggregatorRound:
    """One attempt at one round, seen from the aggregator.

    Args:
        setup: The gateway's decisions.
        offline: Devices of the population that are known to be gone.
        now_s: The time.
    """

    def __init__(self, *, setup: RoundSetup, offline: frozenset[str], now_s: float) -> None:
        """Prepare the round. Nothing is sent before `begin`.

        Raises:
            LocalProtocolError: The population is larger than the cohort that the ring was sized
                for.
            ConfigError: The survivor floor is too low for the population to be unmasked at it.
        """
        if len(setup.population) > setup.privacy.n_cohort:
            raise LocalProtocolError(
                "E-COHORT-SIZE",
                f"at most {setup.privacy.n_cohort} devices",
                str(len(setup.population)),
            )
        least_floor = threshold_for(len(setup.population)) + 1
        if setup.privacy.survivor_floor < least_floor:
            # Survivors at the floor could not be unmasked: nobody holds a share of its own secret.
            raise ConfigError(
                "E-FLOOR-THRESHOLD",
                f"a survivor floor of at least {least_floor} for {len(setup.population)} devices",
                str(setup.privacy.survivor_floor),
                "raise the survivor floor or call fewer devices",
            )
        self._setup = setup
        self._offline = set(offline)
        self._left: dict[str, DropReason] = {}
        self._phase_started_s = now_s
        self.phase = Phase.CHECK_IN
        self._check_ins = CheckIns(setup)
        self._session: SessionCollection | None = None
        self._is_charged = False
        self._is_unmasking = False
        self._sum_check_held: bool | None = None
        self._counts: list[PhaseCount] = []
        self._dropouts: dict[str, Dropout] = {}
        self._closing: dict[str, RoundClosed] = {}

    # ------------------------------------------------------------ public

    def begin(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Open the check-in. The driver publishes `call`."""
        self._phase_started_s = now_s
        return (
            PhaseChanged(phase=Phase.CHECK_IN, needed=self._needed()),
            SetTimer(at_s=now_s + self._setup.limits.check_in_s),
            *self._advance_if_complete(now_s),
        )

    @property
    def plan(self) -> SessionPlan | None:
        """The session plan, once the cohort is fixed."""
        return None if self._session is None else self._session.plan

    @property
    def call(self) -> Call:
        """The call that opened this attempt."""
        return self._setup.call

    @property
    def population(self) -> frozenset[str]:
        """Devices that may take part."""
        return frozenset(self._setup.population)

    @property
    def arrived(self) -> int:
        """Devices that completed the current phase."""
        return 0 if self.phase.is_final else len(self._done())

    @property
    def needed(self) -> int:
        """Devices that the current phase needs."""
        return 0 if self.phase.is_final else self._needed()

    @property
    def expected(self) -> int:
        """Devices that the current phase was opened for."""
        return 0 if self.phase.is_final else len(self._expected())

    def waiting_for(self) -> list[str]:
        """Return the devices that the current phase still waits for."""
        if self.phase.is_final:
            return []
        return sorted(self._expected() - self._done() - self._offline - self._left.keys())

    def message_for(self, device: str) -> AggregatorMessage | None:
        """Return what `device` should have received by now, for sending it again."""
        if self.phase.is_final:
            return self._closing.get(device)
        if self.phase is Phase.CHECK_IN:
            return self._setup.call if device in self._setup.population else None
        session = self._session
        position = None if session is None else session.plan.position_of(device)
        if session is None or position is None or device in self._left:
            return None
        if self.phase is Phase.SHARE_KEYS:
            return PlanAnnouncement(plan=session.plan.to_bytes())
        if self.phase is Phase.MASKED_INPUT and device in session.sharers:
            return session.routed_to(position)
        if self.phase is Phase.UNMASKING and device in session.survivors and self._is_charged:
            return session.unmask_request()
        return None

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

    # ------------------------------------------------------------ events

    def _on_message(self, event: DeviceSaid, now_s: float) -> tuple[AggregatorEffect, ...]:
        if isinstance(event.message, Leave):
            return self._on_leave(event, now_s)
        transition = self._MESSAGES.get((self.phase, type(event.message)))
        if transition is None or event.device in self._left:
            return ()
        transition(self, event)
        return self._advance_if_complete(now_s)

    def _on_check_in(self, event: DeviceSaid) -> None:
        if isinstance(event.message, CheckIn):
            self._check_ins.take(event.device, event.message)

    def _on_contribution(self, event: DeviceSaid) -> None:
        session, message = self._session, event.message
        if session is None or event.session_id != session.plan.session_id:
            return
        position = session.plan.position_of(event.device)
        if position is None:
            return
        if isinstance(message, SharedKeys):
            session.take_shared_keys(position, message)
        elif isinstance(message, MaskedInput):
            session.take_masked_input(position, message)
        elif isinstance(message, RevealedShares):
            session.take_revealed(position, message)

    def _on_leave(self, event: DeviceSaid, now_s: float) -> tuple[AggregatorEffect, ...]:
        # A leave from an earlier session says nothing about this one.
        session = self._session
        session_ids: set[bytes] = set() if session is None else {session.plan.session_id}
        if session is None or event.device not in session.sharers:
            # A device that refuses the plan belongs to no session yet.
            session_ids.add(NO_SESSION)
        if event.session_id not in session_ids:
            return ()
        return self.remove(event.device, DropReason.LEFT, now_s)

    def remove(self, device: str, reason: DropReason, now_s: float) -> tuple[AggregatorEffect, ...]:
        """Stop waiting for a device that left or broke the protocol. What it already gave stays."""
        if self.phase.is_final or device in self._left or device not in self._expected():
            return ()
        self._left[device] = reason
        if device in self._done():
            return ()  # Later phases will not wait for it.
        self._note_dropout(device, reason)
        return self._advance_if_complete(now_s)

    def _on_offline(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        if isinstance(event, DeviceOffline):
            self._offline.add(event.device)
        return self._advance_if_complete(now_s)

    def _on_online(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        del now_s
        if isinstance(event, DeviceOnline):
            self._offline.discard(event.device)
            message = self.message_for(event.device)
            if message is not None and event.device not in self._done():
                return (SendDown(device=event.device, message=message),)
        return ()

    def _on_timer(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        del event
        if self._is_unmasking or (self.phase is Phase.UNMASKING and not self._is_charged):
            return ()
        due_s = self._phase_started_s + self._setup.limits.of(self.phase)
        return self._close_phase(now_s) if now_s >= due_s else (SetTimer(at_s=due_s),)

    def _on_charged(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        del event
        if self.phase is not Phase.UNMASKING or self._is_charged:
            return ()
        self._is_charged = True
        self._phase_started_s = now_s
        session = self._require_session()
        request = session.unmask_request()
        return (
            *(SendDown(device=device, message=request) for device in sorted(session.survivors)),
            SetTimer(at_s=now_s + self._setup.limits.unmasking_s),
            *self._advance_if_complete(now_s),
        )

    def _on_cancelled(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        if not isinstance(event, Cancelled):
            raise LocalProtocolError("E-AGGREGATOR-EVENT", "Cancelled", type(event).__name__)
        return self._abort(event.reason, now_s)

    def _on_unmasked(self, event: AggregatorEvent, now_s: float) -> tuple[AggregatorEffect, ...]:
        if not isinstance(event, Unmasked) or not self._is_unmasking:
            return ()
        if event.total is None:
            self._sum_check_held = False if event.failure is AbortReason.SUM_CHECK_FAILED else None
            return self._abort(event.failure, now_s)
        self._sum_check_held = True
        self._count_phase(now_s)
        return self._finish(Phase.COMMITTED, AbortReason.NONE, event.total)

    # ------------------------------------------------------------ phases

    def _advance_if_complete(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        if self._is_unmasking or (self.phase is Phase.UNMASKING and not self._is_charged):
            return ()
        return () if self.waiting_for() else self._close_phase(now_s)

    def _close_phase(self, now_s: float) -> tuple[AggregatorEffect, ...]:
        for device in sorted(self._expected() - self._done()):
            silence = DropReason.OFFLINE if device in self._offline else DropReason.TIMED_OUT
            self._note_dropout(device, self._left.get(device, silence))
        if len(self._done()) < self._needed():
            return self._abort(_SHORTFALL[self.phase], now_s)
        if self.phase is Phase.UNMASKING:
            return self._start_unmasking()
        self._count_phase(now_s)
        closing = self.phase
        self.phase = Phase(closing + 1)
        self._phase_started_s = now_s
        opened = self._OPENERS[closing](self)
        return (
            PhaseChanged(phase=self.phase, needed=self._needed()),
            *opened,
            *(
                (SetTimer(at_s=now_s + self._setup.limits.of(self.phase)),)
                if self.phase is not Phase.UNMASKING
                else ()
            ),
            *self._advance_if_complete(now_s),
        )

    def _open_share_keys(self) -> tuple[AggregatorEffect, ...]:
        self._session = SessionCollection(self._check_ins.make_plan())
        announcement = PlanAnnouncement(plan=self._session.plan.to_bytes())
        members = self._session.plan.members
        return tuple(SendDown(device=member.device, message=announcement) for member in members)

    def _open_masked_input(self) -> tuple[AggregatorEffect, ...]:
        session = self._require_session()
        return tuple(
            SendDown(device=member.device, message=session.routed_to(position))
            for position, member in enumerate(session.plan.members)
            if member.device in session.sharers
        )

    def _open_unmasking(self) -> tuple[AggregatorEffect, ...]:
        session = self._require_session()
        return (Charge(plan=session.plan, n_survivors=len(session.survivors)),)

    def _start_unmasking(self) -> tuple[AggregatorEffect, ...]:
        self._is_unmasking = True
        return (self._require_session().unmask_job(),)

    def _abort(self, reason: AbortReason, now_s: float) -> tuple[AggregatorEffect, ...]:
        self._count_phase(now_s)
        return self._finish(Phase.ABORTED, reason, None)

    def _finish(
        self, outcome: Phase, reason: AbortReason, total: RingVector | None
    ) -> tuple[AggregatorEffect, ...]:
        survivors = set() if self._session is None else self._session.survivors
        revealers = set() if self._session is None else self._session.revealers
        committed = outcome is Phase.COMMITTED
        self.phase = outcome
        report = RoundReport(
            task=self._setup.call.task,
            round_number=self._setup.call.round_number,
            attempt=self._setup.call.attempt,
            outcome=outcome,
            abort_reason=reason,
            phases=tuple(self._counts),
            dropouts=tuple(self._dropouts[device] for device in sorted(self._dropouts)),
            survivors=tuple(sorted(survivors)) if committed else (),
            unmasked=len(revealers),
            sum_check_held=self._sum_check_held,
            charged=self._is_charged,
        )
        self._closing = {
            device: RoundClosed(
                phase=outcome, reason=reason, counted=committed and device in survivors
            )
            for device in sorted(self._check_ins.devices)
        }
        closing = (
            SendDown(device=device, message=message) for device, message in self._closing.items()
        )
        # The model and the report come first: a device that hears "counted" must be able
        # to rely on it.
        return (RoundFinished(report=report, plan=self.plan, total=total), *closing)

    # ------------------------------------------------------------ bookkeeping

    def _expected(self) -> set[str]:
        if self.phase is Phase.CHECK_IN:
            return set(self._setup.population)
        if self.phase is Phase.SHARE_KEYS:
            return self._check_ins.devices
        session = self._require_session()
        return session.sharers if self.phase is Phase.MASKED_INPUT else session.survivors

    def _done(self) -> set[str]:
        if self.phase is Phase.CHECK_IN:
            return self._check_ins.devices
        session = self._require_session()
        if self.phase is Phase.SHARE_KEYS:
            return session.sharers
        return session.survivors if self.phase is Phase.MASKED_INPUT else session.revealers

    def _needed(self) -> int:
        floor = self._setup.privacy.survivor_floor
        if self.phase is Phase.UNMASKING:
            # No device holds a share of its own secret, so one answer more than the
            # threshold is needed.
            return self._require_session().plan.threshold + 1
        return floor

    def _require_session(self) -> SessionCollection:
        if self._session is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a session", "none")
        return self._session

    def _count_phase(self, now_s: float) -> None:
        self._counts.append(
            PhaseCount(
                phase=self.phase,
                expected=len(self._expected()),
                needed=self._needed(),
                arrived=len(self._done()),
                duration_s=now_s - self._phase_started_s,
            )
        )

    def _note_dropout(self, device: str, reason: DropReason) -> None:
        self._dropouts.setdefault(device, Dropout(device=device, phase=self.phase, reason=reason))

    _MESSAGES: ClassVar[
        dict[tuple[Phase, type], Callable[["AggregatorRound", DeviceSaid], None]]
    ] = {
        (Phase.CHECK_IN, CheckIn): _on_check_in,
        (Phase.SHARE_KEYS, SharedKeys): _on_contribution,
        (Phase.MASKED_INPUT, MaskedInput): _on_contribution,
        (Phase.UNMASKING, RevealedShares): _on_contribution,
    }
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
    _OPENERS: ClassVar[dict[Phase, Callable[["AggregatorRound"], tuple[AggregatorEffect, ...]]]] = {
        Phase.CHECK_IN: _open_share_keys,
        Phase.SHARE_KEYS: _open_masked_input,
        Phase.MASKED_INPUT: _open_unmasking,
    }


_SHORTFALL = {
    Phase.CHECK_IN: AbortReason.TOO_FEW_CHECKED_IN,
    Phase.SHARE_KEYS: AbortReason.TOO_FEW_SHARED_KEYS,
    Phase.MASKED_INPUT: AbortReason.BELOW_SURVIVOR_FLOOR,
    Phase.UNMASKING: AbortReason.TOO_FEW_UNMASKED,
}
