"""The gateway without its shell: takes events and the time, keeps durable state, returns effects.

The same class runs on a gateway (`broker.runtime`) and in the simulator (`firmware_sim`).
"""

import hashlib

from broker.active_task import ActiveTask, take_up
from broker.admission import admit
from broker.deposits import TOO_FEW_DEPOSITS, Readiness
from broker.enrolment_requests import EnrolmentRequests
from broker.events import (
    EvaluationEnded,
    GatewayEffect,
    GatewayEvent,
    Reported,
    RosterBrought,
    TaskEnded,
    TaskSubmitted,
    UnmaskingEnded,
)
from broker.key_epochs import open_key_epochs
from broker.mailer import Mailer
from broker.open_round import CoreEffect, OpenRound
from broker.population import Population
from broker.records import (
    OPEN_ROUND,
    closing_changes,
    closing_of,
    encode_open,
    load_open,
    release_of,
)
from broker.refusals import Refusals
from broker.reports import (
    deposits_report,
    evaluation_report,
    gathering_report,
    left_open_report,
    phase_report,
    refused_report,
    round_report,
    task_ended_report,
    task_report,
    waiting_report,
)
from broker.round_opening import RoundOpener
from broker.settings import GatewaySettings, LedgerStore
from broker.task_state import RUNNING, encode_task_state, task_key
from edgefl.errors import BudgetExhausted, ConfigError, RemoteProtocolError, WireError
from edgefl.protocol import topics
from edgefl.protocol.envelope import (
    AGGREGATOR,
    Header,
    open_envelope,
    require_device_message,
)
from edgefl.protocol.epoch_messages import EPOCH_DEVICE_MESSAGES
from edgefl.protocol.events import (
    AggregatorEvent,
    Cancelled,
    Charge,
    Charged,
    DeviceOffline,
    DeviceOnline,
    DeviceSaid,
    PhaseChanged,
    RoundFinished,
)
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import RoundReport
from edgefl.protocol.service_messages import Blob, GetBlob, Hello, Receipt, Rejection
from edgefl.storage.base import KeyValueStore
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish
from edgefl.types import DeviceId

_EPOCH = "epoch"
_STATUS_OFFLINE = b"offline"


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
        """Read the durable state; a round that a crash left open is aborted by name.

        Raises:
            StorageError: The state is damaged.
        """
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._mailer = Mailer(settings.fleet, settings.signing_key)
        self._population = Population(store.namespace("population"), grace_s=settings.grace_s)
        self._epoch = int.from_bytes(store.get(_EPOCH) or b"", "big") + 1
        self._key_epochs = open_key_epochs(settings, store, entropy, self._mailer)
        self._opener = RoundOpener(
            settings=settings,
            store=store,
            entropy=entropy,
            mailer=self._mailer,
            key_epochs=self._key_epochs,
        )
        self._desk = self._opener.desk
        self._left_open = load_open(store)
        store.put_many({_EPOCH: self._epoch.to_bytes(8, "big"), OPEN_ROUND: None})
        self._tasks: list[ActiveTask] = []
        self._round: OpenRound | None = None
        self._blobs: dict[bytes, bytes] = {}
        self._open_at_s: float | None = None
        self._gather_until_s: float | None = None
        self._not_before_s = 0.0
        self._next_notice_s: float | None = None
        self._is_linked = False
        self._refusals = Refusals()
        self._requests = EnrolmentRequests(self._key_epochs.enrolment)

    # ------------------------------------------------------------ public

    @property
    def topics(self) -> tuple[str, ...]:
        """Filters that the shell subscribes to."""
        return topics.of_aggregator(self._settings.fleet)

    @property
    def wakeup_s(self) -> float | None:
        """When `Woken` is wanted."""
        wishes = [
            self._population.wakeup_s,
            self._next_notice_s,
            self._refusals.wakeup_s,
            self._requests.due_s,
        ]
        if self._is_linked:  # Without a link these would be granted at once, for ever.
            wishes.append(self._open_at_s if self._round is None else self._round.wakeup_s)
            wishes.append(self._key_epochs.wakeup_s)
        return min((wish for wish in wishes if wish is not None), default=None)

    @property
    def online(self) -> set[str]:
        """Devices that are online."""
        return self._population.online()

    def handle(self, event: GatewayEvent, now_s: float) -> list[GatewayEffect]:
        """Take one event and return what to do, in order. A peer's bytes raise nothing."""
        effects = self._dispatch(event, now_s)
        if self._requests.is_due(now_s):
            effects += self._requests.look(self._population.keys, now_s)
        effects += self._maybe_open_round(now_s)
        return self._refusals.thin_out(effects, now_s)

    def _dispatch(self, event: GatewayEvent, now_s: float) -> list[GatewayEffect]:
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
            is_current = self._round is not None and self._round.call.attempt == event.attempt
            return self._feed(event.result, now_s) if is_current else []
        if isinstance(event, EvaluationEnded):
            return [evaluation_report(event)]
        if isinstance(event, RosterBrought):
            effects = self._key_epochs.on_roster(event.content, now_s)
            self._population.follow(self._key_epochs.enrolment.identity_keys)
            return effects
        return self._on_woken(now_s)

    # ------------------------------------------------------------ link and time

    def _on_link(self, now_s: float) -> list[GatewayEffect]:
        self._is_linked = True
        # The broker may have forgotten everybody: whoever is not heard soon counts as gone.
        self._population.doubt_all(now_s, self._settings.relink_s)
        status = self._status()
        left, self._left_open = self._left_open, None
        if left is None:
            return [status]
        return [status, left_open_report(left.task, left.round_number, left.attempt, left.phase)]

    def _status(self) -> Publish:
        return self._mailer.status(
            epoch=self._epoch, least_agent_version=self._settings.least_agent_version
        )

    def _on_own_status(self, payload: bytes) -> list[GatewayEffect]:
        """Say again who the gateway is, where others or its own will said something else."""
        status = self._status()
        return [] if payload == status.payload else [status]

    def _on_woken(self, now_s: float) -> list[GatewayEffect]:
        effects: list[GatewayEffect] = []
        for device in self._population.take_gone(now_s):
            effects.append(Reported(kind="device-offline", fields={"device": device}))
            effects += self._key_epochs.on_gone(device, now_s)
            effects += self._feed(DeviceOffline(device=device), now_s)
        if self._is_linked:
            effects += self._key_epochs.wake(now_s)
        if self._round is not None and self._is_linked:
            effects += self._settle(self._round.wake(now_s), now_s)
        return [*effects, *self._notice(now_s)]

    def _notice(self, now_s: float) -> list[GatewayEffect]:
        """Say what is waited for, when a wait is long."""
        if not self._tasks:
            self._next_notice_s = None
            return []
        is_due = self._next_notice_s is not None and now_s >= self._next_notice_s
        if is_due or self._next_notice_s is None:
            self._next_notice_s = now_s + self._settings.notice_s
        if not is_due:
            return []
        if self._round is None:
            needed = self._tasks[0].needs_online
            if self._desk.wakeup_s is not None:
                return [deposits_report(self._desk.count(self.online), needed)]
            eligible = self._key_epochs.eligible(self._population.keys, self.online)
            return [gathering_report(len(eligible), needed)]
        return [waiting_report(self._round.machine)]

    # ------------------------------------------------------------ devices

    def _on_arrived(self, event: Arrived, now_s: float) -> list[GatewayEffect]:
        if event.topic == topics.aggregator(self._settings.fleet):
            return self._on_own_status(event.payload)
        try:
            device = topics.device_of(event.topic)
            if event.topic == topics.status(self._settings.fleet, device):
                return self._on_status(device, event.payload, now_s)
            return self._on_uplink(device, event, now_s)
        except (WireError, RemoteProtocolError) as error:
            return [refused_report(error.code, event.topic)]

    def _on_status(self, device: DeviceId, payload: bytes, now_s: float) -> list[GatewayEffect]:
        if payload == _STATUS_OFFLINE:
            self._population.is_leaving(device, now_s)
            return []
        return self._on_heard(device, now_s)

    def _on_heard(self, device: str, now_s: float) -> list[GatewayEffect]:
        if not self._population.is_heard(device):
            return []
        return self._feed(DeviceOnline(device=device), now_s)

    def _on_uplink(self, device: DeviceId, event: Arrived, now_s: float) -> list[GatewayEffect]:
        envelope = open_envelope(event.topic, event.payload)
        message = require_device_message(envelope.message)
        if envelope.header.sender != device:
            raise WireError("E-WIRE-SENDER", "the sender that the topic names", "another")
        if isinstance(message, Hello):
            envelope.require_signed_by(message.identity_key)
            self._mailer.count_up(device, len(event.payload))
            return self._on_hello(device, message, event.payload, now_s)
        key = self._population.key_of(device)
        if key is None:
            return []  # Its hello got lost; it says hello again at the next connection.
        envelope.require_signed_by(key)
        self._mailer.count_up(device, len(event.payload))
        effects = self._on_heard(device, now_s)
        if isinstance(message, GetBlob):
            content = self._blobs.get(message.sha256)
            blob = None if content is None else Blob(content=content)
            return [*effects, *([] if blob is None else [self._mailer.to_device(device, blob)])]
        cohort = None if self._round is None else self._round.machine.population
        attempt = envelope.header.attempt
        is_settled, told = self._desk.receive(device, attempt, message, cohort)
        effects += told
        if isinstance(message, EPOCH_DEVICE_MESSAGES):
            effects += self._key_epochs.on_message(device, message, now_s)
        elif attempt > 0:
            effects += self._on_round_message(device, envelope.header, message, now_s)
        if not is_settled:
            return effects
        receipt = Receipt(digest=hashlib.sha256(event.payload).digest())
        return [*effects, self._mailer.to_device(device, receipt)]

    def _on_hello(
        self, device: DeviceId, message: Hello, payload: bytes, now_s: float
    ) -> list[GatewayEffect]:
        least, enrolment = self._settings.least_agent_version, self._key_epochs.enrolment
        digest = hashlib.sha256(payload).digest()
        admitted = admit(device, message, digest, self._population, enrolment, least)
        if isinstance(admitted, Rejection):
            return [self._mailer.to_device(device, admitted)]
        effects: list[GatewayEffect] = [self._mailer.to_device(device, Receipt(digest=digest))]
        if admitted:
            effects.append(Reported(kind="device-new", fields={"device": device}))
        self._requests.note_hello()
        effects += self._on_heard(device, now_s)
        self._population.note_backend(device, message.backend)
        effects += self._key_epochs.on_hello(device, message, now_s)
        if self._round is not None and device in self._round.machine.waiting_for():
            effects += self._settle(self._round.remind(device, now_s), now_s)
        return effects

    def _on_round_message(
        self, device: DeviceId, header: Header, message: DeviceMessage, now_s: float
    ) -> list[GatewayEffect]:
        current = self._round
        if current is None or header.attempt != current.call.attempt:
            closed = closing_of(self._store, header.attempt, device)
            answer = Header(
                session_id=header.session_id,
                round_number=header.round_number,
                attempt=header.attempt,
                sender=AGGREGATOR,
            )
            return [self._mailer.to_device(device, closed, answer)]
        if device not in current.machine.population:
            return []
        self._key_epochs.on_round_message(device, message)
        said = DeviceSaid(device=device, session_id=header.session_id, message=message)
        try:
            return self._feed(said, now_s)
        except RemoteProtocolError as error:
            removed = current.remove(device, DropReason.BAD_MESSAGE, now_s)
            return [refused_report(error.code, device), *self._settle(removed, now_s)]

    # ------------------------------------------------------------ tasks

    def _on_task(self, event: TaskSubmitted, now_s: float) -> list[GatewayEffect]:
        if any(task.spec.name == event.spec.name for task in self._tasks):
            return []
        task = take_up(event, self._store)
        spec, state = task.spec, task.state
        # After a crash the task's folder may lack the newest model: hand it out once more.
        kept: list[GatewayEffect] = [task.model_changed()] if state.committed else []
        if state.outcome != RUNNING:
            reason = "ended before this start"
            return [*kept, TaskEnded(task=spec.name, outcome=state.outcome, reason=reason)]
        self._next_notice_s = now_s + self._settings.notice_s
        self._tasks.append(task)
        return [*kept, task_report(spec, task.privacy, state.committed)]

    def _end_task(self, task: ActiveTask, outcome: str, reason: str) -> list[GatewayEffect]:
        task.state = task.state.ended(outcome)
        self._store.put(task_key(task.spec.name), encode_task_state(task.state))
        self._tasks.remove(task)
        self._open_at_s = None
        return [
            TaskEnded(task=task.spec.name, outcome=outcome, reason=reason),
            task_ended_report(task.spec.name, outcome, reason, task.state.committed),
        ]

    # ------------------------------------------------------------ opening a round

    def _maybe_open_round(self, now_s: float) -> list[GatewayEffect]:
        if self._round is not None or not self._tasks or not self._is_linked:
            return []
        task = self._tasks[0]
        missing = min(len(self._population.keys), task.spec.cohort) - len(self.online)
        if len(self.online) < task.needs_online:
            # No wish to be woken stays behind: a past one would be granted at once, for ever.
            self._gather_until_s = self._open_at_s = None
            return []
        if self._gather_until_s is None:
            self._gather_until_s = now_s + self._settings.gather_s
        due_s = self._gather_until_s if missing > 0 else now_s
        self._open_at_s = max(due_s, self._not_before_s)
        if now_s < self._open_at_s:
            return []
        self._open_at_s = None
        known, online = self._population.keys, self.online
        try:
            readiness, effects = self._opener.prepare(task, known, online, now_s)
            if readiness is Readiness.READY:
                self._gather_until_s = None
                return [*effects, *self._open_round(task, now_s)]
        except ConfigError as error:  # No committee or thresholds over the members there are.
            return self._end_task(task, "failed", str(error))
        if readiness is Readiness.TOO_FEW:
            return [*effects, *self._on_too_few_deposits(task, now_s)]
        self._open_at_s = self._desk.wakeup_s
        return effects

    def _on_too_few_deposits(self, task: ActiveTask, now_s: float) -> list[GatewayEffect]:
        report = deposits_report(self._desk.count(self.online), task.needs_online)
        self._desk.give_up_index()
        task.attempts += 1
        ended = self._after_failure(task, TOO_FEW_DEPOSITS, now_s)
        self._open_at_s = None if ended else self._not_before_s
        return [report, *ended]

    def _open_round(self, task: ActiveTask, now_s: float) -> list[GatewayEffect]:
        spec = task.spec
        try:
            next_rdp = task.privacy.rdp_per_round()
            self._ledger.ledger.admit(next_rdp, spec.epsilon_budget, spec.delta)
        except BudgetExhausted as error:
            return self._end_task(task, "budget", str(error))
        opened = self._opener.open(
            task, online=self.online, ledger_head=self._ledger.ledger.head, now_s=now_s
        )
        if opened is None:
            return []  # The next key epoch is due, and this is asked again when it is open.
        self._blobs = task.blobs()
        self._next_notice_s = now_s + self._settings.notice_s
        self._round = opened
        return self._settle(opened.begin(now_s), now_s)

    # ------------------------------------------------------------ the round's effects

    def _feed(self, event: AggregatorEvent, now_s: float) -> list[GatewayEffect]:
        if self._round is None:
            return []
        return self._settle(self._round.handle(event, now_s), now_s)

    def _settle(
        self, effects: list[GatewayEffect | CoreEffect], now_s: float
    ) -> list[GatewayEffect]:
        """Carry out what the round leaves to the core, in order."""
        out: list[GatewayEffect] = []
        for effect in effects:
            if isinstance(effect, Charge):
                out += self._charge(effect, now_s)
            elif isinstance(effect, PhaseChanged):
                out += self._on_phase(effect, now_s)
            elif isinstance(effect, RoundFinished):
                out += self._on_finished(effect, now_s)
            else:
                out.append(effect)
        return out

    def _charge(self, effect: Charge, now_s: float) -> list[GatewayEffect]:
        """Write the ledger row before anything can be unmasked."""
        spec, release = self._tasks[0].spec, release_of(effect)
        try:
            self._ledger.ledger.admit(release.rdp, spec.epsilon_budget, spec.delta)
        except BudgetExhausted:
            return self._feed(Cancelled(reason=AbortReason.BUDGET_EXHAUSTED), now_s)
        self._ledger.append(release)
        return self._feed(Charged(), now_s)

    def _on_phase(self, effect: PhaseChanged, now_s: float) -> list[GatewayEffect]:
        if self._round is None:
            return []
        self._store.put(OPEN_ROUND, encode_open(self._round.call, effect.phase))
        self._next_notice_s = now_s + self._settings.notice_s
        return [phase_report(self._round.machine, effect.phase, effect.needed)]

    def _on_finished(self, effect: RoundFinished, now_s: float) -> list[GatewayEffect]:
        task, report = self._tasks[0], effect.report
        self._round = None
        changes = closing_changes(report)
        effects: list[GatewayEffect] = []
        if task.commit(effect):
            changes[task_key(task.spec.name)] = encode_task_state(task.state)
            effects.append(task.model_changed())
        self._store.put_many(changes)
        effects.append(
            round_report(
                report,
                spec=task.spec,
                privacy=task.privacy,
                ledger=self._ledger.ledger,
                mean_bytes=self._mailer.mean_bytes(),
                backends=self._population.backends(report.survivors),
            )
        )
        return [*effects, *self._after_round(task, report, now_s)]

    def _after_round(
        self, task: ActiveTask, report: RoundReport, now_s: float
    ) -> list[GatewayEffect]:
        if report.abort_reason is AbortReason.BUDGET_EXHAUSTED:
            return self._end_task(task, "budget", "the privacy budget is spent")
        if task.state.committed >= task.spec.rounds:
            return self._end_task(task, "done", f"{task.spec.rounds} rounds")
        if report.outcome is Phase.ABORTED:
            return self._after_failure(task, report.abort_reason.name, now_s)
        return []

    def _after_failure(self, task: ActiveTask, reason: str, now_s: float) -> list[GatewayEffect]:
        if task.attempts >= task.spec.max_attempts:
            reason = f"{task.attempts} attempts at one round: {reason}"
            return self._end_task(task, "failed", reason)
        # Whatever it was gets time to pass.
        self._not_before_s = now_s + self._settings.pause_s
        return []
