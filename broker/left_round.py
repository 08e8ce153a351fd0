"""The round that an earlier life of the gateway left open: resumed, or aborted by name."""

import logging

from broker.active_task import ActiveTask
from broker.events import GatewayEffect
from broker.history import RoundHistory
from broker.open_round import OpenRound
from broker.records import OPEN_ROUND, load_open
from broker.reports import left_open_report, resumed_report
from broker.round_driver import RoundDriver
from broker.round_opening import RoundOpener
from broker.round_record import aborted_round
from broker.settings import GatewaySettings
from edgefl.errors import EdgeflError
from edgefl.protocol.reasons import AbortReason
from edgefl.storage.base import KeyValueStore

_LOGGER = logging.getLogger(__name__)


class LeftRound:
    """What is done about it, between the start of the gateway and its first link to the broker.

    The shell hands in the tasks that it finds before that: no device can speak for a round that is
    not there yet.

    Args:
        settings: The wall clock.
        store: Durable state of the gateway.
        opener: Puts the round together again.
        rounds: Goes on with it.
        history: Keeps that it was aborted.

    Raises:
        StorageError: The note of it is unreadable.
    """

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        store: KeyValueStore,
        opener: RoundOpener,
        rounds: RoundDriver,
        history: RoundHistory,
    ) -> None:
        """Read the note of it."""
        self._settings = settings
        self._store = store
        self._opener = opener
        self._rounds = rounds
        self._history = history
        self._record = load_open(store)
        self._why = "its task is not there any more"

    def is_of(self, task: str) -> bool:
        """Tell whether a round of this task waits to be resumed."""
        return self._record is not None and self._record.task == task

    def take_up(self, task: ActiveTask, now_s: float) -> bool:
        """Put the round together again; return whether that can be done."""
        self._why = ""
        opened = self._restore(task, now_s)
        if opened is not None:
            self._rounds.adopt(opened, task)
        return opened is not None

    def _restore(self, task: ActiveTask, now_s: float) -> OpenRound | None:
        try:
            stored = self._opener.round_store.load()
            if stored is not None:
                return self._opener.resume(task, *stored, now_s)
            self._why = "nothing of it was stored"
        except EdgeflError as error:
            _LOGGER.warning("task=%s its open round cannot be resumed: %s", task.spec.name, error)
            self._why = str(error)
        return None

    def settle(self, now_s: float) -> list[GatewayEffect]:
        """Go on with the round now that the link is there, or say that it is lost."""
        left, self._record = self._record, None
        if left is None:
            return []
        current = self._rounds.current
        if current is not None:
            report = resumed_report(current.machine)
            return [report, *self._rounds.resume(now_s)]
        self._opener.round_store.clear()
        self._store.put_many({OPEN_ROUND: None})
        self._history.close_round(
            aborted_round(
                task=left.task,
                round_number=left.round_number,
                attempt=left.attempt,
                reason=AbortReason.GATEWAY_RESTARTED,
                in_phase=left.phase,
                found_at_s=self._settings.wall_clock_s(),
            )
        )
        return [left_open_report(left, self._why)]
