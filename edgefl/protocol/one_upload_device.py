"""The device's half of a one-upload round (experimental): a pure machine from events to effects.

An ordinary device publishes once: masked input, shares of its self seed, and shares of the mask
key of the next index. A committee member also signs the survivor lists and reveals shares.

Rules that the transitions keep:
- whatever is sent was persisted first, as the very bytes, and is sent again unchanged;
- an index serves one session, which is written down before anything is masked with its key; power
  that fails right after costs the index, and never lets it serve twice;
- rounding and noise never run twice under the masks of an upload that may have left the device;
- one list of survivors is signed for an index, and one unmask request over exactly that list is
  answered, with one kind of share per device.

Seam for the agent:
- `DepositCall` arrives: `OneUploadDeposit.answer`, store its snapshot until the receipt, and after
  a restart `OneUploadDeposit.restore(...).resume()`.
- `OneUploadAnnouncement` arrives: its session id is `session_id_of(announcement.plan)`. If the
  machine of that session is there, `handle` it; else `OneUploadRound.answer` and `begin`.
  Where `answer` raises, nothing is owed: the gateway counts the device as dropped out.
- every other message of the session, `Trained` and `Masked` go to `handle`, as in the other mode.
"""

from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np

from edgefl._native import AgreementKey
from edgefl.errors import LocalProtocolError, RemoteProtocolError, WireError
from edgefl.protocol.certificate import certificate_statement
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.device_unmask import check_certificate, check_committee_seat
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import (
    AggregatorSaid,
    DeviceEffect,
    DeviceEvent,
    DeviceFinished,
    Masked,
    MaskJob,
    Persist,
    Refused,
    SendUp,
    Trained,
    TrainJob,
)
from edgefl.protocol.identity import DeviceIdentity, EntropySource
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.one_upload_messages import (
    CommitteeProposal,
    Deposit,
    OneUpload,
    OneUploadAnnouncement,
)
from edgefl.protocol.one_upload_plan import OwnerTerms, accept_announcement, require_same_deposit
from edgefl.protocol.one_upload_session import OneUploadSession, make_deposit
from edgefl.protocol.one_upload_sizes import DepositTerms, deposit_id_of
from edgefl.protocol.one_upload_state import OneUploadState
from edgefl.protocol.own_keys import OwnKeys
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase
from edgefl.protocol.round_messages import (
    Leave,
    RevealedShares,
    RoundClosed,
    SurvivorVote,
    UnmaskRequest,
)

_M = TypeVar("_M", OneUploadAnnouncement, CommitteeProposal, UnmaskRequest, RoundClosed)
_Effects = tuple[DeviceEffect, ...]


class OneUploadRound:
    """One device in one one-upload session; made by `answer` or `restore`.

    Args:
        identity: The device.
        entropy: Fresh secrets.
        epoch: Its roster and key epochs, which note what each key serves.
        keys: The keys that it deposited with; the next key epoch may open meanwhile.
        state: Where the round stands.
    """

    def __init__(
        self,
        *,
        identity: DeviceIdentity,
        entropy: EntropySource,
        epoch: DeviceEpoch,
        keys: OwnKeys,
        state: OneUploadState,
    ) -> None:
        """Take the state. Nothing is done before `begin` or `resume`."""
        self._identity = identity
        self._entropy = entropy
        self._epoch = epoch
        self._keys = keys
        self._state = state
        self._session = OneUploadSession(state.plan, state.peers, keys)
        self._is_working = False

    @classmethod
    def answer(
        cls,
        announcement: OneUploadAnnouncement,
        *,
        identity: DeviceIdentity,
        policy: DevicePolicy,
        entropy: EntropySource,
        epoch: DeviceEpoch,
        gateway_key: bytes,
        today: int = 0,
    ) -> "OneUploadRound":
        """Take part in an announced round, for whose index this device has deposited.

        Args:
            announcement: Plan and keys.
            identity: The device.
            policy: Its floors.
            entropy: Fresh secrets.
            epoch: Its roster and key epochs.
            gateway_key: Identity key of the gateway, as pinned.
            today: Days since 1970-01-01; 0 where the device does not know the date.

        Raises:
            WireError: The plan cannot be read whole.
            RemoteProtocolError: It is refused (`one_upload_plan.accept_announcement`).
        """
        if not epoch.is_ready:
            raise RemoteProtocolError("E-PLAN-EPOCH", "a plan in an open key epoch", "none is open")
        keys = epoch.keys
        terms = OwnerTerms(
            policy=policy, gateway_enrols=epoch.enrolment_key == gateway_key, today=today
        )
        accepted = accept_announcement(announcement, terms, keys)
        epoch.bind_index(accepted.plan.key_index, accepted.plan.session_id)
        return cls(
            identity=identity,
            entropy=entropy,
            epoch=epoch,
            keys=keys,
            state=OneUploadState(
                phase=Phase.MASKED_INPUT,
                plan=accepted.plan,
                peers=accepted.peers,
                holders=accepted.holders,
                asks_deposit=announcement.asks_deposit,
                self_seed=entropy.fresh_seed(),
            ),
        )

    @classmethod
    def restore(
        cls,
        snapshot: bytes,
        *,
        identity: DeviceIdentity,
        entropy: EntropySource,
        epoch: DeviceEpoch,
        spooled: bytes | None = None,
    ) -> "OneUploadRound":
        """Rebuild a round from its snapshot; arguments as of `answer`, and the spooled vector.

        Raises:
            WireError: The snapshot is damaged, of another version, or does not fit this device and
                its open key epoch: it counts as a dropout of that round.
        """
        state = OneUploadState.from_bytes(snapshot, spooled)
        if not epoch.is_ready:
            raise WireError("E-SNAPSHOT", "a snapshot with its open key epoch", "one without")
        try:
            machine = cls(
                identity=identity, entropy=entropy, epoch=epoch, keys=epoch.keys, state=state
            )
            machine._require_fitting_state()
        except RemoteProtocolError as error:
            raise WireError("E-SNAPSHOT", error.expected, error.found) from error
        return machine

    # ------------------------------------------------------------ public

    @property
    def phase(self) -> Phase:
        """Where the round stands for this device."""
        return self._state.phase

    @property
    def plan(self) -> SessionPlan:
        """The session plan."""
        return self._state.plan

    @property
    def left(self) -> LeaveReason | None:
        """Why the device left the round, if it did."""
        return self._state.left

    def snapshot(self) -> bytes:
        """Return the whole state. Security: it holds the session's secrets."""
        return self._state.to_bytes()

    def begin(self) -> _Effects:
        """Write down the session and start to train."""
        return (self._persist_epoch(), Persist(snapshot=self.snapshot()), *self.resume())

    def handle(self, event: DeviceEvent) -> _Effects:
        """Take one event and return what to do, in order.

        A message that the phase does not expect changes nothing and is answered by `Refused`.
        """
        message_type = type(event.message) if isinstance(event, AggregatorSaid) else type(event)
        transition = self._TRANSITIONS.get((self._state.phase, message_type))
        if transition is None:
            return self._unexpected(message_type)
        try:
            return transition(self, event)
        except (RemoteProtocolError, WireError) as error:
            return (Refused(error=error), *self.leave(LeaveReason.REQUEST_REFUSED))

    def leave(self, reason: LeaveReason) -> _Effects:
        """Leave the round, persisted first. What was uploaded stays in the sum."""
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
        last = self._state.last_message
        return self._start_training() if last is None else (SendUp(message=last),)

    def last_message(self) -> DeviceMessage | None:
        """Return the newest message of this round, for sending it again; None before the upload."""
        return self._state.last_message

    # ------------------------------------------------------------ MASKED_INPUT

    def _on_announced_again(self, event: DeviceEvent) -> _Effects:
        if _message(event, OneUploadAnnouncement).plan != self._state.plan.to_bytes():
            return (self._contradiction("one plan per index", "a second plan"),)
        upload = self._state.upload
        is_waiting = upload is not None and self._state.phase is Phase.MASKED_INPUT
        return (SendUp(message=upload),) if upload is not None and is_waiting else ()

    def _on_trained(self, event: DeviceEvent) -> _Effects:
        if not isinstance(event, Trained):
            raise LocalProtocolError("E-DEVICE-EVENT", "Trained", type(event).__name__)
        session, plan = self._session, self._state.plan
        update, weight = event.update, event.examples
        if update is None:
            if plan.privacy.noise_multiplier <= 0:
                return self.leave(LeaveReason.TRAINING_FAILED)
            # With noise on, leaving would make participation depend on the data: send zero, with
            # full noise.
            update, weight = np.zeros(plan.dimension, dtype=np.float32), 1
        if update.shape != (plan.dimension,):
            raise LocalProtocolError("E-UPDATE-SHAPE", f"({plan.dimension},)", str(update.shape))
        return (
            MaskJob(
                plan=plan,
                session=session.session,
                own=session.own,
                update=update,
                weight=max(1, min(weight, plan.privacy.weight_bound)),
                neighbours=session.neighbours,
                mask_secret=self._mask_secret(),
                self_seed=self._state.self_seed,
                rounding_seed=self._entropy.fresh_seed(),
                noise_seed=self._entropy.fresh_seed(),
            ),
        )

    def _on_masked(self, event: DeviceEvent) -> _Effects:
        if not isinstance(event, Masked):
            raise LocalProtocolError("E-DEVICE-EVENT", "Masked", type(event).__name__)
        self._is_working = False
        if self._state.upload is not None:
            raise LocalProtocolError(
                "E-DEVICE-MASKED-TWICE", "one upload per session", "a second one"
            )
        shared = self._session.share_self_seed(
            self._state.self_seed, self._state.holders, self._entropy.fresh_seed()
        )
        self._state.own_share = shared.own_share
        self._state.upload = OneUpload(
            packed=event.packed,
            commitment=self._state.self_seed.commitment(self._state.plan.session_id),
            sealed=shared.sealed,
            next_deposit=self._make_next_deposit(),
        )
        return (
            self._persist_epoch(),
            Persist(snapshot=self.snapshot(), spool=event.packed),
            SendUp(message=self._state.upload),
        )

    def _make_next_deposit(self) -> Deposit | None:
        index, keys = self._state.plan.key_index + 1, self._keys
        is_free = self._epoch.keys is keys and keys.use_of(index) is None
        if not (self._state.asks_deposit and is_free):
            return None
        terms = DepositTerms.of_plan(self._state.plan)
        self._epoch.reserve_index(index, deposit_id_of(keys.open_epoch, index, terms))
        committee = self._session.committee_of(keys, index)
        seed = self._entropy.fresh_seed()
        return make_deposit(keys, index, committee, self._state.holders, seed)

    # ------------------------------------------------------------ CERTIFICATE

    def _on_proposal(self, event: DeviceEvent) -> _Effects:
        message, plan = _message(event, CommitteeProposal), self._state.plan
        self._state.require_upload()
        check_committee_seat(plan, self._session.graph, own=self._session.own)
        self._session.read_lists(message)
        self._session.require_one_each(message)
        statement = certificate_statement(plan.session_id, message.survivors, message.dropped)
        self._state.proposal = message
        self._state.vote = SurvivorVote(signature=self._identity.signing_key.sign(statement))
        self._state.phase = Phase.CERTIFICATE
        return self._persist_and_send(self._state.vote)

    def _on_proposal_again(self, event: DeviceEvent) -> _Effects:
        vote = self._state.vote
        if vote is None or _message(event, CommitteeProposal) != self._state.proposal:
            return (self._contradiction("one proposal per session", "another one"),)
        return (SendUp(message=vote),)

    # ------------------------------------------------------------ UNMASKING

    def _on_unmask_request(self, event: DeviceEvent) -> _Effects:
        message, proposal = _message(event, UnmaskRequest), self._state.require_proposal()
        if (message.survivors, message.dropped) != (proposal.survivors, proposal.dropped):
            return (self._contradiction("the lists that this device signed", "other lists"),)
        check_certificate(
            message,
            self._state.plan,
            self._session.graph,
            roster=self._keys.roster_epoch,
            epoch=self._keys.open_epoch,
        )
        if self._state.own_share is None:
            raise LocalProtocolError("E-DEVICE-STATE", "a share of its own", "none")
        lists = self._session.read_lists(message)
        shares = self._session.shares_for(lists, proposal, self._state.own_share)
        self._state.unmask_request = message
        self._state.revealed = RevealedShares(shares=shares)
        self._state.phase = Phase.UNMASKING
        return self._persist_and_send(self._state.revealed)

    def _on_unmask_again(self, event: DeviceEvent) -> _Effects:
        message, revealed = _message(event, UnmaskRequest), self._state.revealed
        known = self._state.unmask_request
        if revealed is None or known is None or _lists_of(message) != _lists_of(known):
            return (self._contradiction("one unmask request per session", "another one"),)
        return (SendUp(message=revealed),)

    def _on_closed(self, event: DeviceEvent) -> _Effects:
        message = _message(event, RoundClosed)
        self._state.phase = message.phase
        return (self._finished(message.reason, counted=message.counted),)

    # ------------------------------------------------------------ helpers

    def _mask_secret(self) -> AgreementKey:
        return self._keys.mask_secret(self._state.plan.key_index)

    def _require_fitting_state(self) -> None:
        """Check a stored round against the key epoch, in which its index is marked."""
        state, use = self._state, self._keys.use_of(self._state.plan.key_index)
        if state.phase.is_final:
            return
        require_same_deposit(state.plan, self._keys)
        if set(state.peers) != {self._session.own, *self._session.neighbours}:
            raise RemoteProtocolError("E-PLAN-NEIGHBOURS", "keys of all neighbours", "others")
        if use is None or use.session_id != state.plan.session_id:
            raise RemoteProtocolError("E-KEY-INDEX-USED", "an index of this session", "another's")
        if not self._keys.has_mask_secret(state.plan.key_index):
            raise RemoteProtocolError("E-KEY-INDEX-USED", "an index that is in use", "released")

    def _start_training(self) -> _Effects:
        if self._is_working:
            return ()
        self._is_working = True
        return (TrainJob(plan=self._state.plan),)

    def _persist_epoch(self) -> PersistEpoch:
        return PersistEpoch(snapshot=self._epoch.snapshot())

    def _persist_and_send(self, message: DeviceMessage) -> _Effects:
        return (Persist(snapshot=self.snapshot()), SendUp(message=message))

    def _finished(self, reason: AbortReason, *, counted: bool) -> DeviceFinished:
        return DeviceFinished(
            phase=self._state.phase, abort_reason=reason, left=self._state.left, counted=counted
        )

    def _contradiction(self, expected: str, found: str) -> Refused:
        return Refused(error=RemoteProtocolError("E-CONTRADICTION", expected, found))

    def _unexpected(self, message_type: type) -> _Effects:
        expected = f"a message that phase {self._state.phase.name} expects"
        error = RemoteProtocolError("E-UNEXPECTED", expected, message_type.__name__)
        return (Refused(error=error),)

    _TRANSITIONS: ClassVar[
        dict[tuple[Phase, type], Callable[["OneUploadRound", DeviceEvent], _Effects]]
    ] = {
        (Phase.MASKED_INPUT, OneUploadAnnouncement): _on_announced_again,
        (Phase.MASKED_INPUT, Trained): _on_trained,
        (Phase.MASKED_INPUT, Masked): _on_masked,
        (Phase.MASKED_INPUT, CommitteeProposal): _on_proposal,
        (Phase.MASKED_INPUT, RoundClosed): _on_closed,
        (Phase.CERTIFICATE, OneUploadAnnouncement): _on_announced_again,
        (Phase.CERTIFICATE, CommitteeProposal): _on_proposal_again,
        (Phase.CERTIFICATE, UnmaskRequest): _on_unmask_request,
        (Phase.CERTIFICATE, RoundClosed): _on_closed,
        (Phase.UNMASKING, OneUploadAnnouncement): _on_announced_again,
        (Phase.UNMASKING, CommitteeProposal): _on_proposal_again,
        (Phase.UNMASKING, UnmaskRequest): _on_unmask_again,
        (Phase.UNMASKING, RoundClosed): _on_closed,
    }


def _lists_of(request: UnmaskRequest) -> tuple[bytes, bytes]:
    return request.survivors, request.dropped


def _message(event: DeviceEvent, kind: type[_M]) -> _M:
    if isinstance(event, AggregatorSaid) and isinstance(event.message, kind):
        return event.message
    raise LocalProtocolError("E-DEVICE-EVENT", kind.__name__, type(event).__name__)
