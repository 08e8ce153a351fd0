"""The agent without its shell: takes events and the time, returns effects in order.

The same class runs on a board (`edgefl.agent.runtime`) and in the simulator (`firmware_sim`).
"""

import hashlib

from edgefl.agent.deposits import AgentDeposits
from edgefl.agent.events import (
    AgentEffect,
    AgentEvent,
    MaskingEnded,
    Noticed,
    PhaseReached,
    RoundEnded,
    RunMasking,
    RunTraining,
    Stop,
    TrainingEnded,
)
from edgefl.agent.gateway_pin import foreign_gateway
from edgefl.agent.keys import AgentKeys
from edgefl.agent.outbox import Outbox
from edgefl.agent.parts import ModelParts
from edgefl.agent.rounds import AnyRound, RoundArguments, RoundFlash, numbers_of
from edgefl.agent.settings import AgentSettings
from edgefl.agent.spend import DeviceSpend
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import topics
from edgefl.protocol.answered_records import DAY_S
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.envelope import (
    NO_SESSION,
    Envelope,
    Header,
    open_envelope,
    require_aggregator_message,
    seal_envelope,
)
from edgefl.protocol.epoch_events import PersistEpoch
from edgefl.protocol.epoch_messages import EPOCH_AGGREGATOR_MESSAGES
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
from edgefl.protocol.round_messages import Call, Leave, PlanAnnouncement, RoundClosed
from edgefl.protocol.service_messages import (
    AggregatorStatus,
    Blob,
    GetBlob,
    Hello,
    Receipt,
    Rejection,
)
from edgefl.protocol.session_keys import call_id_of
from edgefl.storage.base import KeyValueStore
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish
from edgefl.types import DeviceId

STATUS_ONLINE = b"online"
STATUS_OFFLINE = b"offline"

_GATEWAY_KEY = "gateway-key"
_HELLO = "hello"
_ROUND_MESSAGE = "round"
_PART = "model part "


class AgentCore:
    """One device's agent.

    Args:
        settings: Identity, fleet, floors.
        store: Durable state; what a returned effect sends was written to it before.
        entropy: Fresh secrets.
    """

    def __init__(
        self, *, settings: AgentSettings, store: KeyValueStore, entropy: EntropySource
    ) -> None:
        """Read the durable state; an open round goes on when the link is up.

        Raises:
            StorageError: The state is damaged.
        """
        self._settings = settings
        self._store = store
        self._entropy = entropy
        self._spend = DeviceSpend(store.namespace("spend"), settings.policy.privacy)
        self._gateway_key = store.get(_GATEWAY_KEY)
        self._outbox = Outbox()
        self._keys = AgentKeys(
            store=store,
            entropy=entropy,
            outbox=self._outbox,
            identity=settings.identity,
            fleet=settings.fleet,
            policy=settings.policy,
            has_aes=settings.has_aes,
            enrolment_key=settings.enrolment_key,
        )
        self._deposits = AgentDeposits(
            store=store,
            outbox=self._outbox,
            keys=self._keys,
            seal=lambda message: self._sealed(message, Header(sender=self._device)),
        )
        self._flash = RoundFlash(store, self._keys)
        self._round = self._flash.restore(self._round_arguments(), kept=self._deposits.indices)
        self._parts = ModelParts()
        self._is_linked = False
        self._epoch: int | None = None
        self._hello_digest: bytes | None = None
        self._backend = ""

    # ------------------------------------------------------------ public

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that the shell subscribes to."""
        fleet, device = self._settings.fleet, self._device
        return (topics.downlink(fleet, device), topics.calls(fleet), topics.aggregator(fleet))

    @property
    def phase(self) -> Phase | None:
        """The phase of the open round, if there is one."""
        return None if self._round is None else self._round.phase

    @property
    def has_gateway(self) -> bool:
        """Tell whether this fleet's gateway has been heard since the start."""
        return self._epoch is not None

    @property
    def wakeup_s(self) -> float | None:
        """When `Woken` is wanted."""
        return self._outbox.wakeup_s if self._is_linked else None

    def handle(self, event: AgentEvent, now_s: float) -> list[AgentEffect]:
        """Take one event and return what to do, in order. A peer's bytes raise nothing."""
        if isinstance(event, Arrived):
            try:
                return self._on_arrived(event, now_s)
            except (WireError, RemoteProtocolError) as error:
                return [Noticed(error=error)]
        if isinstance(event, LinkRestored):
            return self._on_link(now_s)
        if isinstance(event, LinkLost):
            self._is_linked = False
            return []
        if isinstance(event, TrainingEnded | MaskingEnded):
            return self._on_job_ended(event, now_s)
        return self._on_woken(now_s)

    # ------------------------------------------------------------ link

    def _on_link(self, now_s: float) -> list[AgentEffect]:
        self._is_linked = True
        online = Publish(
            topic=topics.status(self._settings.fleet, self._device),
            payload=STATUS_ONLINE,
            retain=True,
        )
        return [online, *self._greet(now_s)]

    def _greet(self, now_s: float) -> list[AgentEffect]:
        """Say hello, and send again what may have been lost."""
        effects = [*self._say_hello(now_s), *self._keys.resume(now_s)]
        effects += self._deposits.resume(now_s)
        if self._round is not None:
            effects += self._carry_out(self._round.resume(), now_s)
        if self._parts.waiting is not None:
            effects += self._start_or_fetch(self._parts.waiting, now_s)
        return effects

    def _say_hello(self, now_s: float) -> list[AgentEffect]:
        hello = Hello(
            identity_key=self._settings.identity.signing_key.public_key,
            agent_version=self._settings.agent_version,
            roster_number=self._keys.epoch.roster_number,
            key_epoch=self._keys.open_number,
            backend=self._backend,
        )
        greeting = self._sealed(hello, Header(sender=self._device))
        self._hello_digest = hashlib.sha256(greeting.payload).digest()
        return [self._outbox.put(_HELLO, greeting, now_s)]

    def _tell_backend(self, backend: str, now_s: float) -> list[AgentEffect]:
        """Say hello again once it is known, or has changed, what this device trains with."""
        if not backend or backend == self._backend:
            return []
        self._backend = backend
        return self._say_hello(now_s)

    def _on_woken(self, now_s: float) -> list[AgentEffect]:
        return [*self._outbox.due(now_s)] if self._is_linked else []

    # ------------------------------------------------------------ messages

    def _on_arrived(self, event: Arrived, now_s: float) -> list[AgentEffect]:
        if event.topic == topics.aggregator(self._settings.fleet):
            return self._on_aggregator_status(event, now_s) if event.payload else []
        envelope = open_envelope(event.topic, event.payload)
        if self._gateway_key is None:
            return []  # The retained status comes first; what comes before it is sent again.
        envelope.require_signed_by(self._gateway_key)
        message = require_aggregator_message(envelope.message)
        if isinstance(message, Call):
            return self._on_call(message, now_s)
        if isinstance(message, Receipt):
            self._outbox.settle(message.digest)
            self._deposits.settle(message.digest)
            return []
        if isinstance(message, Blob):
            return self._on_blob(message, now_s)
        if isinstance(message, EPOCH_AGGREGATOR_MESSAGES):
            return self._keys.handle(message, now_s, self._settings.wall_clock_s())
        if isinstance(message, DepositCall):
            return self._on_deposit_call(message, now_s)
        if isinstance(message, Rejection):
            error = RemoteProtocolError(
                message.code, "a device that the gateway accepts", message.text
            )
            is_mine = message.digest == self._hello_digest
            return [Stop(error=error) if is_mine else Noticed(error=error)]
        return self._on_session_message(envelope, message, now_s)

    def _on_aggregator_status(self, event: Arrived, now_s: float) -> list[AgentEffect]:
        envelope = open_envelope(event.topic, event.payload)
        message = envelope.message
        if not isinstance(message, AggregatorStatus):
            raise WireError("E-WIRE-KIND", "the aggregator's status", type(message).__name__)
        envelope.require_signed_by(message.identity_key)
        if self._gateway_key is None:
            self._store.put(_GATEWAY_KEY, message.identity_key)
            self._gateway_key = message.identity_key
        if message.identity_key != self._gateway_key:
            error = foreign_gateway(self._gateway_key, message.identity_key)
            # Once the right gateway was heard here, this is a stranger beside it.
            return [Noticed(error=error) if self.has_gateway else Stop(error=error)]
        is_new = self._epoch != message.epoch
        self._epoch = message.epoch
        return self._greet(now_s) if is_new and self._is_linked else []

    def _on_call(self, call: Call, now_s: float) -> list[AgentEffect]:
        fleet = self._settings.fleet
        known = self._round if isinstance(self._round, DeviceRound) else None
        if known is not None and known.call_id == call_id_of(fleet, call):
            is_waiting = known.phase is Phase.CHECK_IN
            return self._carry_out(known.resume(), now_s) if is_waiting else []
        if call.attempt <= self._flash.last_attempt:
            return []  # A stale or replayed call: harmless.
        if not self._settings.is_available():
            return [self._stay_away(call, LeaveReason.NOT_AVAILABLE)]
        try:
            device_round = DeviceRound.answer(call, **self._round_arguments())
        except RemoteProtocolError as error:
            reason = self._keys.why_to_stay_away((call.attempt,), error.code)
            said = self._say_hello(now_s) if reason is None else [self._stay_away(call, reason)]
            return [Noticed(error=error), *said]
        return self._begin(device_round, now_s)

    def _stay_away(self, call: Call, reason: LeaveReason) -> AgentEffect:
        return self._sealed(Leave(reason=reason), self._header(NO_SESSION, call))

    def _begin(self, device_round: AnyRound, now_s: float) -> list[AgentEffect]:
        self._flash.begin(numbers_of(device_round).attempt, over=self._round)
        self._forget_job()
        self._round = device_round
        return self._carry_out(device_round.begin(), now_s)

    def _on_deposit_call(self, call: DepositCall, now_s: float) -> list[AgentEffect]:
        header = Header(sender=self._device)
        if not self._settings.is_available():
            return [self._sealed(Leave(reason=LeaveReason.NOT_AVAILABLE), header)]
        try:
            return [*self._deposits.answer(call, self._round_arguments(), now_s)]
        except RemoteProtocolError as error:
            named = (call.key_epoch, call.key_index)
            reason = self._keys.why_to_stay_away(named, error.code)
            if reason is None:
                return [Noticed(error=error), *self._say_hello(now_s)]
            return [Noticed(error=error), self._sealed(Leave(reason=reason), header)]

    def _on_announcement(self, message: OneUploadAnnouncement, now_s: float) -> list[AgentEffect]:
        plan = SessionPlan.from_bytes(message.plan)
        known = self._round if isinstance(self._round, OneUploadRound) else None
        if known is not None and known.plan.session_id == plan.session_id:
            return self._carry_out(known.handle(AggregatorSaid(message=message)), now_s)
        header = self._header(plan.session_id, plan)
        if plan.attempt <= self._flash.last_attempt:
            return [self._sealed(Leave(reason=LeaveReason.ROUND_UNKNOWN), header)]
        if not self._settings.is_available():
            return [self._sealed(Leave(reason=LeaveReason.NOT_AVAILABLE), header)]
        try:
            self._spend.require_room(plan.privacy)
            device_round = OneUploadRound.answer(message, **self._round_arguments())
        except (RemoteProtocolError, WireError) as error:
            leave = self._sealed(Leave(reason=LeaveReason.PLAN_REFUSED), header)
            return [Noticed(error=error), leave]
        return self._begin(device_round, now_s)

    def _on_session_message(
        self, envelope: Envelope, message: AggregatorMessage, now_s: float
    ) -> list[AgentEffect]:
        if isinstance(message, OneUploadAnnouncement):
            return self._on_announcement(message, now_s)
        header, device_round = envelope.header, self._round
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
        answer = self._header(session_id, header)
        return [self._sealed(Leave(reason=LeaveReason.ROUND_UNKNOWN), answer)]

    # ------------------------------------------------------------ the round's effects

    def _carry_out(self, effects: tuple[DeviceEffect, ...], now_s: float) -> list[AgentEffect]:
        out: list[AgentEffect] = []
        for effect in effects:
            out += self._carry_out_one(effect, now_s)
        return out

    def _carry_out_one(self, effect: DeviceEffect, now_s: float) -> list[AgentEffect]:
        if isinstance(effect, Persist):
            if self._round is not None:
                self._flash.put(self._round, effect.snapshot)
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
        publish = self._sealed(message, self._header(session_id, numbers_of(self._round)))
        self._deposits.keep(message, plan, publish)
        self._outbox.put(_ROUND_MESSAGE, publish, now_s)
        return [publish, *self._phase_reached()]

    def _on_finished(self, effect: DeviceFinished) -> list[AgentEffect]:
        device_round = self._round
        if device_round is None:
            return []
        self._flash.clear(over=device_round)
        self._round = None
        self._forget_job()
        if effect.left is None:
            self._outbox.drop(_ROUND_MESSAGE)
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
        if missing:
            header = Header(sender=self._device)
            return [
                self._outbox.put(
                    _part_slot(sha256), self._sealed(GetBlob(sha256=sha256), header), now_s
                )
                for sha256 in missing
            ]
        bundle, parameters = self._parts.of(job)
        return [RunTraining(plan=job.plan, bundle=bundle, parameters=parameters)]

    def _forget_job(self) -> None:
        self._parts.waiting = None
        self._outbox.drop(_PART)

    def _on_blob(self, message: Blob, now_s: float) -> list[AgentEffect]:
        sha256, job = self._parts.take(message.content)
        self._outbox.drop(_part_slot(sha256))
        return [] if job is None else self._start_or_fetch(job, now_s)

    def _on_job_ended(self, event: TrainingEnded | MaskingEnded, now_s: float) -> list[AgentEffect]:
        device_round = self._round
        if device_round is None or device_round.plan is None:
            return []
        is_current = device_round.plan.session_id == event.session_id
        if not is_current or not _wants_work(device_round):
            return []  # The round went on without this result.
        if isinstance(event, TrainingEnded):
            trained = Trained(update=event.update, examples=event.examples)
            effects = self._carry_out(device_round.handle(trained), now_s)
            return [*self._tell_backend(event.backend, now_s), *effects]
        if event.packed is None:
            return self._carry_out(device_round.handle(Trained(update=None)), now_s)
        return self._carry_out(device_round.handle(Masked(packed=event.packed)), now_s)

    # ------------------------------------------------------------ helpers

    @property
    def _device(self) -> DeviceId:
        return DeviceId(self._settings.identity.device)

    def _header(self, session_id: bytes, numbers: Call | SessionPlan | Header) -> Header:
        """Return the header of a message about a round."""
        return Header(
            session_id=session_id,
            round_number=numbers.round_number,
            attempt=numbers.attempt,
            sender=self._device,
        )

    def _sealed(self, message: DeviceMessage, header: Header) -> Publish:
        topic = topics.uplink(self._settings.fleet, self._device)
        key = self._settings.identity.signing_key
        return Publish(topic=topic, payload=seal_envelope(key, topic, header, message))

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
            "gateway_key": self._gateway_key or b"",
            "today": int(self._settings.wall_clock_s() // DAY_S),
        }


def _wants_work(device_round: AnyRound) -> bool:
    """Tell whether nothing was uploaded in the round so far."""
    is_uploaded = isinstance(device_round, OneUploadRound) and device_round.last_message()
    return device_round.phase is Phase.MASKED_INPUT and not is_uploaded


def _part_slot(sha256: bytes) -> str:
    return _PART + sha256.hex()
