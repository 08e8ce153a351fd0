"""What the gateway remembers of each device's rounds, for a fair choice of the next cohort.

Durable, for a gateway that forgot would call the same devices again. A bad name fades: a board that
dropped out in a winter of low batteries gets its turn again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from edgefl.errors import StorageError, WireError
from edgefl.protocol import wire
from edgefl.storage.base import KeyValueStore

NAMESPACE = "standings"

_PERMILLE = 1000
_WEIGHT = 0.25
"""Of the newest round in the moving average of completed ones."""
_FORGIVEN_PER_ATTEMPT = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One device's earlier rounds.

    Attributes:
        last_attempt: In which it was called last; 0 for never.
        reliability: Moving average of completed rounds, 0 to 1.
    """

    last_attempt: int = 0
    reliability: float = 1.0

    def reliability_at(self, attempt: int) -> float:
        """Return the reliability as it is looked at by a later attempt."""
        forgiven = _FORGIVEN_PER_ATTEMPT * max(0, attempt - self.last_attempt - 1)
        return min(1.0, self.reliability + forgiven)

    def after(self, attempt: int, *, is_completed: bool) -> "Standing":
        """Return the standing after another round."""
        before = self.reliability_at(attempt)
        return Standing(
            last_attempt=attempt,
            reliability=(1 - _WEIGHT) * before + _WEIGHT * is_completed,
        )


class Standings(Mapping[str, Standing]):
    """The standing of each device that was ever called.

    Args:
        store: A durable namespace of its own.

    Raises:
        StorageError: A row is damaged.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Read what is known."""
        self._store = store
        self._known = {device: _read(store.get(device)) for device in store.keys("")}

    def __getitem__(self, device: str) -> Standing:
        """Return a device's standing."""
        return self._known[device]

    def __iter__(self) -> Iterator[str]:
        """Go over the devices that were ever called."""
        return iter(self._known)

    def __len__(self) -> int:
        """Return how many were ever called."""
        return len(self._known)

    def note(self, attempt: int, *, called: Iterable[str], lost: Iterable[str]) -> None:
        """Note how a round went.

        Args:
            attempt: Its number.
            called: Devices that were expected to take part.
            lost: Those of them that did not do all that they were asked for.
        """
        gone = set(lost)
        changes: dict[str, bytes | None] = {}
        for device in called:
            before = self._known.get(device, Standing())
            standing = before.after(attempt, is_completed=device not in gone)
            self._known[device] = standing
            permille = round(_PERMILLE * standing.reliability)
            changes[device] = wire.encode([standing.last_attempt, permille])
        if changes:
            self._store.put_many(changes)


def _read(stored: bytes | None) -> Standing:
    try:
        last_attempt, permille = wire.as_list(wire.decode(stored or b""), 2)
        return Standing(
            last_attempt=wire.as_int(last_attempt, 0, 2**31),
            reliability=wire.as_int(permille, 0, _PERMILLE) / _PERMILLE,
        )
    except (WireError, ValueError) as error:
        raise StorageError("E-STATE-DAMAGED", "a readable standing", "another row") from error
