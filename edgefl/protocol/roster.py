"""The whole roster, as the holder of the enrolment key signs it and the gateway keeps it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from edgefl._native import SigningKey
from edgefl.errors import ConfigError, WireError
from edgefl.protocol import wire
from edgefl.protocol.merkle import MerkleTree
from edgefl.protocol.public_keys import WEAK_KEY, weakness_of
from edgefl.protocol.roster_epoch import (
    KEY_BYTES,
    MAX_ENROLMENT_DAYS,
    MAX_HEADERS,
    MAX_ROSTER,
    NO_HASH,
    SIGNATURE_BYTES,
    RosterEntry,
    RosterEpoch,
    RosterPin,
    fingerprint,
    read_headers,
)
from edgefl.protocol.wire import as_bytes, as_int, as_list

FILE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """A whole roster, as the gateway holds it.

    Attributes:
        enrolment_key: Ed25519 public key that signed.
        headers: The newest epochs, ascending; the last one is that of the entries.
        entries: Ascending by device id; an entry's position is its index.
    """

    enrolment_key: bytes
    headers: tuple[RosterEpoch, ...]
    entries: tuple[RosterEntry, ...]
    _tree: MerkleTree = field(init=False, repr=False, compare=False)
    _positions: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check key, chain, signatures, order and root."""
        weakness = weakness_of(self.enrolment_key)
        if weakness is not None:
            raise WireError(WEAK_KEY, "the public key of an enrolment key", weakness)
        RosterPin().advance(self.headers, self.enrolment_key)
        _require_distinct(self.entries)
        tree = MerkleTree([entry.leaf() for entry in self.entries])
        if (tree.root, tree.size) != (self.epoch.root, self.epoch.size):
            raise WireError(
                "E-ROSTER-ROOT", "the entries that were signed", f"{len(self.entries)} others"
            )
        object.__setattr__(self, "_tree", tree)
        positions = {entry.device: index for index, entry in enumerate(self.entries)}
        object.__setattr__(self, "_positions", positions)

    @property
    def epoch(self) -> RosterEpoch:
        """The newest header."""
        return self.headers[-1]

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.entries)

    def position_of(self, device: str) -> int | None:
        """Return the position of a device."""
        return self._positions.get(device)

    def path(self, position: int) -> tuple[bytes, ...]:
        """Return the Merkle path of the entry at `position`."""
        return self._tree.path(position)

    def to_bytes(self) -> bytes:
        """Return the content of a roster file."""
        return wire.encode(
            {
                0: FILE_VERSION,
                1: self.enrolment_key,
                2: [header.to_list() for header in self.headers],
                # As byte strings: one item each, so that the largest roster stays within the
                # bound on items.
                3: [entry.leaf() for entry in self.entries],
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> "Roster":
        """Read a roster file and check it whole.

        Security: the enrolment key is the one that the file names; compare it with a known one.

        Raises:
            WireError: It is damaged or of another version.
            RemoteProtocolError: Its signatures or its chain are wrong.
        """
        body = wire.as_body(wire.decode(content))
        as_int(wire.field(body, 0), FILE_VERSION, FILE_VERSION)
        return cls(
            enrolment_key=as_bytes(wire.field(body, 1), KEY_BYTES),
            headers=read_headers(wire.field(body, 2)),
            entries=tuple(
                RosterEntry.from_value(wire.decode(as_bytes(leaf, max_bytes=256)))
                for leaf in as_list(wire.field(body, 3), MAX_ROSTER)
            ),
        )


def sign_roster(
    previous: Roster | None,
    fleet: str,
    entries: Sequence[RosterEntry],
    enrolment_key: SigningKey,
) -> Roster:
    """Sign the next epoch of a roster.

    Args:
        previous: The epoch before; None makes number 1.
        fleet: Name of the fleet.
        entries: All devices of the new epoch, in any order. Who is left out is a member no more.
        enrolment_key: The key that signed every epoch before.

    Raises:
        ConfigError: The previous roster is another fleet's or another key's, a device or key occurs
            twice, a known device has another key or day, or there are none or too many.
    """
    if not 1 <= len(entries) <= MAX_ROSTER:
        raise ConfigError("E-ROSTER-SIZE", f"1 to {MAX_ROSTER} devices", str(len(entries)))
    ordered = tuple(sorted(entries, key=lambda entry: entry.device))
    try:
        _require_distinct(ordered)
    except WireError as error:
        raise ConfigError(error.code, error.expected, error.found) from None
    if previous is not None:
        _require_successor(previous, fleet, ordered, enrolment_key)
    headers = () if previous is None else previous.headers
    unsigned = RosterEpoch(
        fleet=fleet,
        number=headers[-1].number + 1 if headers else 1,
        root=MerkleTree([entry.leaf() for entry in ordered]).root,
        size=len(ordered),
        enrolled_by_day=_count_days(ordered),
        previous_hash=headers[-1].hash if headers else NO_HASH,
        signature=bytes(SIGNATURE_BYTES),
    )
    signed = replace(unsigned, signature=enrolment_key.sign(unsigned.signed_bytes()))
    return Roster(
        enrolment_key=enrolment_key.public_key,
        headers=(*headers, signed)[-MAX_HEADERS:],
        entries=ordered,
    )


def _require_distinct(entries: Sequence[RosterEntry]) -> None:
    devices = [entry.device for entry in entries]
    if not devices or devices != sorted(set(devices)):
        raise WireError(
            "E-ROSTER-TWICE", "devices in ascending order, each once", "another order or one twice"
        )
    if len({entry.identity_key for entry in entries}) != len(entries):
        raise WireError("E-ROSTER-TWICE", "a key of its own for each device", "one key twice")


def _require_successor(
    previous: Roster, fleet: str, entries: Sequence[RosterEntry], enrolment_key: SigningKey
) -> None:
    if (previous.epoch.fleet, previous.enrolment_key) != (fleet, enrolment_key.public_key):
        raise ConfigError(
            "E-ROSTER-KEY",
            f"a roster of fleet {fleet} signed by {fingerprint(enrolment_key.public_key)}",
            f"fleet {previous.epoch.fleet}, signed by {fingerprint(previous.enrolment_key)}",
        )
    known = {entry.device: entry for entry in previous.entries}
    for entry in entries:
        if known.get(entry.device, entry) != entry:
            raise ConfigError(
                "E-ROSTER-CHANGED",
                f"the key and the day of {entry.device} as they were signed before",
                f"key {fingerprint(entry.identity_key)}, day {entry.enrolled_day}",
                "a device with a new key is a new device: sign a roster without it first",
            )


def _count_days(entries: Sequence[RosterEntry]) -> tuple[tuple[int, int], ...]:
    rows = sorted(Counter(entry.enrolled_day for entry in entries).items())
    merged_count = len(rows) - MAX_ENROLMENT_DAYS + 1
    if merged_count < 2:
        return tuple(rows)
    merged = rows[:merged_count]
    return ((merged[-1][0], sum(count for _, count in merged)), *rows[merged_count:])
