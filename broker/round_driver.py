"""Runs rounds one after the other: opens, feeds, charges and closes them."""

from broker.active_task import ActiveTask
from broker.cohorts import Cohorts
from broker.deposits import TOO_FEW_DEPOSITS, Readiness
from broker.events import GatewayEffect
from broker.history import RoundHistory, members_of
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from broker.notices import Notices
from broker.open_round import CoreEffect, OpenRound
from broker.population import Population
from broker.records import OPEN_ROUND, closing_changes, closing_of, encode_open, release_of
from broker.reports import (
    deposits_report,
    gathering_report,
    phase_report,
    refused_report,
    round_report,
    waiting_report,
)
from broker.round_opening import RoundOpener
from broker.round_record import aborted_round, closed_round, spend_of
from broker.selection import claimed_rate, expected_size
from broker.settings import GatewaySettings, LedgerStore
from broker.sum_pause import sum_pause_s
from broker.task_book import TaskBook
from broker.task_state import encode_task_state, task_key
from edgefl.errors import BudgetExhausted, ConfigError, RemoteProtocolError
from edgefl.protocol.envelope import AGGREGATOR, Header
from edgefl.protocol.events import (
    AggregatorEvent,
    Cancelled,
    Charge,
    Charged,
    DeviceSaid,
    PhaseChanged,
    RoundFinished,
    Unmasked,
)
from edgefl.protocol.messages import DeviceMessage
from edgefl.protocol.reasons import AbortReason, DropReason, Phase
from edgefl.protocol.report import RoundReport
from edgefl.storage.base import KeyValueStore


class RoundDriver:
    """The round that is open, if one is, and when the next one may be.

    Args:
        settings: Patience.
        store: Durable state of the gateway.
        ledger: The privacy ledger.
        mailer: Addresses the messages.
        population: Who is known, and online.
        key_epochs: The fleet's key epochs.
        opener: Numbers rounds, and opens them.
        cohorts: Learns from rounds that are over.
        tasks: What rounds are for.
        notices: When a long wait is reported.
        history: Keeps how rounds closed.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        store: KeyValueStore,
        ledger: LedgerStore,
        mailer: Mailer,
        population: Population,
        key_epochs: KeyEpochs,
        opener: RoundOpener,
        cohorts: Cohorts,
        tasks: TaskBook,
        notices: Notices,
        history: RoundHistory,
    ) -> None:
        """Start without a round."""
        self._settings = settings
        self._store = store
        self._ledger = ledger
        self._mailer = mailer
        self._population = population
        self._key_epochs = key_epochs
        self._opener = opener
        self._cohorts = cohorts
        self._desk = opener.desk
        self._tasks = tasks
        self._notices = notices
        self._history = history
        self._round: OpenRound | None = None
        self._blobs: dict[bytes, bytes] = {}
        self._open_at_s: float | None = None
        self._gather_until_s: float | None = None
        self._not_before_s = 0.0
        self._held: list[GatewayEffect] = []
        self._sum_due_s: float | None = None

    # ------------------------------------------------------------ what others ask

    @property
    def current(self) -> OpenRound | None:
        """The round that is open."""
        return self._round

    @property
    def wakeup_s(self) -> float | None:
        """When `wake` or `maybe_open` is wanted."""
        if self._round is None:
            return self._open_at_s
        wishes = (self._round.wakeup_s, self._sum_due_s)
        return min((wish for wish in wishes if wish is not None), default=None)

    @property
    def most_sleep_s(self) -> int:
        """For how long a device may be without a link and miss nothing."""
        return self._tasks.most_sleep_s

    def is_open_for(self, device: str, attempt: int) -> bool:
        """Tell whether a device may have something to say in an attempt."""
        current = self._round
        if current is None or current.call.attempt != attempt:
            return False
        return device in current.machine.population

    def blob(self, sha256: bytes) -> bytes | None:
        """Return what the newest round's devices may ask for."""
        return self._blobs.get(sha256)

    def waiting_notice(self) -> GatewayEffect | None:
        """Return what is waited for; None without a task."""
        task = self._tasks.current
        if task is None:
            return None
        if self._round is not None:
            return waiting_report(self._round.machine)
        if self._desk.wakeup_s is not None:
            return deposits_report(self._desk.count(self._population.ready()), task.needs_online)
        eligible = self._key_epochs.eligible(self._population.keys, self._population.ready())
        return gathering_report(len(eligible), task.needs_online)

    @property
    def _task_of_round(self) -> ActiveTask | None:
        """The task of the open round, which may be paused by now."""
        return None if self._round is None else self._tasks.find(self._round.call.task)

    # ------------------------------------------------------------ what happens

    def wake(self, now_s: float) -> list[GatewayEffect]:
        """Go on where the time is up."""
        return [] if self._round is None else self._settle(self._round.wake(now_s), now_s)

    def until_stored(self, effects: list[GatewayEffect]) -> list[GatewayEffect]:
        """Return receipts for masked inputs, or hold them back until the sum is stored with them.

        A sum is stored as a whole. Storing it for each input would wear out a board's flash.
        """
        if self._round is None or not self._round.machine.has_unsaved_inputs:
            return effects
        self._held += effects
        return []

    # ------------------------------------------------------------ after a restart

    def adopt(self, opened: OpenRound, task: ActiveTask) -> None:
        """Take a round of an earlier life; `resume` goes on with it."""
        self._round = opened
        self._blobs = task.blobs()

    def resume(self, now_s: float) -> list[GatewayEffect]:
        """Go on with the round that was adopted: its devices have a while to come back."""
        if self._round is None:
            return []
        devices = self._round.machine.population
        self._population.presume(devices, now_s, self._settings.relink_s)
        self._notices.restart(now_s)
        return self._settle(self._round.resume(now_s), now_s)

    def feed(self, event: AggregatorEvent, now_s: float) -> list[GatewayEffect]:
        """Tell the open round, if there is one.

        Raises:
            RemoteProtocolError: A device broke the protocol.
        """
        if self._round is None:
            return []
        return self._settle(self._round.handle(event, now_s), now_s)

    def expel(self, device: str, now_s: float) -> list[GatewayEffect]:
        """Wait no more for a device that is out; what it gave before stays in the sum."""
        current = self._round
        if current is None or device not in current.machine.population:
            return []
        return self._settle(current.remove(device, DropReason.REVOKED, now_s), now_s)

    def on_unmasked(self, attempt: int, result: Unmasked, now_s: float) -> list[GatewayEffect]:
        """Take the result of the unmasking job; one of an earlier attempt changes nothing."""
        is_current = self._round is not None and self._round.call.attempt == attempt
        return self.feed(result, now_s) if is_current else []

    def remind_if_waited_for(self, device: str, now_s: float) -> list[GatewayEffect]:
        """Send a device that is back what the round waits for it to answer."""
        if self._round is None or device not in self._round.machine.waiting_for():
            return []
        return self._settle(self._round.remind(device, now_s), now_s)

    def on_message(
        self, device: str, header: Header, message: DeviceMessage, now_s: float
    ) -> list[GatewayEffect]:
        """Take a message that names an attempt; one of another attempt is told how that closed."""
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
            return self.feed(said, now_s)
        except RemoteProtocolError as error:
            removed = current.remove(device, DropReason.BAD_MESSAGE, now_s)
            return [refused_report(error.code, device), *self._settle(removed, now_s)]

    # ------------------------------------------------------------ opening a round

    def maybe_open(self, now_s: float) -> list[GatewayEffect]:
        """Open the next round, if it is time."""
        task = self._tasks.current
        if self._round is not None:
            return []
        if task is None:  # As below.
            self._gather_until_s = self._open_at_s = None
            return []
        known, online = self._population.keys, self._population.ready()
        missing = min(len(known), task.spec.cohort) - len(online)
        if len(online) < task.needs_online:
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
        try:
            has_sleepers = self._population.has_sleepers
            readiness, effects = self._opener.prepare(
                task, known, online, now_s, has_sleepers=has_sleepers
            )
            if readiness is Readiness.READY:
                self._gather_until_s = None
                return [*effects, *self._open(task, now_s)]
        except ConfigError as error:  # No committee or thresholds over the members there are.
            return self._end_task(task, "failed", str(error))
        if readiness is Readiness.TOO_FEW:
            return [*effects, *self._on_too_few_deposits(task, now_s)]
        self._open_at_s = self._desk.wakeup_s
        return effects

    def _on_too_few_deposits(self, task: ActiveTask, now_s: float) -> list[GatewayEffect]:
        have = self._desk.count(self._population.ready())
        report = deposits_report(have, task.needs_online)
        self._desk.give_up_index()
        task.attempts += 1
        self._history.close_round(
            aborted_round(
                task=task.spec.name,
                round_number=task.state.committed + 1,
                attempt=self._opener.use_up_attempt(),
                reason=AbortReason.TOO_FEW_CHECKED_IN,
                in_phase=Phase.CHECK_IN,
                found_at_s=self._settings.wall_clock_s(),
            )
        )
        ended = self._after_failure(task, TOO_FEW_DEPOSITS, now_s)
        self._open_at_s = None if ended else self._not_before_s
        return [report, *ended]

    def _open(self, task: ActiveTask, now_s: float) -> list[GatewayEffect]:
        spec = task.spec
        try:
            next_rdp = task.privacy.rdp_per_round()
            self._ledger.ledger.admit(next_rdp, spec.epsilon_budget, spec.delta)
        except BudgetExhausted as error:
            return self._end_task(task, "budget", str(error))
        head, online = self._ledger.ledger.head, self._population.ready()
        opened = self._opener.open(task, online=online, ledger_head=head, now_s=now_s)
        if opened is None:
            return []  # The next key epoch is due, and this is asked again when it is open.
        self._blobs = task.blobs()
        self._notices.restart(now_s)
        self._round = opened
        return self._settle(opened.begin(now_s), now_s)

    # ------------------------------------------------------------ the round's effects

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
        return [*out, *self._save(now_s)]

    def _save(self, now_s: float) -> list[GatewayEffect]:
        """Note what the round has accepted, and return the receipts that waited for it."""
        if self._round is not None:
            machine, due_s = self._round.machine, self._sum_due_s
            part = machine.take_journal(with_inputs=due_s is not None and now_s >= due_s)
            self._opener.round_store.save(part)
            if machine.has_unsaved_inputs:
                if due_s is None and machine.plan is not None:
                    self._sum_due_s = now_s + sum_pause_s(machine.plan.vector_bytes)
                return []
        self._sum_due_s = None
        released, self._held = self._held, []
        return released

    def _charge(self, effect: Charge, now_s: float) -> list[GatewayEffect]:
        """Write the ledger row before anything can be unmasked."""
        task, current = self._task_of_round, self._round
        if task is None or current is None:
            return []
        members = len(current.machine.population)
        rate = claimed_rate(task.spec, members=members, coin=current.call.coin)
        release = release_of(effect, rate)
        charged = self._ledger.ledger.release_of(release.session_id)
        if charged is not None:
            # An earlier life wrote the row and died before it could act on it.
            covers = all(now <= then for now, then in zip(release.rdp, charged.rdp, strict=True))
            lost = Cancelled(reason=AbortReason.GATEWAY_RESTARTED)
            return self.feed(Charged() if covers else lost, now_s)
        try:
            self._ledger.ledger.admit(release.rdp, task.spec.epsilon_budget, task.spec.delta)
        except BudgetExhausted:
            return self.feed(Cancelled(reason=AbortReason.BUDGET_EXHAUSTED), now_s)
        self._ledger.append(release)
        return self.feed(Charged(), now_s)

    def _on_phase(self, effect: PhaseChanged, now_s: float) -> list[GatewayEffect]:
        if self._round is None:
            return []
        self._store.put(OPEN_ROUND, encode_open(self._round.call, effect.phase))
        self._notices.restart(now_s)
        return [phase_report(self._round.machine, effect.phase, effect.needed)]

    def _on_finished(self, effect: RoundFinished, now_s: float) -> list[GatewayEffect]:
        task, report, current = self._task_of_round, effect.report, self._round
        self._round = None
        if task is None or current is None:
            return []
        self._cohorts.note(report, current.machine.limits)
        changes = closing_changes(report)
        effects: list[GatewayEffect] = []
        drawn = expected_size(current.call.coin, len(current.machine.population))
        if task.commit(effect, drawn):
            changes[task_key(task.spec.name)] = encode_task_state(task.state)
            effects.append(task.model_changed())
        self._store.put_many(changes)
        self._opener.round_store.clear()
        backends = self._population.backends(report.survivors)
        traffic = self._mailer.total_bytes()
        spend = spend_of(task.spec, task.privacy, self._ledger.ledger)
        record = closed_round(
            report,
            closed_at_s=self._settings.wall_clock_s(),
            traffic=traffic,
            spend=spend,
            backends=backends,
        )
        self._history.close_round(record, members_of(report))
        effects.append(
            round_report(
                report,
                delta=task.spec.delta,
                spend=spend,
                traffic=traffic,
                backends=backends,
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

    def cancel(self, name: str, now_s: float) -> list[GatewayEffect]:
        """End a task as its operator wants, and abort its open round by name."""
        effects: list[GatewayEffect] = []
        if self._round is not None and self._round.call.task == name:
            effects += self.feed(Cancelled(reason=AbortReason.CANCELLED), now_s)
        task = self._tasks.find(name)
        ended = [] if task is None else self._end_task(task, "cancelled", "by the operator")
        return [*effects, *ended]

    def _end_task(self, task: ActiveTask, outcome: str, reason: str) -> list[GatewayEffect]:
        self._open_at_s = None
        return self._tasks.end(task, outcome, reason)
