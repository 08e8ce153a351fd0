"""Opens an agent's state, and begins anew with the same identity where the file is damaged.

The identity has a copy in a file of its own, written once. What cannot be rebuilt is what privacy
hangs on, the account of what was spent: it counts as unknown, and the device as exhausted, until
its owner says otherwise. Secrets of key epochs and rounds are gone, so that nothing of an earlier
round can be answered a second time in another way.
"""

import hashlib
import json
import logging
import stat
from dataclasses import dataclass
from pathlib import Path

from edgefl.agent import clock
from edgefl.agent.spend import mark_unknown
from edgefl.errors import StorageError
from edgefl.storage.base import KeyValueStore
from edgefl.storage.files import read_file, replace_file
from edgefl.storage.sqlite import SqliteStore, open_sqlite
from edgefl.storage.sqlite_file import set_aside

_LOGGER = logging.getLogger(__name__)

COPY_FILE = "identity.key"
NAMESPACE = "agent"
_SEED = "identity-seed"
_KEPT = (_SEED, "device", "gateway-key")
_MOST_BYTES = 4096
_PAGE_BYTES = 1024
"""A round is seven commits of small rows: with pages of 4 KiB it wrote twice as much."""
_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR
_LATE_BOOT = 1 << 32


@dataclass(frozen=True, slots=True)
class _Copy:
    """Rows of the state that make a device who it is; `rows` has a secret among them."""

    rows: dict[str, bytes]

    def __repr__(self) -> str:
        return f"_Copy({', '.join(self.rows)})"

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        texts = {key: value.hex() for key, value in sorted(self.rows.items())}
        return (json.dumps({"rows": texts, "sha256": _checksum(texts)}) + "\n").encode()


def open_state(path: Path, *, wall_clock_s: float) -> SqliteStore:
    """Open the state file; set a damaged one aside and begin anew with the copy of its identity.

    Args:
        path: The state file.
        wall_clock_s: Seconds since 1970, as far as the board knows.

    Raises:
        StorageError: It is damaged and there is no intact copy of the identity; or it is locked,
            of another version, or cannot be written.
    """
    copy = _read_copy(path.with_name(COPY_FILE))
    try:
        store = open_sqlite(path, namespace=NAMESPACE, page_bytes=_PAGE_BYTES)
    except StorageError as error:
        if error.code != "E-STATE-DAMAGED" or copy is None:
            raise
        _LOGGER.error("%s; it was set aside as %s", error, set_aside(path))
        store = open_sqlite(path, namespace=NAMESPACE, page_bytes=_PAGE_BYTES)
    if copy is not None and store.get(_SEED) is None:
        _begin_anew(store, copy, wall_clock_s)
    keep_copy(path, store)
    return store


def _begin_anew(store: SqliteStore, copy: _Copy, wall_clock_s: float) -> None:
    _LOGGER.error(
        "the state file was lost: this device keeps its identity, but the account of the privacy "
        "it has spent is gone; it counts as exhausted, and declines every round, until its owner "
        "says --forget-spend"
    )
    mark_unknown(store.namespace("spend"))
    # Fresh secrets are told apart by the number of boots, which must not be seen twice.
    boots = int(wall_clock_s) if clock.is_set(wall_clock_s) else _LATE_BOOT
    store.namespace("entropy").put("boots", boots.to_bytes(8, "big"))
    # The identity comes last: a power cut before it leads here once more.
    store.put_many(dict(copy.rows))


def keep_copy(path: Path, store: KeyValueStore) -> None:
    """Write the copy of the identity, where it is new; a full disk waits for the next start.

    Args:
        path: The state file; the copy lies beside it.
        store: Its namespace of the agent.
    """
    rows = {key: value for key in _KEPT if (value := store.get(key)) is not None}
    target = path.with_name(COPY_FILE)
    if _SEED not in rows or _read_copy(target) == _Copy(rows):
        return
    try:
        replace_file(target, _Copy(rows).to_bytes(), mode=_OWNER_ONLY)
    except OSError as error:
        _LOGGER.warning("no copy of the identity was written: %s", error.strerror)


def set_copy_aside(path: Path) -> None:
    """Forget the copy, for an owner who wants another identity.

    Raises:
        StorageError: It cannot be removed.
    """
    try:
        path.with_name(COPY_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            "E-STATE-UNWRITABLE",
            f"to remove {path.with_name(COPY_FILE)}",
            error.strerror or type(error).__name__,
            "check the folder's owner",
        ) from error


def _read_copy(path: Path) -> _Copy | None:
    """Return an intact copy; None where there is none."""
    try:
        content = json.loads(read_file(path, _MOST_BYTES))
        texts = content["rows"]
        rows = {key: bytes.fromhex(texts[key]) for key in _KEPT if key in texts}
        is_intact = content["sha256"] == _checksum(texts)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return _Copy(rows) if is_intact and {_SEED, "device"} <= rows.keys() else None


def _checksum(texts: dict[str, str]) -> str:
    """Return what tells a damaged copy; it protects from no person."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
