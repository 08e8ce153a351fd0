"""The gateway without its shell: takes events and the time, keeps durable state, returns effects.

The same class runs on a gateway (`broker.runtime`) and in the simulator (`firmware_sim`). It joins
the rooms: `uplinks.py` (what devices send), `population.py` (who is there), `key_epochs.py`,
`task_book.py` and `round_driver.py`.
"""

from collections.abc import Set

from broker.active_task import ActiveTask
from broker.admissions import Admissions, open_desk
from broker.cohorts import Cohorts
from broker.enrolment_events import EnrolmentEvent
from broker.enrolment_requests import EnrolmentRequests
from broker.enrolments import Enrolments
from broker.events import (
    EvaluationEnded,
    GatewayEffect,
    GatewayEvent,
    Reported,
    RosterBrought,
    TaskSubmitted,
    TaskWished,
    UnmaskingEnded,
    UploadMoved,
)
from broker.history import NAMESPACE, GatewayWords, RoundHistory
from broker.key_epochs import KeyEpochs, open_key_epochs
from broker.left_round import LeftRound
from broker.mailer import Mailer
from broker.notices import Notices
from broker.open_round import OpenRound
from broker.population import Population
from broker.refusals import DEVICE_LINES, LINES_IN_ALL, Refusals
from broker.reports import evaluation_report, task_wish_report
from broker.round_driver import RoundDriver
from broker.round_opening import RoundOpener
from broker.settings import GatewaySettings, LedgerStore
from broker.sightings import Sightings
from broker.task_book import EndedTask, TaskBook
from broker.task_wishes import TaskWish
from broker.uplinks import Uplinks, acknowledge
from broker.uploads import Uploads, stage_for
from edgefl.privacy.ledger import Ledger
from edgefl.protocol import topics
from edgefl.protocol.events import DeviceOffline
from edgefl.protocol.identity import EntropySource
from edgefl.storage.base import KeyValueStore
from edgefl.transfer.stage import Stage
from edgefl.transport.core_events import Arrived, LinkLost, LinkRestored, Publish

_EPOCH = "epoch"


class GatewayCore:
    """The aggregator's side of a fleet.

    Args:
        settings: Identity, fleet, patience.
        store: Durable state.
        ledger: The privacy ledger.
        entropy: Fresh nonces.
        stage: Where chunks of uploads go, if an endpoint in this process fills it.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        store: KeyValueStore,
        ledger: LedgerStore,
        entropy: EntropySource,
        stage: Stage | None = None,
    ) -> None:
        """Read the durable state.

        A round that a crash left open is resumed, if its task is handed in before the first
        `LinkRestored`; else it is aborted by name.

        Raises:
            StorageError: The state is damaged.
        """
        self._settings = settings
        self._ledger = ledger
        self._mailer = Mailer(
            settings.fleet,
            settings.signing_key,
            chunk_bytes=settings.chunk_bytes,
            streams_chunks=settings.streams_chunks,
        )
        self._population = Population(
            store.namespace("population"),
            grace_s=settings.grace_s,
            wall_clock_s=settings.wall_clock_s,
        )
        self._epoch = int.from_bytes(store.get(_EPOCH) or b"", "big") + 1
        self._key_epochs = open_key_epochs(settings, store, entropy, self._mailer)
        cohorts = Cohorts(store, self._population)
        opener = RoundOpener(
            settings=settings,
            store=store,
            entropy=entropy,
            mailer=self._mailer,
            key_epochs=self._key_epochs,
            cohorts=cohorts,
        )
        store.put(_EPOCH, self._epoch.to_bytes(8, "big"))
        self._tasks = TaskBook(store)
        self._notices = Notices(settings.notice_s)
        self._history = RoundHistory(store.namespace(NAMESPACE))
        is_automatic = self._key_epochs.enrolment.is_automatic
        self._history.note_gateway(GatewayWords(fleet=settings.fleet, is_automatic=is_automatic))
        self._sightings = Sightings()
        self._is_linked = False
        self._told_most_sleep_s = 0
        self._refusals = Refusals()
        self._device_lines = Refusals(DEVICE_LINES, lines_per_source=LINES_IN_ALL // 2)
        self._requests = EnrolmentRequests(self._key_epochs.enrolment)
        desk = open_desk(settings, store, self._mailer)
        self._rounds = RoundDriver(
            settings=settings,
            store=store,
            ledger=ledger,
            mailer=self._mailer,
            population=self._population,
            key_epochs=self._key_epochs,
            opener=opener,
            cohorts=cohorts,
            tasks=self._tasks,
            notices=self._notices,
            history=self._history,
        )
        self._left = LeftRound(
            settings=settings,
            store=store,
            opener=opener,
            rounds=self._rounds,
            history=self._history,
        )
        self._admissions = Admissions(
            desk,
            population=self._population,
            key_epochs=self._key_epochs,
            requests=self._requests,
            rounds=self._rounds,
        )
        self._uploads = Uploads(
            stage=stage_for(settings.uploads) if stage is None else stage,
            epoch=self._epoch,
            mailer=self._mailer,
            limits=settings.uploads,
        )
        self._uplinks = Uplinks(
            settings=settings,
            mailer=self._mailer,
            population=self._population,
            key_epochs=self._key_epochs,
            requests=self._requests,
            opener=opener,
            rounds=self._rounds,
            sightings=self._sightings,
            admissions=self._admissions,
            uploads=self._uploads,
        )

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
            self._notices.wakeup_s,
            self._refusals.wakeup_s,
            self._device_lines.wakeup_s,
            self._requests.due_s,
        ]
        if self._is_linked:  # Without a link these would be granted at once, for ever.
            wishes += [self._rounds.wakeup_s, self._key_epochs.wakeup_s]
            wishes += [self._uploads.wakeup_s, self._mailer.downloads.wakeup_s]
        return min((wish for wish in wishes if wish is not None), default=None)

    @property
    def online(self) -> Set[str]:
        """Devices that are online."""
        return self._population.online()

    @property
    def population(self) -> Population:
        """Who is known, and online; for reading."""
        return self._population

    @property
    def key_epochs(self) -> KeyEpochs:
        """The fleet's key epochs; for reading."""
        return self._key_epochs

    @property
    def tasks(self) -> tuple[ActiveTask, ...]:
        """The tasks that are worked on, in their order; for reading."""
        return self._tasks.all

    @property
    def ended_tasks(self) -> tuple[EndedTask, ...]:
        """The tasks that are over; for reading."""
        return self._tasks.ended

    def transfer_counts(self) -> dict[str, int]:
        """Return how many transfers go on, by their kind; for reading."""
        uploads = self._uploads
        return {
            "uploads_active": uploads.active_count,
            "uploads_waiting": uploads.waiting_count,
            "chunks_refused": sum(uploads.refused_chunks.values()),
            "downloads_active": self._mailer.downloads.active_count,
        }

    def is_paused(self, task: str) -> bool:
        """Tell whether a task waits for its operator; for reading."""
        return self._tasks.is_paused(task)

    @property
    def waiting(self) -> Reported | None:
        """What is waited for; None without a task; for reading."""
        notice = self._rounds.waiting_notice()
        return notice if isinstance(notice, Reported) else None

    @property
    def open_round(self) -> OpenRound | None:
        """The round that is open; for reading."""
        return self._rounds.current

    @property
    def is_linked(self) -> bool:
        """Whether the broker is reached."""
        return self._is_linked

    @property
    def ledger(self) -> Ledger:
        """The privacy ledger; for reading."""
        return self._ledger.ledger

    @property
    def history(self) -> RoundHistory:
        """How rounds closed; for reading."""
        return self._history

    @property
    def enrolments(self) -> Enrolments | None:
        """Who was let in; None where everybody is; for reading."""
        return None if self._admissions.desk is None else self._admissions.desk.enrolments

    @property
    def behind_count(self) -> int:
        """How many devices are not known to trust the present authorities."""
        return 0 if self._admissions.desk is None else self._admissions.desk.behind_count()

    @property
    def sightings(self) -> Sightings:
        """How devices were last seen; for reading."""
        return self._sightings

    def handle(self, event: GatewayEvent, now_s: float) -> list[GatewayEffect]:
        """Take one event and return what to do, in order. A peer's bytes raise nothing."""
        self._mailer.at(now_s)
        effects = self._dispatch(event, now_s)
        effects += self._mailer.downloads.take_reports()
        self._population.keep_sleepers(now_s)
        if self._requests.is_due(now_s):
            effects += self._requests.look(self._population.keys, now_s, self._admissions.leaving)
        if self._is_linked:
            effects += self._tell_most_sleep(now_s)
            effects += self._rounds.maybe_open(now_s)
        thinned = self._device_lines.thin_out(effects, now_s)
        return self._refusals.thin_out(thinned, now_s)

    def _dispatch(self, event: GatewayEvent, now_s: float) -> list[GatewayEffect]:
        if isinstance(event, Arrived):
            return self._on_arrived(event, now_s)
        if isinstance(event, UploadMoved):
            return self._uplinks.on_moved(event.device, event.transfer_id, now_s)
        if isinstance(event, LinkRestored):
            self._mailer.downloads.on_link(event.max_packet_bytes, now_s)
            return self._on_link(now_s)
        if isinstance(event, LinkLost):
            self._is_linked = False
            return []
        if isinstance(event, TaskSubmitted | TaskWished):
            return self._on_task(event, now_s)
        if isinstance(event, UnmaskingEnded):
            return self._rounds.on_unmasked(event.attempt, event.result, now_s)
        if isinstance(event, EvaluationEnded):
            self._history.note_metric(event)
            return [evaluation_report(event)]
        if isinstance(event, RosterBrought):
            effects = self._key_epochs.on_roster(event.content, now_s)
            self._population.follow(self._key_epochs.enrolment.identity_keys)
            return effects
        if isinstance(event, EnrolmentEvent):
            return self._admissions.handle(event, now_s)
        return self._on_woken(now_s)

    # ------------------------------------------------------------ link

    def _on_link(self, now_s: float) -> list[GatewayEffect]:
        self._is_linked = True
        # The broker may have forgotten everybody: whoever is not heard soon counts as gone.
        self._population.doubt_all(now_s, self._settings.relink_s)
        self._population.recall_sleepers(now_s)
        self._population.count_on_sleepers_until(now_s + self._tasks.most_sleep_s)
        status = self._status()
        return [status, *self._left.settle(now_s)]

    def _status(self) -> Publish:
        self._told_most_sleep_s = self._tasks.most_sleep_s
        return self._mailer.status(
            epoch=self._epoch,
            least_agent_version=self._settings.least_agent_version,
            most_sleep_s=self._told_most_sleep_s,
            moved_to=self._settings.moved_to,
        )

    def _tell_most_sleep(self, now_s: float) -> list[GatewayEffect]:
        """Say the status again where another task has other deadlines."""
        if self._told_most_sleep_s == self._tasks.most_sleep_s:
            return []
        self._population.count_on_sleepers_until(now_s + self._tasks.most_sleep_s)
        return [self._status()]

    def _on_arrived(self, event: Arrived, now_s: float) -> list[GatewayEffect]:
        if event.topic != topics.aggregator(self._settings.fleet):
            return self._uplinks.on_arrived(event, now_s)
        # Say again who the gateway is, where others or its own will said something else.
        status = self._status()
        return [*acknowledge(event), *([] if event.payload == status.payload else [status])]

    # ------------------------------------------------------------ time and tasks

    def _on_woken(self, now_s: float) -> list[GatewayEffect]:
        effects: list[GatewayEffect] = []
        for device in self._population.take_gone(now_s):
            effects.append(Reported(kind="device-offline", fields={"device": device}))
            self._mailer.downloads.gone(device)
            effects += self._key_epochs.on_gone(device, now_s)
            effects += self._rounds.feed(DeviceOffline(device=device), now_s)
        if self._is_linked:
            effects += self._key_epochs.wake(now_s)
            effects += self._rounds.wake(now_s)
            effects += [*self._uploads.wake(now_s), *self._mailer.downloads.wake(now_s)]
        return [*effects, *self._notice(now_s)]

    def _notice(self, now_s: float) -> list[GatewayEffect]:
        if self._tasks.current is None:
            self._notices.stop()
            return []
        notice = self._rounds.waiting_notice() if self._notices.take_due(now_s) else None
        return [] if notice is None else [notice]

    def _on_task(self, event: TaskSubmitted | TaskWished, now_s: float) -> list[GatewayEffect]:
        if isinstance(event, TaskWished):
            return self._on_wish(event, now_s)
        if self._tasks.current is None:
            self._notices.restart(now_s)
        effects, name = self._tasks.take_up(event), event.spec.name
        if self._tasks.is_cancelled(name):
            return [*effects, *self._rounds.cancel(name, now_s)]
        task = self._tasks.find(name) if self._left.is_of(name) else None
        if task is not None and self._left.take_up(task, now_s):
            self._tasks.put_first(task)
        return effects

    def _on_wish(self, event: TaskWished, now_s: float) -> list[GatewayEffect]:
        is_news = self._tasks.find(event.task) is not None
        self._tasks.wish(event.task, event.wish)
        if self._tasks.current is not None:
            self._notices.restart(now_s)
        told = [task_wish_report(event.task, event.wish)] if is_news else []
        if event.wish is TaskWish.CANCEL:
            return [*told, *self._rounds.cancel(event.task, now_s)]
        return [*told]
