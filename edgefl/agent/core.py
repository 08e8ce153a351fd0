"""The agent without its shell: takes events and the time, returns effects in order.

The same class runs on a board (`edgefl.agent.runtime`) and in the simulator (`firmware_sim`).
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

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
from edgefl.agent.outbox import Outbox
from edgefl.agent.spend import DeviceSpend
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import topics
from edgefl.protocol.device import DeviceIdentity, DeviceRound, EntropySource, call_id_of
from edgefl.protocol.envelope import (
    NO_SESSION,
    Envelope,
    Header,
    open_envelope,
    require_aggregator_message,
    seal_envelope,
)
from edgefl.protocol.events import (
    AggregatorSaid,
    DeviceEffect,
    DeviceFinished,
    Masked,
    MaskJob,
    Persist,
    PlanReceived,
    Refused,
    SendUp,
    Trained,
    TrainJob,
)
from edgefl.protocol.messages import (
    AggregatorMessage,
    AggregatorStatus,
    Blob,
    Call,
    DeviceMessage,
    GetBlob,
    Hello,
    Leave,
    PlanAnnouncement,
    Receipt,
    Rejection,
    RoundClosed,
)
from edgefl.protocol.plan import SessionPlan, session_id_of
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import LeaveReason, Phase
from edgefl.storage.base import KeyValueStore
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish
from edgefl.types import DeviceId, FleetName

STATUS_ONLINE = b"online"
STATUS_OFFLINE = b"offline"

_GATEWAY_KEY = "gateway-key"
_ROUND = "round"
_LAST_ATTEMPT = "last-attempt"
_HELLO = "hello"
_ROUND_MESSAGE = "round"
_BLOB = "blob "
_CACHED_BLOBS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an agent is started with.

    Attributes:
        is_available: Tells whether the device may take part now (power, temperature, hours).
    """

    fleet: FleetName
    identity: DeviceIdentity
    policy: DevicePolicy
    agent_version: str
    is_available: Callable[[], bool] = lambda: True


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
        self._last_attempt = int.from_bytes(store.get(_LAST_ATTEMPT) or b"", "big")
        self._round = self._restore_round()
        self._outbox = Outbox()
        self._blobs: dict[bytes, bytes] = {}
        self._waiting_job: TrainJob | None = None
        self._is_linked = False
        self._epoch: int | None = None
        self._hello_digest: bytes | None = None

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
        hello = Hello(
            identity_key=self._settings.identity.signing_key.public_key,
            agent_version=self._settings.agent_version,
        )
        greeting = self._sealed(hello, Header(sender=self._device))
        self._hello_digest = hashlib.sha256(greeting.payload).digest()
        effects: list[AgentEffect] = [self._outbox.put(_HELLO, greeting, now_s)]
        if self._round is not None:
            effects += self._carry_out(self._round.resume(), now_s)
        if self._waiting_job is not None:
            effects += self._start_or_fetch(self._waiting_job, now_s)
        return effects

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
            return []
        if isinstance(message, Blob):
            return self._on_blob(message, now_s)
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
            error = _foreign_gateway(self._gateway_key, message.identity_key)
            # Once the right gateway was heard here, this is a stranger beside it.
            return [Noticed(error=error) if self.has_gateway else Stop(error=error)]
        is_new = self._epoch != message.epoch
        self._epoch = message.epoch
        return self._greet(now_s) if is_new and self._is_linked else []

    def _on_call(self, call: Call, now_s: float) -> list[AgentEffect]:
        fleet = self._settings.fleet
        if self._round is not None and self._round.call_id == call_id_of(fleet, call):
            if self._round.phase is Phase.CHECK_IN:
                return self._carry_out(self._round.resume(), now_s)
            return []
        if call.attempt <= self._last_attempt:
            return []  # A stale or replayed call: harmless.
        if not self._settings.is_available():
            header = Header(
                round_number=call.round_number, attempt=call.attempt, sender=self._device
            )
            return [self._sealed(Leave(reason=LeaveReason.NOT_AVAILABLE), header)]
        self._store.put_many({_LAST_ATTEMPT: call.attempt.to_bytes(8, "big"), _ROUND: None})
        self._last_attempt = call.attempt
        self._forget_job()
        self._round = DeviceRound.answer(
            call,
            identity=self._settings.identity,
            policy=self._settings.policy,
            entropy=self._entropy,
            fleet=fleet,
        )
        return self._carry_out(self._round.begin(), now_s)

    def _on_session_message(
        self, envelope: Envelope, message: AggregatorMessage, now_s: float
    ) -> list[AgentEffect]:
        header = envelope.header
        device_round = self._round
        if device_round is None or header.attempt != device_round.call.attempt:
            return self._on_unknown_session(header, message)
        if isinstance(message, PlanAnnouncement):
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
            except RemoteProtocolError as error:
                leaving = device_round.leave(LeaveReason.PLAN_REFUSED)
                return [Noticed(error=error), *self._carry_out(leaving, now_s)]
        return self._carry_out(device_round.handle(PlanReceived(plan=message.plan)), now_s)

    def _on_unknown_session(self, header: Header, message: AggregatorMessage) -> list[AgentEffect]:
        """Say so when asked about a session whose record is gone: it counts as a dropout."""
        if isinstance(message, RoundClosed):
            return []
        session_id = header.session_id
        if isinstance(message, PlanAnnouncement):
            session_id = session_id_of(message.plan)
        answer = Header(
            session_id=session_id,
            round_number=header.round_number,
            attempt=header.attempt,
            sender=self._device,
        )
        return [self._sealed(Leave(reason=LeaveReason.ROUND_UNKNOWN), answer)]

    # ------------------------------------------------------------ the round's effects

    def _carry_out(self, effects: tuple[DeviceEffect, ...], now_s: float) -> list[AgentEffect]:
        out: list[AgentEffect] = []
        for effect in effects:
            out += self._carry_out_one(effect, now_s)
        return out

    def _carry_out_one(self, effect: DeviceEffect, now_s: float) -> list[AgentEffect]:
        if isinstance(effect, Persist):
            self._store.put(_ROUND, effect.snapshot)
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
        plan, call = self._round.plan, self._round.call
        header = Header(
            session_id=NO_SESSION if plan is None else plan.session_id,
            round_number=call.round_number,
            attempt=call.attempt,
            sender=self._device,
        )
        publish = self._sealed(message, header)
        self._outbox.put(_ROUND_MESSAGE, publish, now_s)
        return [publish, *self._phase_reached()]

    def _on_finished(self, effect: DeviceFinished) -> list[AgentEffect]:
        device_round, self._round = self._round, None
        if device_round is None:
            return []
        self._store.delete(_ROUND)
        self._forget_job()
        if effect.left is None:
            self._outbox.drop(_ROUND_MESSAGE)
        return [
            RoundEnded(
                round_number=device_round.call.round_number,
                attempt=device_round.call.attempt,
                phase=effect.phase,
                abort_reason=effect.abort_reason,
                left=effect.left,
                counted=effect.counted,
            )
        ]

    # ------------------------------------------------------------ training

    def _start_or_fetch(self, job: TrainJob, now_s: float) -> list[AgentEffect]:
        """Start training once the bundle and the parameters are here; ask for what is missing."""
        wanted = (job.plan.bundle_sha256, job.plan.parameters_sha256)
        missing = [sha256 for sha256 in wanted if sha256 not in self._blobs]
        if missing:
            self._waiting_job = job
            header = Header(sender=self._device)
            return [
                self._outbox.put(
                    _blob_slot(sha256), self._sealed(GetBlob(sha256=sha256), header), now_s
                )
                for sha256 in missing
            ]
        self._waiting_job = None
        return [
            RunTraining(
                plan=job.plan,
                bundle=self._blobs[job.plan.bundle_sha256],
                parameters=self._blobs[job.plan.parameters_sha256],
            )
        ]

    def _forget_job(self) -> None:
        self._waiting_job = None
        self._outbox.drop(_BLOB)

    def _on_blob(self, message: Blob, now_s: float) -> list[AgentEffect]:
        job = self._waiting_job
        sha256 = hashlib.sha256(message.content).digest()
        self._outbox.drop(_blob_slot(sha256))
        if job is None or sha256 not in (job.plan.bundle_sha256, job.plan.parameters_sha256):
            return []
        self._blobs[sha256] = message.content
        while len(self._blobs) > _CACHED_BLOBS:
            oldest = next(key for key in self._blobs if key != job.plan.bundle_sha256)
            del self._blobs[oldest]
        missing = {job.plan.bundle_sha256, job.plan.parameters_sha256} - self._blobs.keys()
        return [] if missing else self._start_or_fetch(job, now_s)

    def _on_job_ended(self, event: TrainingEnded | MaskingEnded, now_s: float) -> list[AgentEffect]:
        device_round = self._round
        if device_round is None or device_round.plan is None:
            return []
        is_current = device_round.plan.session_id == event.session_id
        if not is_current or device_round.phase is not Phase.MASKED_INPUT:
            return []  # The round went on without this result.
        if isinstance(event, TrainingEnded):
            return self._carry_out(device_round.handle(Trained(update=event.update)), now_s)
        if event.packed is None:
            return self._carry_out(device_round.handle(Trained(update=None)), now_s)
        return self._carry_out(device_round.handle(Masked(packed=event.packed)), now_s)

    # ------------------------------------------------------------ helpers

    @property
    def _device(self) -> DeviceId:
        return DeviceId(self._settings.identity.device)

    def _sealed(self, message: DeviceMessage, header: Header) -> Publish:
        topic = topics.uplink(self._settings.fleet, self._device)
        key = self._settings.identity.signing_key
        return Publish(topic=topic, payload=seal_envelope(key, topic, header, message))

    def _phase_reached(self) -> list[AgentEffect]:
        if self._round is None:
            return []
        call = self._round.call
        return [
            PhaseReached(
                round_number=call.round_number, attempt=call.attempt, phase=self._round.phase
            )
        ]

    def _restore_round(self) -> DeviceRound | None:
        snapshot = self._store.get(_ROUND)
        if snapshot is None:
            return None
        try:
            restored = DeviceRound.restore(
                snapshot,
                identity=self._settings.identity,
                policy=self._settings.policy,
                entropy=self._entropy,
                fleet=self._settings.fleet,
            )
        except WireError:
            # Written by another version: this device counts as a dropout of that round.
            self._store.delete(_ROUND)
            return None
        return None if restored.phase.is_final else restored


def _blob_slot(sha256: bytes) -> str:
    return _BLOB + sha256.hex()


def _foreign_gateway(pinned: bytes, found: bytes) -> RemoteProtocolError:
    return RemoteProtocolError(
        "E-GATEWAY-KEY",
        f"the gateway that this device was first used with (key {fingerprint(pinned)})",
        f"another gateway (key {fingerprint(found)})",
        "connect to the right gateway, or reset this device's state folder if it moved",
    )


def fingerprint(public_key: bytes) -> str:
    """Return a short form of a public key for people: 16 hex digits of its SHA-256, in groups."""
    digits = hashlib.sha256(public_key).hexdigest()[:16]
    return "-".join(digits[index : index + 4] for index in range(0, 16, 4))
