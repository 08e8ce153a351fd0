"""The round that a device is in, of either mode: its numbers, and its place on flash."""

from collections.abc import Collection
from typing import TypedDict

from edgefl.agent.keys import AgentKeys
from edgefl.agent.spool import Spool
from edgefl.errors import WireError
from edgefl.protocol.device import DeviceRound
from edgefl.protocol.device_epoch import DeviceEpoch
from edgefl.protocol.events import Persist
from edgefl.protocol.identity import DeviceIdentity, EntropySource
from edgefl.protocol.one_upload_device import OneUploadRound
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.round_messages import Call
from edgefl.storage.base import KeyValueStore

AnyRound = DeviceRound | OneUploadRound

_LAST_ATTEMPT = "last-attempt"
_ROUND = "round"
_ONE_UPLOAD_ROUND = "one-upload-round"
_NO_ROUND: dict[str, bytes | None] = {_ROUND: None, _ONE_UPLOAD_ROUND: None}


class RoundArguments(TypedDict):
    """What the machines of both modes are made with."""

    identity: DeviceIdentity
    policy: DevicePolicy
    entropy: EntropySource
    epoch: DeviceEpoch
    gateway_key: bytes
    today: int


class RoundFlash:
    """The open round's snapshot, under a key that tells its mode, and the newest attempt.

    Args:
        store: Durable state.
        keys: The device's key epochs.
        spool: Keeps the masked vector of the round.
    """

    def __init__(self, store: KeyValueStore, keys: AgentKeys, spool: Spool) -> None:
        """Read the newest attempt."""
        self._store = store
        self._spool = spool
        self._keys = keys
        self.last_attempt = int.from_bytes(store.get(_LAST_ATTEMPT) or b"", "big")

    def begin(self, attempt: int, *, over: AnyRound | None) -> None:
        """Note that an attempt was answered; the round that was open before is over."""
        self.last_attempt = attempt
        number = {_LAST_ATTEMPT: attempt.to_bytes(8, "big")}
        self._store.put_many({**number, **self._without(over)})
        if over is not None:
            self._spool.clear()

    def put(self, device_round: AnyRound, effect: Persist) -> None:
        """Write the masked vector durably, where it is new, and then the snapshot."""
        if effect.spool is not None:
            self._spool.put(effect.spool)
        is_one_upload = isinstance(device_round, OneUploadRound)
        self._store.put(_ONE_UPLOAD_ROUND if is_one_upload else _ROUND, effect.snapshot)

    def clear(self, *, over: AnyRound) -> None:
        """Wipe the snapshot, the session's secrets, and the key that only it has used."""
        self._store.put_many(self._without(over))
        self._spool.clear()

    def restore(self, arguments: RoundArguments, *, kept: Collection[int]) -> AnyRound | None:
        """Take up the round that is on flash; wipe what no open round needs any more.

        One that was written by another version, or for keys that are gone, is no open round: this
        device counts as a dropout of it.

        Args:
            arguments: What the machines are made with.
            kept: Key indices of deposits for rounds to come.
        """
        is_noted = any(self._store.get(key) is not None for key in (_ROUND, _ONE_UPLOAD_ROUND))
        try:
            restored = self._read(arguments)
        except WireError:
            restored = None
        if restored is not None and restored.phase.is_final:
            restored = None
        indices = set(kept) if restored is None else {*kept, *_indices_of(restored)}
        changes: dict[str, bytes | None] = {**self._keys.release_all_but(indices)}
        if restored is None and (changes or is_noted):
            changes.update(_NO_ROUND)
        if changes:
            self._store.put_many(changes)
        if restored is None:
            self._spool.clear()
        return restored

    def _without(self, over: AnyRound | None) -> dict[str, bytes | None]:
        changes: dict[str, bytes | None] = {**_NO_ROUND}
        if over is not None:
            numbers = numbers_of(over)
            changes.update(self._keys.release(numbers.key_index, key_epoch=numbers.key_epoch))
        return changes

    def _read(self, arguments: RoundArguments) -> AnyRound | None:
        snapshot = self._store.get(_ROUND)
        if snapshot is not None:
            return DeviceRound.restore(snapshot, **arguments, spooled=self._spool.get())
        snapshot = self._store.get(_ONE_UPLOAD_ROUND)
        if snapshot is None:
            return None
        return OneUploadRound.restore(
            snapshot,
            identity=arguments["identity"],
            entropy=arguments["entropy"],
            epoch=arguments["epoch"],
            spooled=self._spool.get(),
        )


def _indices_of(device_round: AnyRound) -> tuple[int, ...]:
    """Return the key indices that a round needs."""
    index = numbers_of(device_round).key_index
    # The upload that is on flash may bring a deposit for the next one.
    return (index, index + 1) if isinstance(device_round, OneUploadRound) else (index,)


def numbers_of(device_round: AnyRound) -> Call | SessionPlan:
    """Return what names the round's number and attempt."""
    return device_round.plan if isinstance(device_round, OneUploadRound) else device_round.call
