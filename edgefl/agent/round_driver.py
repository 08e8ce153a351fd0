"""Drives the one open round of a device: calls, the session's messages, training, its end."""

from edgefl.agent.coin import Coin
from edgefl.agent.deposits import AgentDeposits
from edgefl.agent.events import (
    AgentEffect,
    MaskingEnded,
    Noticed,
    PhaseReached,
    RoundEnded,
    RunMasking,
    RunTraining,
    TrainingEnded,
)
from edgefl.agent.gateway_pin import GatewayPin
from edgefl.agent.greeting import Greeting
from edgefl.agent.keys import AgentKeys
from edgefl.agent.parts import ModelParts
from edgefl.agent.pen import Pen
from edgefl.agent.post import Post
from edgefl.agent.rounds import AnyRound, RoundArguments, RoundFlash, numbers_of
from edgefl.agent.settings import AgentSettings
from edgefl.agent.spend import DeviceSpend
from edgefl.agent.spool import Spool
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol.answered_records import DAY_S
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.envelope import NO_SESSION, Header
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.events import (
    AggregatorSaid,
    DeviceEffect,
    DeviceFinished,
    Masked,
    MaskJob,
    Persist,
    Refused,
    SendUp,
    Trained,
    TrainJob,
)
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.one_upload_device import OneUploadRound
from edgefl.protocol.one_upload_messages import DepositCall, OneUploadAnnouncement
from edgefl.protocol.plan import SessionPlan, session_id_of
from edgefl.protocol.reasons import LeaveReason, Phase
from edgefl.protocol.round_messages import Call, Leave, MaskedInput, PlanAnnouncement, RoundClosed
from edgefl.protocol.service_messages import Blob, GetBlob
from edgefl.protocol.session_keys import call_id_of
from edgefl.storage.base import KeyValueStore

_ROUND_MESSAGE = "round"
_PART = "model part "


class RoundDriver:
    """The device's round, of either mode, between the gateway's messages and the shell's work.

    Args:
        settings: Identity, floors, whether the device may take part now.
        store: Durable state.
        entropy: Fresh secrets.
        keys: The device's key epochs.
        post: Sends until there is a receipt.
        pen: Signs and addresses.
        greeting: Says which keys the device has.
        gateway: The pinned gateway.
        spool: Keeps the masked vector of the round.

    Raises:
        StorageError: The state is damaged.
    """

    def __init__(
        self,
        *,
        settings: AgentSettings,
        store: KeyValueStore,
        entropy: EntropySource,
        keys: AgentKeys,
        post: Post,
        pen: Pen,
        greeting: Greeting,
        gateway: GatewayPin,
        spool: Spool,
    ) -> None:
        """Take up the round that is on flash; it goes on at `resume`."""
        self._settings = settings
        self._entropy = entropy
        self._keys = keys
        self._post = post
        self._pen = pen
        self._greeting = greeting
        self._gateway = gateway
        self._spend = DeviceSpend(store.namespace("spend"), settings.policy.privacy)
        self._deposits = AgentDeposits(store=store, post=post, keys=keys, device=pen.device)
        self._flash = RoundFlash(store, keys, spool)
        self._coin = Coin(store.namespace("coin"), entropy)
        self._round = self._flash.restore(self._round_arguments(), kept=self._deposits.indices)
        self._parts = ModelParts()

    # ------------------------------------------------------------ public

    @property
    def phase(self) -> Phase | None:
        """The phase of the open round, if there is one."""
        return None if self._round is None else self._round.phase

    @property
    def spent_epsilon(self) -> float | None:
        """What the device's account says, over all tasks; None if it was lost."""
        return self._spend.epsilon

    @property
    def is_working(self) -> bool:
        """Tell whether this device's own work holds up the open round."""
        if self._parts.waiting is not None:
            return True
        if self._round is None or not _wants_work(self._round):
            return False
        # A round stays in that phase until the next one begins.
        return not isinstance(self._round.last_message(), MaskedInput)

    def resume(self, now_s: float) -> list[AgentEffect]:
        """Send again what may have been lost."""
        effects = self._deposits.resume(now_s)
        if self._round is not None:
            effects += self._carry_out(self._round.resume(), now_s)
        if self._parts.waiting is not None:
            effects += self._start_or_fetch(self._parts.waiting, now_s)
        return effects

    def settle(self, digest: bytes) -> None:
        """Note that the gateway has handled the message that a receipt names."""
        self._deposits.settle(digest)

    def on_call(self, call: Call, now_s: float) -> list[AgentEffect]:
        """Check in, or stay away and say why."""
        fleet = self._settings.fleet
        known = self._round if isinstance(self._round, DeviceRound) else None
        if known is not None and known.call_id == call_id_of(fleet, call):
            is_waiting = known.phase is Phase.CHECK_IN
            return self._carry_out(known.resume(), now_s) if is_waiting else []
        if call.attempt <= self._flash.last_attempt:
            return []  # A stale or replayed call: harmless.
        if not self._settings.is_available():
            return [self._stay_away(call, LeaveReason.NOT_AVAILABLE)]
        if not self._coin.falls_heads(call):
            return []
        try:
            device_round = DeviceRound.answer(call, **self._round_arguments())
        except RemoteProtocolError as error:
            reason = self._keys.why_to_stay_away((call.attempt,), error.code)
            said = self._greeting.say(now_s) if reason is None else [self._stay_away(call, reason)]
            return [Noticed(error=error), *said]
        return self._begin(device_round, now_s)

    def _stay_away(self, call: Call, reason: LeaveReason) -> AgentEffect:
        return self._pen.in_round(Leave(reason=reason), NO_SESSION, call)

    def _begin(self, device_round: AnyRound, now_s: float) -> list[AgentEffect]:
        self._flash.begin(numbers_of(device_round).attempt, over=self._round)
        self._forget_job()
        self._round = device_round
        return self._carry_out(device_round.begin(), now_s)

    def on_deposit_call(self, call: DepositCall, now_s: float) -> list[AgentEffect]:
        """Make a deposit for the one-upload mode, or say why not."""
        if not self._settings.is_available():
            return [self._pen.outside_of_rounds(Leave(reason=LeaveReason.NOT_AVAILABLE))]
        try:
            return [*self._deposits.answer(call, self._round_arguments(), now_s)]
        except RemoteProtocolError as error:
            named = (call.key_epoch, call.key_index)
            reason = self._keys.why_to_stay_away(named, error.code)
            if reason is None:
                return [Noticed(error=error), *self._greeting.say(now_s)]
            return [Noticed(error=error), self._pen.outside_of_rounds(Leave(reason=reason))]

    def _on_announcement(self, message: OneUploadAnnouncement, now_s: float) -> list[AgentEffect]:
        plan = SessionPlan.from_bytes(message.plan)
        known = self._round if isinstance(self._round, OneUploadRound) else None
        if known is not None and known.plan.session_id == plan.session_id:
            return self._carry_out(known.handle(AggregatorSaid(message=message)), now_s)
        if plan.attempt <= self._flash.last_attempt:
            return [self._leave(plan, LeaveReason.ROUND_UNKNOWN)]
        if not self._settings.is_available():
            return [self._leave(plan, LeaveReason.NOT_AVAILABLE)]
        try:
            self._spend.require_room(plan.privacy)
            device_round = OneUploadRound.answer(message, **self._round_arguments())
        except (RemoteProtocolError, WireError) as error:
            return [Noticed(error=error), self._leave(plan, LeaveReason.PLAN_REFUSED)]
        return self._begin(device_round, now_s)

    def _leave(self, plan: SessionPlan, reason: LeaveReason) -> AgentEffect:
        return self._pen.in_round(Leave(reason=reason), plan.session_id, plan)

    def on_session_message(
        self, header: Header, message: AggregatorMessage, now_s: float
    ) -> list[AgentEffect]:
        """Take any other message of the gateway: it belongs to a session."""
        if isinstance(message, OneUploadAnnouncement):
            return self._on_announcement(message, now_s)
        device_round = self._round
        if device_round is None or header.attempt != numbers_of(device_round).attempt:
            return self._on_unknown_session(header, message)
        if isinstance(message, PlanAnnouncement) and isinstance(device_round, DeviceRound):
            return self._on_plan(device_round, message, now_s)
        if isinstance(message, RoundClosed) and device_round.plan is None:
            return self._carry_out(device_round.handle(AggregatorSaid(message=message)), now_s)
        if device_round.plan is None or header.session_id != device_round.plan.session_id:
            raise RemoteProtocolError("E-SESSION", "a message of this device's session", "another")
        return self._carry_out(device_round.handle(AggregatorSaid(message=message)), now_s)

    def _on_plan(
        self, device_round: DeviceRound, message: PlanAnnouncement, now_s: float
    ) -> list[AgentEffect]:
        if device_round.plan is None:
            try:
                self._spend.require_room(SessionPlan.from_bytes(message.plan).privacy)
            except (RemoteProtocolError, WireError) as error:
                leaving = device_round.leave(LeaveReason.PLAN_REFUSED)
                return [Noticed(error=error), *self._carry_out(leaving, now_s)]
        return self._carry_out(device_round.handle(AggregatorSaid(message=message)), now_s)

    def _on_unknown_session(self, header: Header, message: AggregatorMessage) -> list[AgentEffect]:
        """Say so when asked about a session whose record is gone: it counts as a dropout."""
        if isinstance(message, RoundClosed):
            return []
        session_id = header.session_id
        if isinstance(message, PlanAnnouncement):
            session_id = session_id_of(message.plan)
        leave = Leave(reason=LeaveReason.ROUND_UNKNOWN)
        return [self._pen.in_round(leave, session_id, header)]

    # ------------------------------------------------------------ the round's effects

    def _carry_out(self, effects: tuple[DeviceEffect, ...], now_s: float) -> list[AgentEffect]:
        out: list[AgentEffect] = []
        for effect in effects:
            out += self._carry_out_one(effect, now_s)
        return out

    def _carry_out_one(self, effect: DeviceEffect, now_s: float) -> list[AgentEffect]:
        if isinstance(effect, Persist):
            if self._round is not None:
                self._flash.put(self._round, effect)
            return []
        if isinstance(effect, PersistEpoch):
            self._keys.persist(effect)
            return []
        if isinstance(effect, SendUp):
            return self._send(effect.message, now_s)
        if isinstance(effect, TrainJob):
            return [*self._phase_reached(), *self._start_or_fetch(effect, now_s)]
        if isinstance(effect, MaskJob):
            # Charged before anything can leave, and once per session.
            self._spend.charge(effect.plan.privacy, effect.session.session_id)
            return [RunMasking(job=effect)]
        if isinstance(effect, Refused):
            return [Noticed(error=effect.error)]
        return self._on_finished(effect)

    def _send(self, message: DeviceMessage, now_s: float) -> list[AgentEffect]:
        if self._round is None:
            return []
        plan, session_id = self._round.plan, NO_SESSION
        if plan is not None:
            session_id = plan.session_id
        header = self._pen.round_header(session_id, numbers_of(self._round))
        sent = self._post.send(_ROUND_MESSAGE, message, header, now_s)
        self._deposits.keep(message, plan, self._post.digest_of(_ROUND_MESSAGE))
        return [*sent, *self._phase_reached()]

    def _on_finished(self, effect: DeviceFinished) -> list[AgentEffect]:
        device_round = self._round
        if device_round is None:
            return []
        self._flash.clear(over=device_round)
        self._round = None
        self._forget_job()
        if effect.left is None:
            self._post.drop(_ROUND_MESSAGE)
        numbers = numbers_of(device_round)
        return [
            RoundEnded(
                round_number=numbers.round_number,
                attempt=numbers.attempt,
                phase=effect.phase,
                abort_reason=effect.abort_reason,
                left=effect.left,
                counted=effect.counted,
            )
        ]

    # ------------------------------------------------------------ training

    def _start_or_fetch(self, job: TrainJob, now_s: float) -> list[AgentEffect]:
        """Start training once the bundle and the parameters are here; ask for what is missing."""
        missing = self._parts.missing(job)
        if missing is not None:
            header, wish = Header(sender=self._pen.device), GetBlob(sha256=missing)
            return self._post.send(_part_slot(missing), wish, header, now_s)
        bundle, parameters = self._parts.of(job)
        return [RunTraining(plan=job.plan, bundle=bundle, parameters=parameters)]

    def _forget_job(self) -> None:
        self._parts.waiting = None
        self._post.drop(_PART)

    def on_blob(self, message: Blob, now_s: float) -> list[AgentEffect]:
        """Take a model part; start training if it was the last one missing, or ask for the next."""
        sha256, job = self._parts.take(message.content)
        self._post.drop(_part_slot(sha256))
        return [] if job is None else self._start_or_fetch(job, now_s)

    def on_job_ended(self, event: TrainingEnded | MaskingEnded, now_s: float) -> list[AgentEffect]:
        """Go on with the result of training or masking."""
        device_round = self._round
        if device_round is None or device_round.plan is None:
            return []
        is_current = device_round.plan.session_id == event.session_id
        if not is_current or not _wants_work(device_round):
            return []  # The round went on without this result.
        if isinstance(event, TrainingEnded):
            trained = Trained(update=event.update, examples=event.examples)
            effects = self._carry_out(device_round.handle(trained), now_s)
            return [*self._greeting.tell_backend(event.backend, now_s), *effects]
        if event.packed is None:
            return self._carry_out(device_round.handle(Trained(update=None)), now_s)
        return self._carry_out(device_round.handle(Masked(packed=event.packed)), now_s)

    # ------------------------------------------------------------ helpers

    def _phase_reached(self) -> list[AgentEffect]:
        if self._round is None:
            return []
        numbers, phase = numbers_of(self._round), self._round.phase
        return [
            PhaseReached(round_number=numbers.round_number, attempt=numbers.attempt, phase=phase)
        ]

    def _round_arguments(self) -> RoundArguments:
        return {
            "identity": self._settings.identity,
            "policy": self._settings.policy,
            "entropy": self._entropy,
            "epoch": self._keys.epoch,
            "gateway_key": self._gateway.key or b"",
            "today": int(self._settings.wall_clock_s() // DAY_S),
        }


def _wants_work(device_round: AnyRound) -> bool:
    """Tell whether nothing was uploaded in the round so far."""
    is_uploaded = isinstance(device_round, OneUploadRound) and device_round.last_message()
    return device_round.phase is Phase.MASKED_INPUT and not is_uploaded


def _part_slot(sha256: bytes) -> str:
    return _PART + sha256.hex()
