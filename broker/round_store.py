"""The open round on disk: how it was opened, and what it has accepted since.

All of it is written in the batch in which it happened. A restarted gateway reads it and goes on.
"""

from dataclasses import dataclass, field

from edgefl.errors import WireError
from edgefl.protocol import wire
from edgefl.protocol.limits import DIGEST_BYTES, MAX_COHORT
from edgefl.protocol.round_journal import JournalPart, decode_entry, encode_entry
from edgefl.protocol.round_messages import Call
from edgefl.storage.base import KeyValueStore

_OPENING = "opening"
_ENTRY = "entry/"
_TOTAL = "total"
_MOST_ATTEMPTS = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a round was opened with, beside its task and key epoch.

    Attributes:
        call: The call.
        population: Devices that may take part.
        ledger_head: Hash of the newest ledger row, in the plan.
        attempts: Of the task at this round, this one included.
        deposits: The deposits of a one-upload round; None in the other mode.
    """

    call: Call
    population: frozenset[str]
    ledger_head: bytes
    attempts: int
    deposits: bytes | None = field(default=None, repr=False)


class RoundStore:
    """The open round's rows.

    Args:
        store: A durable namespace of its own.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Go on after the rows that are there."""
        self._store = store
        self._next = len(store.keys(_ENTRY))

    def begin(self, opening: Opening) -> None:
        """Note a new round in place of the last one."""
        self.clear()
        content = wire.encode(
            {
                0: opening.call.to_body(),
                1: sorted(opening.population),
                2: opening.ledger_head,
                3: opening.attempts,
                4: opening.deposits,
            }
        )
        self._store.put(_OPENING, content)

    def save(self, part: JournalPart) -> None:
        """Note what the round has accepted since the last time."""
        changes: dict[str, bytes | None] = {
            f"{_ENTRY}{number:08d}": encode_entry(entry)
            for number, entry in enumerate(part.entries, start=self._next)
        }
        self._next += len(part.entries)
        if part.total is not None:
            changes[_TOTAL] = part.total
        if changes:
            self._store.put_many(changes)

    def clear(self) -> None:
        """Forget the round: it is closed."""
        stored = self._store.keys()
        if stored:
            self._store.put_many(dict.fromkeys(stored))
        self._next = 0

    def load(self) -> tuple[Opening, JournalPart] | None:
        """Return the round that is stored, if there is one.

        Raises:
            WireError: It was written by another version.
        """
        stored = self._store.get(_OPENING)
        if stored is None:
            return None
        entries = tuple(
            decode_entry(self._store.get(key) or b"") for key in self._store.keys(_ENTRY)
        )
        return _read_opening(stored), JournalPart(entries=entries, total=self._store.get(_TOTAL))


def _read_opening(content: bytes) -> Opening:
    body = wire.as_body(wire.decode(content))
    names = wire.as_list(wire.field(body, 1), MAX_COHORT)
    deposits = wire.field(body, 4)
    if sorted(body) != list(range(5)):
        raise WireError("E-JOURNAL", "an opening with fields 0 to 4", f"{len(body)} fields")
    return Opening(
        call=Call.from_body(wire.as_body(wire.field(body, 0))),
        population=frozenset(wire.as_text(name, 64) for name in names),
        ledger_head=wire.as_bytes(wire.field(body, 2), DIGEST_BYTES),
        attempts=wire.as_int(wire.field(body, 3), 0, _MOST_ATTEMPTS),
        deposits=None if deposits is None else wire.as_bytes(deposits),
    )
