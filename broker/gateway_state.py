"""The gateway's state file: batches, a copy beside it, and what to do when the file is damaged."""

import logging
import time
from pathlib import Path
from typing import Final

from broker.key_epochs import give_up_key_epoch
from broker.mended import state_mended
from broker.round_opening import LAST_ATTEMPT
from edgefl.errors import EnvironmentProblem, StorageError
from edgefl.privacy.ledger import Ledger
from edgefl.protocol.limits import MAX_ATTEMPT
from edgefl.storage.base import KeyValueStore
from edgefl.storage.batch import BatchStore
from edgefl.storage.sqlite import open_sqlite
from edgefl.storage.state_copy import previous_of, recover, write_copy

_LOGGER = logging.getLogger(__name__)

STATE_FILE: Final = "gateway.sqlite"
COPY_PAUSE_S: Final = 60.0
"""Least time between two copies: each writes the whole state once more to the board's flash."""
_URGENT = frozenset({"enrolment", "admissions"})
"""Who belongs to the fleet: devices refuse a gateway that has forgotten it."""
_WORTH_A_COPY = frozenset({"history", "population"})
"""A round was closed, or a device is new."""
_SKIPPED: Final = 1000
"""More attempts than a gateway makes between two copies."""
_FORGOTTEN = ("round", "deposits", "draws")
_EPOCH = "epoch"


def make_state_folder(state_dir: Path) -> None:
    """Make a gateway's folder, which its own user alone can read.

    Raises:
        EnvironmentProblem: E-STATE-DIR.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise EnvironmentProblem(
            "E-STATE-DIR",
            f"a folder at {state_dir}",
            error.strerror or str(error),
            "choose another --state",
        ) from error


def require_state(folder: Path) -> None:
    """Refuse to begin anew in the folder of a gateway that was set up before.

    A new state has another identity, which no device of the fleet would take, and knows neither who
    was let in nor what was revoked.

    Raises:
        StorageError: E-STATE-MISSING, neither the state file nor its copy is there.
    """
    path = folder / STATE_FILE
    if not path.exists() and not previous_of(path).exists():
        raise StorageError(
            "E-STATE-MISSING",
            f"{path}, which 'edgefl gateway init' made, or its copy",
            "neither",
            "bring back a copy of the state folder, or begin anew with --reset-state: then every "
            "device has to enrol again",
        )


class GatewayState:
    """The open state, and its copy.

    Args:
        folder: The gateway's state folder.

    Raises:
        StorageError: The state is damaged, and so is its copy; or it is locked, of another
            version, or cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        """Open the file, or its copy where it is damaged."""
        self.path = folder / STATE_FILE
        self.aside = recover(self.path)
        self.mended = None if self.aside is None else state_mended(self.path, self.aside)
        if self.mended is not None:
            _LOGGER.error("%s", self.mended.fields["text"])
        self._file = open_sqlite(self.path, namespace="gateway")
        self.store = BatchStore(self._file, namespace="gateway")
        self._is_copy_due = not previous_of(self.path).exists()
        self._has_news = False
        self._copied_at_s = time.monotonic()

    @property
    def has_changes(self) -> bool:
        """Whether `commit` has anything to do; asking costs less than another thread."""
        is_copy_wanted = self._is_copy_due or (self._has_news and self._has_waited)
        return not self.store.batch.is_empty or is_copy_wanted

    @property
    def _has_waited(self) -> bool:
        return time.monotonic() >= self._copied_at_s + COPY_PAUSE_S

    def commit(self) -> None:
        """Make the batch durable, and the copy new where that is due.

        Raises:
            StorageError: The batch cannot be written.
        """
        changed = self.store.batch.commit()
        self._has_news = self._has_news or bool(changed & _WORTH_A_COPY)
        is_urgent = self._is_copy_due or bool(changed & _URGENT)
        if is_urgent or (self._has_waited and self._has_news):
            self._copy()

    def _copy(self) -> None:
        self._has_news = self._is_copy_due = False
        self._copied_at_s = time.monotonic()
        try:
            write_copy(self._file.file)
        except StorageError as error:
            # The state itself is whole: a round need not fail for want of its copy.
            _LOGGER.warning("no copy of the state was made: %s", error)

    def close(self) -> None:
        """Release the file, after a last copy. What was not committed is gone."""
        if self._has_news:
            self._copy()
        self.store.close()


def skip_what_may_be_used(store: KeyValueStore, ledger: Ledger, *, is_older: bool) -> bool:
    """Make a state that is older than what devices have seen safe to go on from.

    An attempt, a key index or a draw of coins that a device has answered must not come again, and a
    round that was open then is over.

    Args:
        store: The gateway's state.
        ledger: The privacy ledger, which is as new as it was.
        is_older: The state is known to be; else the ledger tells, where it names a later attempt.

    Returns:
        Whether anything was skipped.
    """
    attempt = int.from_bytes(store.get(LAST_ATTEMPT) or b"", "big")
    charged = max((entry.release.attempt for entry in ledger.entries), default=0)
    if not is_older and charged <= attempt:
        return False
    gateway_epoch = int.from_bytes(store.get(_EPOCH) or b"", "big")
    attempt = min(max(attempt, charged) + _SKIPPED, MAX_ATTEMPT - 1)
    store.put_many(
        {
            LAST_ATTEMPT: attempt.to_bytes(8, "big"),
            _EPOCH: (gateway_epoch + _SKIPPED).to_bytes(8, "big"),
        }
    )
    give_up_key_epoch(store, skipped=_SKIPPED)
    for name in _FORGOTTEN:
        space = store.namespace(name)
        space.put_many(dict.fromkeys(space.keys()))
    return True
