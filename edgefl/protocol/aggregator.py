"""The aggregator's half of a round: a pure machine from events and time to effects.

A device that falls silent in any phase costs only its own update. The sum is opened only for at
least `survivor_floor` survivors, and only after the privacy ledger says that the row is durable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgefl.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol import wire
from edgefl.protocol.device import call_id_of
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
    UnmaskJob,
)
from edgefl.protocol.masked_input import session_of
from edgefl.protocol.messages import (
    AggregatorMessage,
    Call,
    CheckIn,
    KeyAdvert,
    Leave,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoundClosed,
    RoutedShares,
    SharedKeys,
    UnmaskRequest,
)
from edgefl.protocol.plan import SessionPlan, TrainingPlan, require_sound_advert
from edgefl.protocol.reasons import AbortReason, AdversaryClass, DropReason, Phase, Suite
from edgefl.protocol.report import Dropout, PhaseCount, RoundReport
from edgefl.secagg.masking import add_packed
from edgefl.secagg.session import Session
from edgefl.types import RingVector


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
        self.plan: SessionPlan | None = None
        self._session: Session | None = None
        self._adverts: dict[str, KeyAdvert] = {}
        self._shared: dict[int, SharedKeys] = {}
        self._survivors: set[int] = set()
        self._input_digest: dict[int, bytes] = {}
        self._revealed: dict[int, RevealedShares] = {}
        self._total: RingVector | None = None
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
        return len(self._done())

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
        position = None if self.plan is None else self.plan.position_of(device)
        if self.phase.is_final:
            return self._closing.get(device)
        if self.phase is Phase.CHECK_IN:
            return self._setup.call if device in self._setup.population else None
        if self.plan is None or position is None or device in self._left:
            return None
        if self.phase is Phase.SHARE_KEYS:
            return PlanAnnouncement(plan=self.plan.to_bytes())
        if self.phase is Phase.MASKED_INPUT and position in self._shared:
            return self._routed_to(position)
        if self.phase is Phase.UNMASKING and position in self._survivors and self._is_charged:
            return self._unmask_request()
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
        message, device = event.message, event.device
        if not isinstance(message, CheckIn) or message.call_id != call_id_of(
            self._setup.fleet, self._setup.call
        ):
            return
        advert = message.advert
        known = self._setup.population.get(device)
        if known is None or advert.device != device or advert.identity_key != known:
            raise RemoteProtocolError(
                "E-CHECK-IN-IDENTITY", "an advert of the sender", "another device's"
            )
        require_sound_advert(advert, message.call_id)
        earlier = self._adverts.setdefault(device, advert)
        if earlier != advert:
            raise RemoteProtocolError("E-CHECK-IN-TWICE", "one advert per call", "a second one")
        taken = {
            key
            for other in self._adverts.values()
            if other.device != device
            for key in (other.share_key, other.mask_key)
        }
        if advert.share_key == advert.mask_key or taken & {advert.share_key, advert.mask_key}:
            del self._adverts[device]
            raise RemoteProtocolError("E-CHECK-IN-KEYS", "fresh keys", "keys that are in use")

    def _on_shared_keys(self, event: DeviceSaid) -> None:
        position = self._position(event)
        message = event.message
        if position is None or not isinstance(message, SharedKeys) or self.plan is None:
            return
        sizes_fit = all(
            (len(sealed) == 0) == (index == position) for index, sealed in enumerate(message.sealed)
        )
        if len(message.sealed) != len(self.plan.members) or not sizes_fit:
            raise RemoteProtocolError(
                "E-SHARES-COUNT", "one ciphertext per neighbour", "another number"
            )
        if self._shared.setdefault(position, message) != message:
            raise RemoteProtocolError(
                "E-SHARES-TWICE", "one set of shares per session", "a second one"
            )

    def _on_masked_input(self, event: DeviceSaid) -> None:
        position = self._position(event)
        message = event.message
        if position is None or position not in self._shared or not isinstance(message, MaskedInput):
            return
        if self.plan is None or self._total is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a session", "none")
        digest = wire.digest(message.packed)
        if position in self._survivors:
            if self._input_digest[position] != digest:
                raise RemoteProtocolError(
                    "E-INPUT-TWICE", "one masked input per session", "a second one"
                )
            return
        add_packed(self._total, message.packed, self.plan.ring_bits)
        self._input_digest[position] = digest
        self._survivors.add(position)

    def _on_revealed(self, event: DeviceSaid) -> None:
        position = self._position(event)
        message = event.message
        if (
            position is None
            or position not in self._survivors
            or not isinstance(message, RevealedShares)
        ):
            return
        if [owner for owner, _ in message.shares] != sorted(set(self._shared) - {position}):
            raise RemoteProtocolError(
                "E-REVEAL-LIST", "one share of every neighbour", "another list"
            )
        if self._revealed.setdefault(position, message) != message:
            raise RemoteProtocolError("E-REVEAL-TWICE", "one answer per session", "a second one")

    def _on_leave(self, event: DeviceSaid, now_s: float) -> tuple[AggregatorEffect, ...]:
        # A leave from an earlier session says nothing about this one.
        session_ids: set[bytes] = set() if self.plan is None else {self.plan.session_id}
        if self.phase is Phase.CHECK_IN or event.device not in self._sharers():
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
        if self.phase is not Phase.UNMASKING or self._is_charged or self.plan is None:
            return ()
        self._is_charged = True
        self._phase_started_s = now_s
        request = self._unmask_request()
        return (
            *(
                SendDown(device=self._device(position), message=request)
                for position in sorted(self._survivors)
            ),
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
        setup = self._setup
        members = tuple(self._adverts[device] for device in sorted(self._adverts))
        self.plan = SessionPlan(
            fleet=setup.fleet,
            task=setup.call.task,
            round_number=setup.call.round_number,
            attempt=setup.call.attempt,
            call_id=call_id_of(setup.fleet, setup.call),
            adversary=AdversaryClass.HONEST_BUT_CURIOUS,
            suite=Suite.CHACHA20_X25519,
            members=members,
            threshold=threshold_for(len(members)),
            survivor_floor=setup.privacy.survivor_floor,
            bundle_sha256=setup.bundle_sha256,
            parameters_sha256=setup.parameters_sha256,
            dimension=setup.privacy.dimension,
            training=setup.training,
            privacy=setup.privacy,
            ledger_head=setup.ledger_head,
        )
        self._session = session_of(self.plan)
        announcement = PlanAnnouncement(plan=self.plan.to_bytes())
        return tuple(SendDown(device=member.device, message=announcement) for member in members)

    def _open_masked_input(self) -> tuple[AggregatorEffect, ...]:
        if self._session is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a session", "none")
        self._total = np.zeros(self._session.length, dtype=np.uint32)
        return tuple(
            SendDown(device=self._device(position), message=self._routed_to(position))
            for position in sorted(self._shared)
        )

    def _open_unmasking(self) -> tuple[AggregatorEffect, ...]:
        if self.plan is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a plan", "none")
        return (Charge(plan=self.plan, n_survivors=len(self._survivors)),)

    def _start_unmasking(self) -> tuple[AggregatorEffect, ...]:
        if self.plan is None or self._session is None or self._total is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a session", "none")
        self._is_unmasking = True
        shares: dict[int, dict[int, bytes]] = {position: {} for position in self._shared}
        for holder, message in self._revealed.items():
            for owner, share in message.shares:
                shares[owner][holder] = share
        return (
            UnmaskJob(
                plan=self.plan,
                session=self._session,
                total=self._total,
                commitments={
                    position: self._shared[position].commitment for position in self._survivors
                },
                seed_shares={position: shares[position] for position in sorted(self._survivors)},
                key_shares={
                    position: shares[position] for position in sorted(set(shares) - self._survivors)
                },
            ),
        )

    def _abort(self, reason: AbortReason, now_s: float) -> tuple[AggregatorEffect, ...]:
        self._count_phase(now_s)
        return self._finish(Phase.ABORTED, reason, None)

    def _finish(
        self, outcome: Phase, reason: AbortReason, total: RingVector | None
    ) -> tuple[AggregatorEffect, ...]:
        members = sorted(self._adverts)
        survivors = {self._device(position) for position in self._survivors}
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
            unmasked=len(self._revealed),
            sum_check_held=self._sum_check_held,
            charged=self._is_charged,
        )
        self._closing = {
            device: RoundClosed(
                phase=outcome, reason=reason, counted=committed and device in survivors
            )
            for device in members
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
            return set(self._adverts)
        if self.phase is Phase.MASKED_INPUT:
            return self._sharers()
        return {self._device(position) for position in self._survivors}

    def _done(self) -> set[str]:
        if self.phase is Phase.CHECK_IN:
            return set(self._adverts)
        done = {
            Phase.SHARE_KEYS: self._shared.keys(),
            Phase.MASKED_INPUT: self._survivors,
            Phase.UNMASKING: self._revealed.keys(),
        }.get(self.phase, ())
        return {self._device(position) for position in done}

    def _needed(self) -> int:
        floor = self._setup.privacy.survivor_floor
        if self.phase is Phase.UNMASKING and self.plan is not None:
            # No device holds a share of its own secret, so one answer more than the
            # threshold is needed.
            return self.plan.threshold + 1
        return floor

    def _sharers(self) -> set[str]:
        return {self._device(position) for position in self._shared}

    def _device(self, position: int) -> str:
        if self.plan is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a plan", "none")
        return self.plan.members[position].device

    def _position(self, event: DeviceSaid) -> int | None:
        if self.plan is None or event.session_id != self.plan.session_id:
            return None
        return self.plan.position_of(event.device)

    def _routed_to(self, position: int) -> RoutedShares:
        if self.plan is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a plan", "none")
        return RoutedShares(
            sharers=wire.encode_bitmap(
                [index in self._shared for index in range(len(self.plan.members))]
            ),
            sealed=tuple(
                b"" if owner == position else self._shared[owner].sealed[position]
                for owner in sorted(self._shared)
            ),
        )

    def _unmask_request(self) -> UnmaskRequest:
        if self.plan is None:
            raise LocalProtocolError("E-AGGREGATOR-STATE", "a plan", "none")
        size = len(self.plan.members)
        return UnmaskRequest(
            survivors=wire.encode_bitmap([index in self._survivors for index in range(size)]),
            dropped=wire.encode_bitmap(
                [index in self._shared and index not in self._survivors for index in range(size)]
            ),
        )

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
        (Phase.SHARE_KEYS, SharedKeys): _on_shared_keys,
        (Phase.MASKED_INPUT, MaskedInput): _on_masked_input,
        (Phase.UNMASKING, RevealedShares): _on_revealed,
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


def threshold_for(cohort: int) -> int:
    """Return the reconstruction threshold of a complete graph: a strict majority of the cohort.

    With more than half, no two lists of the same session can both be answered by enough devices.
    """
    return cohort // 2 + 1
