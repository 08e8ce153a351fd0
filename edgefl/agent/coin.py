"""The device's coin: thrown once for each draw of a task, kept, and never thrown again.

Whoever throws tails says nothing at all, so that only heads are seen. A coin that was thrown again
after a restart, or for a call that was sent twice, would make heads likelier than the call says.
"""

import hashlib

from edgefl.errors import StorageError, WireError
from edgefl.privacy.sampling import ALWAYS, COIN_SIDES
from edgefl.protocol import wire
from edgefl.protocol.identity import EntropySource
from edgefl.protocol.round_messages import Call
from edgefl.storage.base import KeyValueStore

_MOST_TASKS = 64
_FACE_BYTES = 2


class Coin:
    """What this device threw, the newest draw of each task.

    Args:
        store: A durable namespace of its own.
        entropy: Fresh secrets; seeded ones make a simulation repeatable.
    """

    def __init__(self, store: KeyValueStore, entropy: EntropySource) -> None:
        """Throw nothing yet."""
        self._store = store
        self._entropy = entropy

    def falls_heads(self, call: Call) -> bool:
        """Tell whether this device takes part; what was thrown is durable before this returns.

        Raises:
            StorageError: The kept throw is damaged, or this one cannot be written.
        """
        if call.coin == ALWAYS:
            return True
        slot = _slot(call.task)
        kept = self._kept(slot)
        if kept is not None and kept[0] > call.draw:
            return False  # An old draw, of which nothing is known any more.
        if kept is not None and kept[0] == call.draw:
            return kept[1] < call.coin
        face = int.from_bytes(self._entropy.fresh_seed().export_bytes()[:_FACE_BYTES], "big")
        self._keep(slot, call.draw, face)
        return face < call.coin

    def _keep(self, slot: str, draw: int, face: int) -> None:
        changes: dict[str, bytes | None] = {slot: wire.encode([draw, face])}
        others = [other for other in self._store.keys("") if other != slot]
        if len(others) >= _MOST_TASKS:
            # A task whose throw is forgotten is thrown for anew: the oldest draw is the least use.
            changes[min(others, key=lambda other: (self._kept(other) or (0, 0))[0])] = None
        self._store.put_many(changes)

    def _kept(self, slot: str) -> tuple[int, int] | None:
        stored = self._store.get(slot)
        if stored is None:
            return None
        try:
            kept_draw, face = wire.as_list(wire.decode(stored), 2)
            return wire.as_int(kept_draw, 1, 2**31), wire.as_int(face, 0, COIN_SIDES - 1)
        except (WireError, ValueError) as error:
            raise StorageError("E-STATE-DAMAGED", "a readable throw of the coin", "none") from error


def _slot(task: str) -> str:
    """Return the key for a task, whose name is a peer's text."""
    return hashlib.sha256(task.encode()).hexdigest()
