"""The gateway without its shell: takes events and the time, keeps durable state, returns effects.

The same class runs on a gateway (`broker.runtime`) and in the simulator (`firmware_sim`).
"""

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from broker.events import (
    Arrived,
    EvaluationEnded,
    GatewayEffect,
    GatewayEvent,
    Json,
    LinkLost,
    LinkRestored,
    ModelChanged,
    Publish,
    Reported,
    RunUnmasking,
    TaskEnded,
    TaskSubmitted,
    UnmaskingEnded,
)
from broker.population import Population
from broker.server_step import ModelState, apply_step
from broker.task import TaskSpec
from broker.task_state import RUNNING, TaskState, encode_task_state, load_task_state, task_key
from edgefl._native import SigningKey
from edgefl.codec.ring import decode_sum
from edgefl.errors import BudgetExhausted, RemoteProtocolError, WireError
from edgefl.privacy.epsilons import epsilon_report
from edgefl.privacy.ledger import Ledger, LedgerEntry, Release, make_release
from edgefl.privacy.plan import PrivacyPlan
from edgefl.protocol import topics, wire
from edgefl.protocol.aggregator import AggregatorRound, RoundSetup
from edgefl.protocol.device import EntropySource
from edgefl.protocol.envelope import (
    AGGREGATOR,
    NO_SESSION,
    Header,
    open_envelope,
    require_device_message,
    seal_envelope,
)
from edgefl.protocol.events import (
    AggregatorEffect,
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
from edgefl.protocol.messages import (
    AggregatorMessage,
    AggregatorStatus,
    Blob,
    Call,
    DeviceMessage,
    GetBlob,
    Hello,
    Receipt,
    Rejection,
    RoundClosed,
)
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import RoundReport
from edgefl.storage.base import KeyValueStore
from edgefl.types import DeviceId, FleetName

_EPOCH = "epoch"
_LAST_ATTEMPT = "last-attempt"
_OPEN_ROUND = "open-round"
_CLOSED = "closed/"
_REMEMBERED_CLOSINGS = 4
_STATUS_OFFLINE = b"offline"


class LedgerStore(Protocol):
    """The privacy ledger, durable when `append` returns."""

    @property
    def ledger(self) -> Ledger:
        """The entries so far."""
        ...

    def append(self, release: Release) -> LedgerEntry:
        """Charge one release durably."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What a gateway is started with.

    Attributes:
        signing_key: The gateway's identity; devices pin it.
        grace_s: How long a device may be gone before a round stops waiting for it.
        gather_s: How long a round waits for known devices that are not online, once the floor is.
        resend_s: How often a device that is waited for is reminded.
        notice_s: How often a long wait is reported.
    """

    fleet: FleetName
    signing_key: SigningKey
    least_agent_version: str
    grace_s: float = 1.0
    gather_s: float = 5.0
    resend_s: float = 2.0
    notice_s: float = 10.0


@dataclass(slots=True, kw_only=True)
class _ActiveTask:
    spec: TaskSpec
    privacy: PrivacyPlan
    bundle: bytes
    bundle_sha256: bytes
    state: TaskState
    attempts: int = 0


@dataclass(slots=True, kw_only=True)
class _Traffic:
    up_bytes: int = 0
    down_bytes: int = 0


class GatewayCore:
    """The aggregator's side of a fleet.

    Args:
        settings: Identity, fleet, patience.
        store: Durable state.
        ledger: The privacy ledger.
        entropy: Fresh nonces.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        store: KeyValueStore,
        ledger: LedgerStore,
        entropy: EntropySource,
    ) -> None:
        """Read the durable state, and abort by name the round that a crash left open.

        Raises:
            StorageError: The state is damaged.
        """
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._entropy = entropy
        self._population = Population(store.namespace("population"), grace_s=settings.grace_s)
        self._epoch = int.from_bytes(store.get(_EPOCH) or b"", "big") + 1
        self._last_attempt = int.from_bytes(store.get(_LAST_ATTEMPT) or b"", "big")
        self._left_open = store.get(_OPEN_ROUND)
        store.put_many({_EPOCH: self._epoch.to_bytes(8, "big"), _OPEN_ROUND: None})
        self._tasks: list[_ActiveTask] = []
        self._round: AggregatorRound | None = None
        self._round_timer_s: float | None = None
        self._blobs: dict[bytes, bytes] = {}
        self._sent_at_s: dict[str, float] = {}
        self._traffic: dict[str, _Traffic] = {}
        self._gather_until_s: float | None = None
        self._next_notice_s: float | None = None
        self._is_linked = False

    # ------------------------------------------------------------ public

    @property
    def topics(self) -> tuple[str, ...]:
        """Filters that the shell subscribes to."""
        return (
            topics.all_status(self._settings.fleet),
            topics.all_uplinks(self._settings.fleet),
        )

    @property
    def wakeup_s(self) -> float | None:
        """When `Woken` is wanted."""
        wishes = [self._round_timer_s, self._population.wakeup_s, self._next_notice_s]
        if self._round is None:
            wishes.append(self._gather_until_s)
        elif self._sent_at_s:
            wishes.append(min(self._sent_at_s.values()) + self._settings.resend_s)
        return min((wish for wish in wishes if wish is not None), default=None)

    @property
    def online(self) -> set[str]:
        """Devices that are online."""
        return self._population.online()

    def handle(self, event: GatewayEvent, now_s: float) -> list[GatewayEffect]:
        """Take one event and return what to do, in order. A peer's bytes raise nothing."""
        if isinstance(event, Arrived):
            return self._on_arrived(event, now_s)
        if isinstance(event, LinkRestored):
            return self._on_link(now_s)
        if isinstance(event, LinkLost):
            self._is_linked = False
            return []
        if isinstance(event, TaskSubmitted):
            return self._on_task(event, now_s)
        if isinstance(event, UnmaskingEnded):
            return self._on_unmasked(event.attempt, event.result, now_s)
        if isinstance(event, EvaluationEnded):
            return [_evaluated(event)]
        return self._on_woken(now_s)

    # ------------------------------------------------------------ link and time

    def _on_link(self, now_s: float) -> list[GatewayEffect]:
        self._is_linked = True
        # The broker may have forgotten everybody: whoever is not heard soon counts as gone.
        self._population.doubt_all(now_s, self._settings.gather_s)
        status = AggregatorStatus(
            identity_key=self._settings.signing_key.public_key,
            epoch=self._epoch,
            least_agent_version=self._settings.least_agent_version,
        )
        topic = topics.aggregator(self._settings.fleet)
        header = Header(sender=AGGREGATOR)
        payload = seal_envelope(self._settings.signing_key, topic, header, status)
        return [
            Publish(topic=topic, payload=payload, retain=True),
            *self._report_left_open(),
            *self._maybe_open_round(now_s),
        ]

    def _report_left_open(self) -> list[GatewayEffect]:
        """Name the round that was open when the gateway died."""
        left_open, self._left_open = self._left_open, None
        if left_open is None:
            return []
        body = wire.as_body(wire.decode(left_open))
        phase = Phase(wire.as_int(wire.field(body, 3), 1, 6))
        fields: dict[str, Json] = {
            "task": wire.as_text(wire.field(body, 0)),
            "round": wire.as_int(wire.field(body, 1), 0, 2**31),
            "attempt": wire.as_int(wire.field(body, 2), 0, 2**31),
            "outcome": Phase.ABORTED.name,
            "reason": AbortReason.GATEWAY_RESTARTED.name,
            "in_phase": phase.name,
        }
        return [Reported(kind="round", fields=fields)]

    def _on_woken(self, now_s: float) -> list[GatewayEffect]:
        effects: list[GatewayEffect] = []
        for device in self._population.take_gone(now_s):
            effects.append(Reported(kind="device-offline", fields={"device": device}))
            effects += self._feed(DeviceOffline(device=device), now_s)
        if self._round_timer_s is not None and now_s >= self._round_timer_s:
            self._round_timer_s = None
            effects += self._feed(TimerFired(), now_s)
        effects += self._resend(now_s)
        effects += self._maybe_open_round(now_s)
        effects += self._notice(now_s)
        return effects

    def _resend(self, now_s: float) -> list[GatewayEffect]:
        """Remind the devices that the round waits for."""
        if self._round is None or not self._is_linked:
            return []
        waiting = set(self._round.waiting_for())
        for device in self._sent_at_s.keys() - waiting:
            del self._sent_at_s[device]
        effects: list[GatewayEffect] = []
        for device in sorted(waiting):
            if now_s < self._sent_at_s.get(device, 0.0) + self._settings.resend_s:
                continue
            message = self._round.message_for(device)
            if message is not None:
                effects.append(self._down(device, message, now_s))
        return effects

    def _notice(self, now_s: float) -> list[GatewayEffect]:
        """Say what is waited for, when a wait is long."""
        is_waiting = self._round is not None or bool(self._tasks)
        if not is_waiting:
            self._next_notice_s = None
            return []
        if self._next_notice_s is None:
            self._next_notice_s = now_s + self._settings.notice_s
            return []
        if now_s < self._next_notice_s:
            return []
        self._next_notice_s = now_s + self._settings.notice_s
        online: Json = len(self.online)
        if self._round is None:
            task = self._tasks[0]
            needed = self._devices_needed(task)
            return [
                Reported(
                    kind="waiting",
                    fields={"for": "devices online", "have": online, "need": needed},
                )
            ]
        return [
            Reported(
                kind="waiting",
                fields={
                    "for": self._round.phase.name,
                    "have": self._round.arrived,
                    "need": self._round.needed,
                    "silent": list(self._round.waiting_for()),
                },
            )
        ]

    # ------------------------------------------------------------ devices

    def _on_arrived(self, event: Arrived, now_s: float) -> list[GatewayEffect]:
        try:
            device = topics.device_of(event.topic)
            if event.topic == topics.status(self._settings.fleet, device):
                return self._on_status(device, event.payload, now_s)
            return self._on_uplink(device, event, now_s)
        except (WireError, RemoteProtocolError) as error:
            fields: dict[str, Json] = {"code": error.code, "topic": event.topic[:120]}
            return [Reported(kind="refused", fields=fields)]

    def _on_status(self, device: DeviceId, payload: bytes, now_s: float) -> list[GatewayEffect]:
        if payload == _STATUS_OFFLINE:
            self._population.is_leaving(device, now_s)
            return []
        return self._on_heard(device, now_s)

    def _on_heard(self, device: str, now_s: float) -> list[GatewayEffect]:
        if not self._population.is_heard(device):
            return []
        return [
            *self._feed(DeviceOnline(device=device), now_s),
            *self._maybe_open_round(now_s),
        ]

    def _on_uplink(self, device: DeviceId, event: Arrived, now_s: float) -> list[GatewayEffect]:
        envelope = open_envelope(event.topic, event.payload)
        message = require_device_message(envelope.message)
        if envelope.header.sender != device:
            raise WireError("E-WIRE-SENDER", "the sender that the topic names", "another")
        self._count_up(device, len(event.payload))
        if isinstance(message, Hello):
            envelope.require_signed_by(message.identity_key)
            return self._on_hello(device, message, now_s)
        key = self._population.keys.get(device)
        if key is None:
            return []  # Its hello got lost; it says hello again at the next connection.
        envelope.require_signed_by(key)
        effects = self._on_heard(device, now_s)
        if isinstance(message, GetBlob):
            return [*effects, *self._on_get_blob(device, message, now_s)]
        digest = hashlib.sha256(event.payload).digest()
        effects += self._on_round_message(device, envelope.header, message, now_s)
        receipt = Receipt(digest=digest)
        return [*effects, self._sealed(device, Header(sender=AGGREGATOR), receipt)]

    def _on_hello(self, device: DeviceId, message: Hello, now_s: float) -> list[GatewayEffect]:
        settings = self._settings
        if _version(message.agent_version) < _version(settings.least_agent_version):
            text = (
                f"agent {message.agent_version} is too old, need {settings.least_agent_version} or "
                "newer: update the agent"
            )
            return [self._reject(device, "E-AGENT-OLD", text)]
        try:
            is_new = self._population.pin(device, message.identity_key)
        except RemoteProtocolError as error:
            return [self._reject(device, error.code, error.advice)]
        effects: list[GatewayEffect] = []
        if is_new:
            effects.append(Reported(kind="device-new", fields={"device": device}))
        effects += self._on_heard(device, now_s)
        if self._round is not None and device in self._round.waiting_for():
            current = self._round.message_for(device)
            if current is not None:
                effects.append(self._down(device, current, now_s))
        return effects

    def _on_get_blob(self, device: DeviceId, message: GetBlob, now_s: float) -> list[GatewayEffect]:
        del now_s
        content = self._blobs.get(message.sha256)
        if content is None:
            return []
        return [self._sealed(device, Header(sender=AGGREGATOR), Blob(content=content))]

    def _on_round_message(
        self, device: DeviceId, header: Header, message: DeviceMessage, now_s: float
    ) -> list[GatewayEffect]:
        current = self._round
        if current is None or header.attempt != current.call.attempt:
            return [self._closing_of(device, header)]
        if device not in current.population:
            return []
        try:
            return self._feed(
                DeviceSaid(device=device, session_id=header.session_id, message=message), now_s
            )
        except RemoteProtocolError as error:
            fields: dict[str, Json] = {"code": error.code, "device": device}
            removed = self._carry_out(current.remove(device, DropReason.BAD_MESSAGE, now_s), now_s)
            return [Reported(kind="refused", fields=fields), *removed]

    def _closing_of(self, device: DeviceId, header: Header) -> GatewayEffect:
        """Tell a device how an earlier attempt ended for it."""
        stored = self._store.get(f"{_CLOSED}{header.attempt}")
        phase, reason, counted = Phase.ABORTED, AbortReason.GATEWAY_RESTARTED, False
        if stored is not None:
            body = wire.as_body(wire.decode(stored))
            phase = Phase(wire.as_int(wire.field(body, 0), 1, 6))
            reason = AbortReason(wire.as_int(wire.field(body, 1), 0, 255))
            survivors = wire.as_list(wire.field(body, 2), 2**16)
            counted = device in survivors
        closed = RoundClosed(phase=phase, reason=reason, counted=counted)
        answer = Header(
            session_id=header.session_id,
            round_number=header.round_number,
            attempt=header.attempt,
            sender=AGGREGATOR,
        )
        return self._sealed(device, answer, closed)

    def _reject(self, device: DeviceId, code: str, text: str) -> GatewayEffect:
        header = Header(sender=AGGREGATOR)
        return self._sealed(device, header, Rejection(code=code, text=text))

    # ------------------------------------------------------------ tasks

    def _on_task(self, event: TaskSubmitted, now_s: float) -> list[GatewayEffect]:
        spec = event.spec
        if any(task.spec.name == spec.name for task in self._tasks):
            return []
        privacy = spec.privacy_plan(event.initial_parameters.size)
        state = load_task_state(self._store, spec.name, event.initial_parameters.size)
        if state is None:
            zeros = np.zeros_like(event.initial_parameters)
            model = ModelState(parameters=event.initial_parameters, velocity=zeros)
            state = TaskState(committed=0, outcome=RUNNING, model=model)
        # After a crash the folder may lack the newest model: hand it out once more.
        kept: list[GatewayEffect] = []
        if state.committed > 0:
            newest = state.model.parameters
            kept.append(
                ModelChanged(task=spec.name, round_number=state.committed, parameters=newest)
            )
        if state.outcome != RUNNING:
            ended = TaskEnded(task=spec.name, outcome=state.outcome, reason="ended before")
            return [*kept, ended]
        task = _ActiveTask(
            spec=spec,
            privacy=privacy,
            bundle=event.bundle,
            bundle_sha256=hashlib.sha256(event.bundle).digest(),
            state=state,
        )
        self._tasks.append(task)
        fields: dict[str, Json] = {
            "task": spec.name,
            "rounds": spec.rounds,
            "committed": state.committed,
            "dimension": privacy.dimension,
            "ring_bits": privacy.ring_bits,
            "epsilon_planned": privacy.epsilon_declared,
        }
        return [*kept, Reported(kind="task", fields=fields), *self._maybe_open_round(now_s)]

    def _devices_needed(self, task: _ActiveTask) -> int:
        is_first = task.state.committed == 0 and task.attempts == 0
        return task.spec.quorum if is_first else task.spec.survivor_floor

    def _maybe_open_round(self, now_s: float) -> list[GatewayEffect]:
        if self._round is not None or not self._tasks or not self._is_linked:
            return []
        task = self._tasks[0]
        online = self.online
        if len(online) < self._devices_needed(task):
            self._gather_until_s = None
            return []
        if len(online) < min(len(self._population.keys), task.spec.cohort):
            if self._gather_until_s is None:
                self._gather_until_s = now_s + self._settings.gather_s
            if now_s < self._gather_until_s:
                return []
        self._gather_until_s = None
        return self._open_round(task, now_s)

    def _open_round(self, task: _ActiveTask, now_s: float) -> list[GatewayEffect]:
        try:
            self._require_budget(task)
        except BudgetExhausted as error:
            return self._end_task(task, "budget", str(error), now_s)
        self._last_attempt += 1
        task.attempts += 1
        call = Call(
            task=task.spec.name,
            round_number=task.state.committed + 1,
            attempt=self._last_attempt,
            nonce=self._entropy.fresh_seed().export_bytes(),
            closes_in_ms=int(task.spec.check_in_s * 1000),
        )
        parameters = task.state.model.parameters.astype("<f4").tobytes()
        self._blobs = {
            task.bundle_sha256: task.bundle,
            hashlib.sha256(parameters).digest(): parameters,
        }
        setup = RoundSetup(
            fleet=self._settings.fleet,
            call=call,
            population=self._choose_cohort(task),
            privacy=task.privacy,
            training=task.spec.training_plan(),
            bundle_sha256=task.bundle_sha256,
            parameters_sha256=hashlib.sha256(parameters).digest(),
            ledger_head=bytes.fromhex(self._ledger.ledger.head),
            limits=task.spec.limits(),
        )
        offline = frozenset(setup.population.keys() - self.online)
        self._store.put_many(
            {
                _LAST_ATTEMPT: self._last_attempt.to_bytes(8, "big"),
                _OPEN_ROUND: _open_record(call, Phase.CHECK_IN),
            }
        )
        self._traffic = {}
        self._sent_at_s = dict.fromkeys(self.online, now_s)
        self._next_notice_s = now_s + self._settings.notice_s
        self._round = AggregatorRound(setup=setup, offline=offline, now_s=now_s)
        topic = topics.calls(self._settings.fleet)
        payload = seal_envelope(self._settings.signing_key, topic, self._header(call), call)
        return [
            Publish(topic=topic, payload=payload),
            *self._carry_out(self._round.begin(now_s), now_s),
        ]

    def _require_budget(self, task: _ActiveTask) -> None:
        self._ledger.ledger.admit(
            task.privacy.rdp_per_round(), task.spec.epsilon_budget, task.spec.delta
        )

    def _choose_cohort(self, task: _ActiveTask) -> dict[str, bytes]:
        """Return the devices of this round: all that are known, those online first.

        The gateway chooses, so no amplification by sampling is claimed anywhere.
        """
        online = self.online
        known = self._population.keys
        ranked = sorted(known, key=lambda device: (device not in online, device))
        return {device: known[device] for device in ranked[: task.spec.cohort]}

    def _end_task(
        self, task: _ActiveTask, outcome: str, reason: str, now_s: float
    ) -> list[GatewayEffect]:
        task.state = task.state.ended(outcome)
        self._store.put(task_key(task.spec.name), encode_task_state(task.state))
        self._tasks.remove(task)
        self._next_notice_s = None
        ended = TaskEnded(task=task.spec.name, outcome=outcome, reason=reason)
        fields: dict[str, Json] = {
            "task": task.spec.name,
            "outcome": outcome,
            "reason": reason,
            "committed": task.state.committed,
        }
        return [
            ended,
            Reported(kind="task-ended", fields=fields),
            *self._maybe_open_round(now_s),
        ]

    # ------------------------------------------------------------ the round's effects

    def _feed(
        self,
        event: DeviceSaid
        | DeviceOffline
        | DeviceOnline
        | TimerFired
        | Charged
        | Cancelled
        | Unmasked,
        now_s: float,
    ) -> list[GatewayEffect]:
        if self._round is None:
            return []
        return self._carry_out(self._round.handle(event, now_s), now_s)

    def _carry_out(
        self, effects: tuple[AggregatorEffect, ...], now_s: float
    ) -> list[GatewayEffect]:
        out: list[GatewayEffect] = []
        header = None if self._round is None else self._header(self._round.call)
        for effect in effects:
            if isinstance(effect, SendDown):
                if header is not None:
                    out.append(self._down(effect.device, effect.message, now_s, header))
            elif isinstance(effect, SetTimer):
                self._round_timer_s = effect.at_s
            elif isinstance(effect, Charge):
                out += self._charge(effect, now_s)
            elif isinstance(effect, UnmaskJob):
                out.append(RunUnmasking(attempt=self._last_attempt, job=effect))
            elif isinstance(effect, PhaseChanged):
                out += self._on_phase(effect, now_s)
                header = None if self._round is None else self._header(self._round.call)
            else:
                header = self._header_of_finished(effect)
                out += self._on_finished(effect, now_s)
        if self._round is None:
            out += self._maybe_open_round(now_s)
        return out

    def _charge(self, effect: Charge, now_s: float) -> list[GatewayEffect]:
        """Write the ledger row before anything can be unmasked."""
        plan, task = effect.plan, self._tasks[0]
        release = make_release(
            plan.privacy,
            task=plan.task,
            round_number=plan.round_number,
            attempt=plan.attempt,
            session_id=plan.session_id,
            n_survivors=effect.n_survivors,
        )
        try:
            self._ledger.ledger.admit(release.rdp, task.spec.epsilon_budget, task.spec.delta)
        except BudgetExhausted:
            return self._feed(Cancelled(reason=AbortReason.BUDGET_EXHAUSTED), now_s)
        self._ledger.append(release)
        return self._feed(Charged(), now_s)

    def _on_phase(self, effect: PhaseChanged, now_s: float) -> list[GatewayEffect]:
        if self._round is None:
            return []
        call = self._round.call
        self._store.put(_OPEN_ROUND, _open_record(call, effect.phase))
        self._next_notice_s = now_s + self._settings.notice_s
        fields: dict[str, Json] = {
            "task": call.task,
            "round": call.round_number,
            "attempt": call.attempt,
            "phase": effect.phase.name,
            "expected": self._round.expected,
            "needed": effect.needed,
        }
        return [Reported(kind="phase", fields=fields)]

    def _on_unmasked(self, attempt: int, result: Unmasked, now_s: float) -> list[GatewayEffect]:
        if self._round is None or self._round.call.attempt != attempt:
            return []
        return self._feed(result, now_s)

    def _on_finished(self, effect: RoundFinished, now_s: float) -> list[GatewayEffect]:
        task, report = self._tasks[0], effect.report
        self._round, self._round_timer_s = None, None
        self._sent_at_s = {}
        changes: dict[str, bytes | None] = {
            _OPEN_ROUND: None,
            f"{_CLOSED}{report.attempt}": _closing_record(report),
            f"{_CLOSED}{report.attempt - _REMEMBERED_CLOSINGS}": None,
        }
        effects: list[GatewayEffect] = []
        if effect.total is not None and effect.plan is not None:
            privacy = effect.plan.privacy
            total = decode_sum(effect.total, scale=privacy.scale, ring_bits=privacy.ring_bits)
            model = apply_step(
                task.state.model,
                total,
                members=len(effect.plan.members),
                momentum=task.spec.server_momentum,
                server_lr=task.spec.server_lr,
            )
            task.attempts = 0
            task.state = TaskState(committed=report.round_number, outcome=RUNNING, model=model)
            changes[task_key(task.spec.name)] = encode_task_state(task.state)
            effects.append(
                ModelChanged(
                    task=task.spec.name,
                    round_number=report.round_number,
                    parameters=model.parameters,
                )
            )
        self._store.put_many(changes)
        effects.append(self._round_report(task, report))
        return effects + self._after_round(task, report, now_s)

    def _after_round(
        self, task: _ActiveTask, report: RoundReport, now_s: float
    ) -> list[GatewayEffect]:
        if report.abort_reason is AbortReason.BUDGET_EXHAUSTED:
            return self._end_task(task, "budget", "the privacy budget is spent", now_s)
        if task.state.committed >= task.spec.rounds:
            return self._end_task(task, "done", f"{task.spec.rounds} rounds", now_s)
        if task.attempts >= task.spec.max_attempts:
            reason = f"{task.attempts} attempts at one round: {report.abort_reason.name}"
            return self._end_task(task, "failed", reason, now_s)
        # A round that could not be filled waits a moment before the next call.
        if report.outcome is Phase.ABORTED:
            self._gather_until_s = now_s + self._settings.gather_s
        return []

    def _round_report(self, task: _ActiveTask, report: RoundReport) -> GatewayEffect:
        epsilon = epsilon_report(task.privacy, len(self._ledger.ledger))
        up = [traffic.up_bytes for traffic in self._traffic.values()]
        down = [traffic.down_bytes for traffic in self._traffic.values()]
        fields: dict[str, Json] = {
            "task": report.task,
            "round": report.round_number,
            "attempt": report.attempt,
            "outcome": report.outcome.name,
            "reason": report.abort_reason.name,
            "survivors": len(report.survivors),
            "unmasked": report.unmasked,
            "sum_check_held": report.sum_check_held,
            "charged": report.charged,
            "phases": [
                {
                    "phase": count.phase.name,
                    "expected": count.expected,
                    "needed": count.needed,
                    "arrived": count.arrived,
                    "duration_s": round(count.duration_s, 4),
                }
                for count in report.phases
            ],
            "dropouts": [
                {"device": drop.device, "phase": drop.phase.name, "reason": drop.reason.value}
                for drop in report.dropouts
            ],
            "up_bytes_per_device": sum(up) / max(1, len(up)),
            "down_bytes_per_device": sum(down) / max(1, len(down)),
            "epsilon_server": self._ledger.ledger.epsilon(task.spec.delta),
            "epsilon_release": epsilon.release,
            "epsilon_two_devices": epsilon.two_devices,
            "delta": task.spec.delta,
        }
        return Reported(kind="round", fields=fields)

    # ------------------------------------------------------------ sending

    def _header(self, call: Call) -> Header:
        plan = None if self._round is None else self._round.plan
        return Header(
            session_id=NO_SESSION if plan is None else plan.session_id,
            round_number=call.round_number,
            attempt=call.attempt,
            sender=AGGREGATOR,
        )

    def _header_of_finished(self, effect: RoundFinished) -> Header:
        return Header(
            session_id=NO_SESSION if effect.plan is None else effect.plan.session_id,
            round_number=effect.report.round_number,
            attempt=effect.report.attempt,
            sender=AGGREGATOR,
        )

    def _down(
        self, device: str, message: AggregatorMessage, now_s: float, header: Header | None = None
    ) -> GatewayEffect:
        self._sent_at_s[device] = now_s
        if header is None:
            if self._round is None:
                header = Header(sender=AGGREGATOR)
            else:
                header = self._header(self._round.call)
        return self._sealed(DeviceId(device), header, message)

    def _sealed(
        self, device: DeviceId, header: Header, message: AggregatorMessage
    ) -> GatewayEffect:
        topic = topics.downlink(self._settings.fleet, device)
        payload = seal_envelope(self._settings.signing_key, topic, header, message)
        self._traffic.setdefault(device, _Traffic()).down_bytes += len(payload)
        return Publish(topic=topic, payload=payload)

    def _count_up(self, device: DeviceId, size_bytes: int) -> None:
        self._traffic.setdefault(device, _Traffic()).up_bytes += size_bytes


def _open_record(call: Call, phase: Phase) -> bytes:
    return wire.encode({0: call.task, 1: call.round_number, 2: call.attempt, 3: int(phase)})


def _closing_record(report: RoundReport) -> bytes:
    return wire.encode(
        {0: int(report.outcome), 1: int(report.abort_reason), 2: list(report.survivors)}
    )


def _evaluated(event: EvaluationEnded) -> Reported:
    fields: dict[str, Json] = {
        "task": event.task,
        "round": event.round_number,
        "accuracy": event.accuracy,
        "loss": event.loss,
        "examples": event.examples,
    }
    return Reported(kind="evaluated", fields=fields)


def _version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; whatever is no number counts as 0."""
    parts = text.split("+")[0].split(".")[:3]
    return tuple(int(part) if part.isdecimal() and len(part) < 9 else 0 for part in parts)
