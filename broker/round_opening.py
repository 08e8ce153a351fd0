"""Open the next attempt at a round: number it, take its key index, choose its devices."""

from collections.abc import Mapping, Set

from broker.active_task import ActiveTask
from broker.cohorts import Cohorts
from broker.deposits import DepositDesk, Readiness, RoundIndex
from broker.events import GatewayEffect
from broker.key_epochs import KeyEpochs
from broker.mailer import Mailer
from broker.open_round import OpenRound
from broker.records import OPEN_ROUND, encode_open
from broker.round_store import Opening, RoundStore
from broker.selection import Choice
from broker.settings import GatewaySettings
from broker.task import TaskSpec
from edgefl.errors import ConfigError
from edgefl.privacy.sampling import ALWAYS
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.round_journal import JournalPart
from edgefl.protocol.round_messages import Call
from edgefl.storage.base import KeyValueStore

LAST_ATTEMPT = "last-attempt"


class RoundOpener:
    """Opens rounds of both modes, durably noted before anything of them is sent.

    Args:
        settings: Fleet and patience.
        store: Durable state of the gateway.
        entropy: Fresh nonces.
        mailer: Addresses the messages.
        key_epochs: The fleet's key epochs.
        cohorts: Chooses who is called.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        store: KeyValueStore,
        entropy: EntropySource,
        mailer: Mailer,
        key_epochs: KeyEpochs,
        cohorts: Cohorts,
    ) -> None:
        """Read the newest attempt; no number is given out twice."""
        self._settings = settings
        self._store = store
        self._entropy = entropy
        self._mailer = mailer
        self._key_epochs = key_epochs
        self._cohorts = cohorts
        self.desk = DepositDesk(
            store.namespace("deposits"),
            mailer=mailer,
            key_epochs=key_epochs,
            resend_s=settings.resend_s,
        )
        self._last_attempt = int.from_bytes(store.get(LAST_ATTEMPT) or b"", "big")
        self.round_store = RoundStore(store.namespace("round"))

    def prepare(
        self,
        task: ActiveTask,
        known: Mapping[str, bytes],
        online: Set[str],
        now_s: float,
        *,
        has_sleepers: bool,
    ) -> tuple[Readiness, list[GatewayEffect]]:
        """See to key epoch and deposits.

        Args:
            task: The task whose round is next.
            known: Identity key by device.
            online: Devices that are online.
            now_s: The time.
            has_sleepers: Some devices sleep: they have as long for new keys as for a phase.

        Returns:
            Whether the round can open, and what to do. Where it waits for deposits,
            `desk.wakeup_s` says until when.

        Raises:
            ConfigError: No committee withstands what the task assumes.
        """
        terms, needed = task.deposit_terms, task.needs_online
        self.desk.settle(terms, task.spec.cohort)
        least_answer_s = task.spec.shortest_phase_s if has_sleepers else 0.0
        can_open, effects = self._key_epochs.prepare(
            known, online, needed, now_s, least_answer_s=least_answer_s
        )
        if not can_open or terms is None:
            return Readiness.READY if can_open else Readiness.WAITING, effects
        readiness, calls = self.desk.prepare(
            terms, online=online, needed=needed, answer_s=task.spec.check_in_s, now_s=now_s
        )
        return readiness, [*effects, *calls]

    def open(
        self, task: ActiveTask, *, online: Set[str], ledger_head: str, now_s: float
    ) -> OpenRound | None:
        """Return the next attempt of a task, to be begun.

        Args:
            task: The task; the attempt is counted.
            online: Devices that are online.
            ledger_head: Hash of the newest ledger row.
            now_s: The time.

        Returns:
            None where there is no key index left: the next key epoch is due.

        Raises:
            ConfigError: No thresholds hold over the devices there are.
        """
        keys, index = self._key_epochs.keys, self.desk.take_index(task.deposit_terms)
        if keys is None or index is None:
            return None
        self._last_attempt += 1
        task.attempts += 1
        limits, nonce = self._cohorts.limits(task.spec), self._entropy.fresh_seed().export_bytes()
        choice = self._choose(task.spec, index, online, nonce)
        is_drawn = choice.coin != ALWAYS
        call = Call(
            task=task.spec.name,
            round_number=task.state.committed + 1,
            attempt=self._last_attempt,
            mode=index.mode,
            key_epoch=keys.epoch.key_epoch,
            key_index=index.key_index,
            nonce=nonce,
            closes_in_ms=int(limits.check_in_s * 1000),
            coin=choice.coin,
            draw=self._cohorts.draw(task.spec.name, self._last_attempt) if is_drawn else 0,
        )
        setup = task.setup(
            fleet=self._settings.fleet,
            call=call,
            keys=keys,
            population=choice.population,
            ledger_head=ledger_head,
            limits=limits,
        )
        machine = index.machine(setup, offline=frozenset(setup.population - online), now_s=now_s)
        self._store.put_many(
            {
                LAST_ATTEMPT: self._last_attempt.to_bytes(8, "big"),
                OPEN_ROUND: encode_open(call, machine.phase),
            }
        )
        self.round_store.begin(
            Opening(
                call=call,
                population=setup.population,
                ledger_head=setup.ledger_head,
                attempts=task.attempts,
                deposits=None if index.deposits is None else index.deposits.to_bytes(),
            )
        )
        self._mailer.reset_traffic()
        return OpenRound(
            machine, now_s=now_s, mailer=self._mailer, resend_s=self._settings.resend_s
        )

    def use_up_attempt(self) -> int:
        """Return the number of an attempt that ends before anybody is called, durably."""
        self._last_attempt += 1
        self._store.put(LAST_ATTEMPT, self._last_attempt.to_bytes(8, "big"))
        return self._last_attempt

    def resume(
        self, task: ActiveTask, opening: Opening, journal: JournalPart, now_s: float
    ) -> OpenRound:
        """Return the round that an earlier life of the gateway has opened, to be resumed.

        Args:
            task: Its task.
            opening: What it was opened with.
            journal: What it has accepted.
            now_s: The time.

        Raises:
            EdgeflError: The gateway has other keys, another model or another version since.
        """
        call, keys = opening.call, self._key_epochs.keys
        expected = (call.key_epoch, call.round_number)
        if keys is None or (keys.epoch.key_epoch, task.state.committed + 1) != expected:
            raise ConfigError(
                "E-ROUND-RESUME",
                f"key epoch {call.key_epoch} and round {call.round_number}",
                "another state of the fleet",
            )
        setup = task.setup(
            fleet=self._settings.fleet,
            call=call,
            keys=keys,
            population=opening.population,
            ledger_head=opening.ledger_head.hex(),
            limits=self._cohorts.limits(task.spec),
        )
        index = self.desk.resume_index(
            task.deposit_terms, call.key_index, opening.deposits, task.spec.cohort
        )
        machine = index.machine(setup, offline=frozenset(), now_s=now_s)
        machine.replay(journal, now_s)
        task.attempts = opening.attempts
        return OpenRound(
            machine, now_s=now_s, mailer=self._mailer, resend_s=self._settings.resend_s
        )

    def _choose(self, spec: TaskSpec, index: RoundIndex, online: Set[str], nonce: bytes) -> Choice:
        if index.deposits is not None:
            return Choice(population=index.deposits.devices)
        return self._cohorts.choose(
            spec,
            members=self._key_epochs.members,
            ready=online,
            attempt=self._last_attempt,
            nonce=nonce,
        )
