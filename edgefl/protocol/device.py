"""The device's half of a round: a pure machine that takes events and returns effects.

It holds no clock, socket, file or global randomness. Its state is a value: `snapshot()` and
`restore()`.

Rules that the transitions keep:
- whatever is sent was persisted first, as the very bytes, and is sent again unchanged;
- a one-time mask key serves one session, which is written down before anything is masked with it;
- rounding and noise never run twice under the masks of a message that may have left the device;
- one list of survivors is signed in a session, and one unmask request is answered, and the two
  never contradict each other.
"""

from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np

from edgefl._native import AgreementKey
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol.certificate import certificate_statement
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.device_plan import (
    PlanTerms,
    accept_plan,
    require_answerable,
)
from edgefl.protocol.device_session import DeviceSession, require_same_session
from edgefl.protocol.device_state import DeviceState
from edgefl.protocol.device_unmask import (
    check_certificate,
    check_committee_seat,
)
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import (
    AggregatorSaid,
    DeviceEffect,
    DeviceEvent,
    DeviceFinished,
    Masked,
    Persist,
    Refused,
    SendUp,
    Trained,
    TrainJob,
)
from edgefl.protocol.identity import DeviceIdentity, EntropySource
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase
from edgefl.protocol.round_messages import (
    Call,
    CheckIn,
    Leave,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoundClosed,
    RoutedShares,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
)
from edgefl.protocol.session_keys import call_id_of

__all__ = ["DeviceIdentity", "DeviceRound", "EntropySource", "call_id_of"]

_M = TypeVar("_M", PlanAnnouncement, RoutedShares, SurvivorProposal, UnmaskRequest, RoundClosed)
_Effects = tuple[DeviceEffect, ...]


class DeviceRound:
    """One device in one attempt at one round; made by `answer` or `restore`.

    Args:
        identity: The device.
        terms: What it judges plans by.
        entropy: Fresh secrets.
        epoch: Its roster and key epochs, which note what each key serves.
        state: Where the round stands.
    """

    def __init__(
        self,
        *,
        identity: DeviceIdentity,
        terms: PlanTerms,
        entropy: EntropySource,
        epoch: DeviceEpoch,
        state: DeviceState,
    ) -> None:
        """Take the state. Nothing is sent before `begin` or `resume`."""
        self._identity = identity
        self._terms = terms
        self._entropy = entropy
        self._epoch = epoch
        # The next key epoch may open meanwhile; a round keeps the keys that it began with.
        self._keys = epoch.keys
        self._state = state
        self._is_working = False
        self._open_session: DeviceSession | None = None

    @classmethod
    def answer(
        cls,
        call: Call,
        *,
        identity: DeviceIdentity,
        policy: DevicePolicy,
        entropy: EntropySource,
        epoch: DeviceEpoch,
        gateway_key: bytes,
        today: int = 0,
    ) -> "DeviceRound":
        """Answer a call; the key index that it names serves no other call from now on.

        Args:
            call: The call.
            identity: The device.
            policy: Its floors.
            entropy: Fresh secrets.
            epoch: Its roster and key epochs.
            gateway_key: Identity key of the gateway, as pinned.
            today: Days since 1970-01-01; 0 where the device does not know the date, and then every
                identity is young to it.

        Raises:
            RemoteProtocolError: E-CALL-EPOCH, E-CALL-MODE, E-KEY-INDEX-RANGE, E-KEY-INDEX-USED: the
                call is for another key epoch or mode, or for a key that serves another call or a
                session whose record is gone. Nothing is to be sent.
        """
        if not epoch.is_ready:
            raise RemoteProtocolError("E-CALL-EPOCH", "a call in an open key epoch", "none is open")
        require_answerable(call, epoch.keys)
        epoch.reserve_index(call.key_index, call_id_of(epoch.keys.fleet, call))
        return cls(
            identity=identity,
            terms=PlanTerms.of(call, policy, epoch, gateway_key, today),
            entropy=entropy,
            epoch=epoch,
            state=DeviceState(
                phase=Phase.CHECK_IN, call=call, bundle_sha256=epoch.keys.bundle.digest
            ),
        )

    @classmethod
    def restore(
        cls,
        snapshot: bytes,
        *,
        identity: DeviceIdentity,
        policy: DevicePolicy,
        entropy: EntropySource,
        epoch: DeviceEpoch,
        gateway_key: bytes,
        today: int = 0,
        spooled: bytes | None = None,
    ) -> "DeviceRound":
        """Rebuild a round from its snapshot; arguments as of `answer`, and the spooled vector.

        Raises:
            WireError: The snapshot is damaged, of another version, or does not fit this device and
                its open key epoch: it counts as a dropout of that round.
        """
        state = DeviceState.from_bytes(snapshot, spooled)
        if not epoch.is_ready:
            raise WireError("E-SNAPSHOT", "a snapshot with its open key epoch", "one without")
        if not state.phase.is_final:
            require_same_session(state, epoch.keys)
        return cls(
            identity=identity,
            terms=PlanTerms.of(state.call, policy, epoch, gateway_key, today),
            entropy=entropy,
            epoch=epoch,
            state=state,
        )

    # ------------------------------------------------------------ public

    @property
    def phase(self) -> Phase:
        """Where the round stands for this device."""
        return self._state.phase

    @property
    def call(self) -> Call:
        """The call that this round answers."""
        return self._state.call

    @property
    def plan(self) -> SessionPlan | None:
        """The session plan, once accepted."""
        return self._state.plan

    @property
    def call_id(self) -> bytes:
        """The id of the call that this round answers."""
        return call_id_of(self._keys.fleet, self._state.call)

    @property
    def left(self) -> LeaveReason | None:
        """Why the device left the round, if it did."""
        return self._state.left

    def snapshot(self) -> bytes:
        """Return the whole state. Security: it holds the session's secrets."""
        return self._state.to_bytes()

    def begin(self) -> _Effects:
        """Check in."""
        if self._state.phase is not Phase.CHECK_IN or self._state.plan is not None:
            raise LocalProtocolError(
                "E-DEVICE-BEGIN", "a round that has not begun", self._state.phase.name
            )
        return (self._persist_epoch(), *self._persist_and_send(self._check_in()))

    def handle(self, event: DeviceEvent) -> _Effects:
        """Take one event and return what to do, in order.

        A message that the phase does not expect changes nothing and is answered by `Refused`.
        """
        message_type = type(event.message) if isinstance(event, AggregatorSaid) else type(event)
        transition = self._TRANSITIONS.get((self._state.phase, message_type))
        if transition is None:
            expected = f"a message that phase {self._state.phase.name} expects"
            error = RemoteProtocolError("E-UNEXPECTED", expected, message_type.__name__)
            return (Refused(error=error),)
        try:
            return transition(self, event)
        except (RemoteProtocolError, WireError) as refusal:
            return (Refused(error=refusal), *self._leave_after_refusal())

    def leave(self, reason: LeaveReason) -> _Effects:
        """Leave the round, persisted first."""
        if self._state.phase.is_final:
            return ()
        self._state.left = reason
        self._state.phase = Phase.ABORTED
        return (
            *self._persist_and_send(Leave(reason=reason)),
            self._finished(AbortReason.NONE, counted=False),
        )

    def resume(self) -> _Effects:
        """Go on after a restart: send the last message again, or do the unsent work again."""
        if self._state.phase.is_final:
            return ()
        if self._state.phase is Phase.MASKED_INPUT and self._state.masked is None:
            return self._start_training()
        return (SendUp(message=self.last_message()),)

    def last_message(self) -> DeviceMessage:
        """Return the newest message of this round, for sending it again."""
        return self._state.last_message or self._check_in()

    # ------------------------------------------------------------ SHARE_KEYS

    def _on_plan(self, event: DeviceEvent) -> _Effects:
        if self._epoch.keys is not self._keys:
            raise RemoteProtocolError(
                "E-PLAN-EPOCH", "a plan in the open key epoch", "one in the key epoch before it"
            )
        plan, peers = accept_plan(_message(event, PlanAnnouncement), self._terms, self._keys)
        self._epoch.bind_index(plan.key_index, plan.session_id)
        session = DeviceSession(plan, peers, self._keys)
        self_seed = self._entropy.fresh_seed()
        self._open_session = session
        self._state.plan, self._state.peers, self._state.self_seed = plan, peers, self_seed
        sharing_seed = self._entropy.fresh_seed()
        self._state.shared = session.share_keys(self._mask_secret(), self_seed, sharing_seed)
        self._state.phase = Phase.SHARE_KEYS
        return (self._persist_epoch(), *self._persist_and_send(self._state.shared))

    def _on_plan_again(self, event: DeviceEvent) -> _Effects:
        plan = self._session().plan
        if _message(event, PlanAnnouncement).plan != plan.to_bytes():
            return (self._contradiction("one plan per call", "a second plan"),)
        is_waiting = self._state.phase is Phase.SHARE_KEYS
        return (SendUp(message=self.last_message()),) if is_waiting else ()

    # ------------------------------------------------------------ MASKED_INPUT

    def _on_routed_shares(self, event: DeviceEvent) -> _Effects:
        message = _message(event, RoutedShares)
        self._session().require_enough(message)
        self._state.routed = message
        self._state.phase = Phase.MASKED_INPUT
        return (Persist(snapshot=self.snapshot()), *self._start_training())

    def _on_routed_again(self, event: DeviceEvent) -> _Effects:
        if _message(event, RoutedShares) != self._state.routed:
            return (self._contradiction("one list of those that shared keys", "a second list"),)
        return () if self._state.masked is None else (SendUp(message=self._state.masked),)

    def _on_trained(self, event: DeviceEvent) -> _Effects:
        if not isinstance(event, Trained):
            raise LocalProtocolError("E-DEVICE-EVENT", "Trained", type(event).__name__)
        session, update, weight = self._session(), event.update, event.examples
        if update is None:
            if session.plan.privacy.noise_multiplier <= 0:
                return self.leave(LeaveReason.TRAINING_FAILED)
            # With noise on, leaving would make participation depend on the data: send
            # zero, with full noise.
            update, weight = np.zeros(session.plan.dimension, dtype=np.float32), 1
        job = session.mask_job(
            update,
            weight,
            routed=self._state.require_routed(),
            mask_secret=self._mask_secret(),
            self_seed=self._state.require_self_seed(),
            entropy=self._entropy,
        )
        return (job,)

    def _on_masked(self, event: DeviceEvent) -> _Effects:
        if not isinstance(event, Masked):
            raise LocalProtocolError("E-DEVICE-EVENT", "Masked", type(event).__name__)
        self._is_working = False
        if self._state.masked is not None:
            raise LocalProtocolError(
                "E-DEVICE-MASKED-TWICE", "one masked input per session", "a second one"
            )
        skipped = self._session().skipped_seeds(self._state.require_routed(), self._mask_secret())
        self._state.masked = MaskedInput(packed=event.packed, skipped=skipped)
        return (
            Persist(snapshot=self.snapshot(), spool=event.packed),
            SendUp(message=self._state.masked),
        )

    # ------------------------------------------------------------ CERTIFICATE

    def _on_proposal(self, event: DeviceEvent) -> _Effects:
        message = _message(event, SurvivorProposal)
        session = self._session()
        check_committee_seat(session.plan, session.graph, own=session.own)
        session.read_lists(message, self._state.require_masked())
        session_id = session.plan.session_id
        statement = certificate_statement(session_id, message.survivors, message.dropped)
        self._state.proposal = message
        self._state.vote = SurvivorVote(signature=self._identity.signing_key.sign(statement))
        self._state.phase = Phase.CERTIFICATE
        return self._persist_and_send(self._state.vote)

    def _on_proposal_again(self, event: DeviceEvent) -> _Effects:
        vote = self._state.vote
        if vote is None or _message(event, SurvivorProposal) != self._state.proposal:
            return (self._contradiction("one proposal per session", "another one"),)
        return (SendUp(message=vote),)

    # ------------------------------------------------------------ UNMASKING

    def _on_unmask_request(self, event: DeviceEvent) -> _Effects:
        message = _message(event, UnmaskRequest)
        if self._state.contradicts_vote(message):
            return (self._contradiction("the lists that this device signed", "other lists"),)
        session = self._session()
        routed = self._state.require_masked()
        lists = session.read_lists(message, routed)
        check_certificate(
            message,
            session.plan,
            session.graph,
            roster=self._keys.roster_epoch,
            epoch=self._keys.open_epoch,
        )
        self._state.unmask_request = message
        self._state.revealed = RevealedShares(shares=session.shares_for(lists, routed))
        self._state.phase = Phase.UNMASKING
        return self._persist_and_send(self._state.revealed)

    def _on_unmask_again(self, event: DeviceEvent) -> _Effects:
        message, revealed = _message(event, UnmaskRequest), self._state.revealed
        if revealed is None or message != self._state.unmask_request:
            return (self._contradiction("one unmask request per session", "another one"),)
        return (SendUp(message=revealed),)

    def _on_closed(self, event: DeviceEvent) -> _Effects:
        message = _message(event, RoundClosed)
        self._state.phase = message.phase
        return (self._finished(message.reason, counted=message.counted),)

    # ------------------------------------------------------------ helpers

    def _session(self) -> DeviceSession:
        if self._open_session is None:
            plan = self._state.require_plan()
            self._open_session = DeviceSession(plan, self._state.peers, self._keys)
        return self._open_session

    def _mask_secret(self) -> AgreementKey:
        return self._keys.mask_secret(self._state.call.key_index)

    def _check_in(self) -> CheckIn:
        return CheckIn(
            call_id=self.call_id,
            mask_key=self._keys.mask_proof(self._state.call.key_index),
        )

    def _start_training(self) -> _Effects:
        if self._is_working:
            return ()
        self._is_working = True
        return (TrainJob(plan=self._session().plan),)

    def _persist_epoch(self) -> PersistEpoch:
        return PersistEpoch(snapshot=self._epoch.snapshot())

    def _persist_and_send(self, message: DeviceMessage) -> _Effects:
        return (Persist(snapshot=self.snapshot()), SendUp(message=message))

    def _finished(self, reason: AbortReason, *, counted: bool) -> DeviceFinished:
        return DeviceFinished(
            phase=self._state.phase, abort_reason=reason, left=self._state.left, counted=counted
        )

    def _leave_after_refusal(self) -> _Effects:
        in_check_in = self._state.phase is Phase.CHECK_IN
        return self.leave(LeaveReason.PLAN_REFUSED if in_check_in else LeaveReason.REQUEST_REFUSED)

    def _contradiction(self, expected: str, found: str) -> Refused:
        return Refused(error=RemoteProtocolError("E-CONTRADICTION", expected, found))

    _TRANSITIONS: ClassVar[
        dict[tuple[Phase, type], Callable[["DeviceRound", DeviceEvent], _Effects]]
    ] = {
        (Phase.CHECK_IN, PlanAnnouncement): _on_plan,
        (Phase.CHECK_IN, RoundClosed): _on_closed,
        (Phase.SHARE_KEYS, PlanAnnouncement): _on_plan_again,
        (Phase.SHARE_KEYS, RoutedShares): _on_routed_shares,
        (Phase.SHARE_KEYS, RoundClosed): _on_closed,
        (Phase.MASKED_INPUT, PlanAnnouncement): _on_plan_again,
        (Phase.MASKED_INPUT, RoutedShares): _on_routed_again,
        (Phase.MASKED_INPUT, Trained): _on_trained,
        (Phase.MASKED_INPUT, Masked): _on_masked,
        (Phase.MASKED_INPUT, SurvivorProposal): _on_proposal,
        (Phase.MASKED_INPUT, UnmaskRequest): _on_unmask_request,
        (Phase.MASKED_INPUT, RoundClosed): _on_closed,
        (Phase.CERTIFICATE, PlanAnnouncement): _on_plan_again,
        (Phase.CERTIFICATE, RoutedShares): _on_routed_again,
        (Phase.CERTIFICATE, SurvivorProposal): _on_proposal_again,
        (Phase.CERTIFICATE, UnmaskRequest): _on_unmask_request,
        (Phase.CERTIFICATE, RoundClosed): _on_closed,
        (Phase.UNMASKING, PlanAnnouncement): _on_plan_again,
        (Phase.UNMASKING, RoutedShares): _on_routed_again,
        (Phase.UNMASKING, SurvivorProposal): _on_proposal_again,
        (Phase.UNMASKING, UnmaskRequest): _on_unmask_again,
        (Phase.UNMASKING, RoundClosed): _on_closed,
    }


def _message(event: DeviceEvent, kind: type[_M]) -> _M:
    if isinstance(event, AggregatorSaid) and isinstance(event.message, kind):
        return event.message
    raise LocalProtocolError("E-DEVICE-EVENT", kind.__name__, type(event).__name__)
