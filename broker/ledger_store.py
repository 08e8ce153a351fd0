"""The privacy ledger with a second copy of its rows in the state file, and what that is good for.

A ledger that was cut back or replaced behind the gateway's back is noticed at the next start. One
that was damaged or lost is written anew from the copy, if the copy has every row that may have been
acted upon; else the gateway refuses to start. So what was spent is never forgotten.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.events import Reported
from broker.ledger import LedgerFile, readable_lines
from broker.mended import ledger_mended
from edgefl.errors import StorageError
from edgefl.privacy.ledger import Ledger, LedgerEntry, Release, verify
from edgefl.storage.base import KeyValueStore
from edgefl.storage.files import replace_file

_LOGGER = logging.getLogger(__name__)

LEDGER_FILE: Final = "ledger.jsonl"
_WITNESS = "ledger-witness"
_ROW = "row/"
_MENDABLE = frozenset({"E-LEDGER-DAMAGED", "E-LEDGER-MISSING", "E-LEDGER-ROLLED-BACK"})
_FILE_MODE = 0o600


class LedgerCopy:
    """Rows, length and head in the state file; part of the batch in which a row was made.

    Args:
        store: The gateway's state.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Look at what is there."""
        self._store = store
        self._rows = store.namespace("ledger")

    @property
    def witness(self) -> tuple[int, str] | None:
        """Length and head that the ledger had when the state was stored; None for a new state."""
        stored = self._store.get(_WITNESS)
        if stored is None:
            return None
        length, _, head = stored.decode().partition(" ")
        return int(length), head

    def lines(self) -> list[str]:
        """Return the rows, oldest first."""
        return [(self._rows.get(key) or b"").decode() for key in self._rows.keys(_ROW)]

    def follow(self, ledger: Ledger) -> None:
        """Note the rows that are not here yet, and the head."""
        known = len(self._rows.keys(_ROW))
        rows = {_key(entry): entry.to_line().encode() for entry in ledger.entries[known:]}
        if rows:
            self._rows.put_many(rows)
        if self.witness != (len(ledger), ledger.head):
            self._store.put(_WITNESS, f"{len(ledger)} {ledger.head}".encode())

    def note(self, entry: LedgerEntry, ledger: Ledger) -> None:
        """Note one more row."""
        self._rows.put(_key(entry), entry.to_line().encode())
        self._store.put(_WITNESS, f"{len(ledger)} {ledger.head}".encode())


class WitnessedLedger:
    """The ledger file, with its rows repeated in the state file.

    Args:
        file: The open ledger.
        copy: Where its rows are repeated.
    """

    def __init__(self, file: LedgerFile, copy: LedgerCopy) -> None:
        """Bring the copy up to date: the file may have a row whose batch was lost."""
        self._file = file
        self._copy = copy
        copy.follow(file.ledger)

    @property
    def ledger(self) -> Ledger:
        """The entries so far."""
        return self._file.ledger

    def append(self, release: Release) -> LedgerEntry:
        """Charge one release durably, and repeat it in the batch."""
        entry = self._file.append(release)
        self._copy.note(entry, self._file.ledger)
        return entry


def open_ledger(
    path: Path,
    copy: LedgerCopy,
    *,
    is_state_older: bool,
    on_mended: Callable[[Reported], None] | None = None,
) -> LedgerFile:
    """Open the ledger, make a new one for a new gateway, or mend a damaged one from its copy.

    Args:
        path: The ledger file.
        copy: In the state file.
        is_state_older: The state was damaged too, and an older one was taken.
        on_mended: Called where it was written anew, with what to report.

    Raises:
        StorageError: The ledger is damaged, and rows may be missing from the copy; or it is locked,
            or cannot be written.
    """
    witness = copy.witness
    if witness is None and not path.exists():
        return LedgerFile.create(path)
    try:
        return LedgerFile.open(path, witness)
    except StorageError as error:
        if error.code not in _MENDABLE or is_state_older or witness is None:
            # What was charged between the older state and its end would be forgotten.
            raise
        whole = _best_lines(path, copy, witness)
        if whole is None:
            raise
        _LOGGER.error("%s", error)
    aside = _set_aside(path)
    _write(path, whole)
    mended = ledger_mended(path, aside, len(whole))
    _LOGGER.error("%s", mended.fields["text"])
    if on_mended is not None:
        on_mended(mended)
    return LedgerFile.open(path, witness)


def _best_lines(path: Path, copy: LedgerCopy, witness: tuple[int, str]) -> list[str] | None:
    """Return the longest sound history that holds all that was acted upon; None: there is none.

    The copy has every row whose batch was stored. A row in the file beyond it charged a session
    that nobody was asked to unmask, and is kept where it can be read.
    """
    stored = copy.lines()
    try:
        ledger = verify(stored)
    except StorageError:
        return None
    if (len(ledger), ledger.head) != witness:
        return None
    found = readable_lines(path)
    return found if len(found) > len(stored) and found[: len(stored)] == stored else stored


def _set_aside(path: Path) -> Path | None:
    if not path.exists():
        return None
    number = 1
    while (target := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        path.rename(target)
    except OSError as error:
        raise _not_written(path, error) from error
    return target


def _write(path: Path, lines: list[str]) -> None:
    try:
        replace_file(path, "".join(f"{line}\n" for line in lines).encode(), mode=_FILE_MODE)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError) -> StorageError:
    return StorageError(
        "E-LEDGER-WRITE", f"a writable privacy ledger at {path}", error.strerror or str(error)
    )


def _key(entry: LedgerEntry) -> str:
    return f"{_ROW}{entry.sequence:08d}"
