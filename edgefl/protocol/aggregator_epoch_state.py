"""What the aggregator's half of key epochs keeps over a restart, as bytes; it holds no secret."""

from dataclasses import dataclass

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.key_bundle import MAX_KEY_EPOCH, MAX_MASK_KEYS
from edgefl.protocol.member_keys import MemberKeys
from edgefl.protocol.roster import Roster

SNAPSHOT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorEpochState:
    """Numbers that must not be given out twice, and the open key epoch.

    Attributes:
        next_key_epoch: Number of the next one.
        next_index: The next key index of the open one.
        keys: Of the members of the open one; None where none is open.
    """

    next_key_epoch: int = 1
    next_index: int = 0
    keys: MemberKeys | None = None

    def to_bytes(self) -> bytes:
        """Return the state as it is stored."""
        keys = None if self.keys is None else self.keys.to_list()
        return _encoded(self.next_key_epoch, self.next_index, keys)

    @classmethod
    def from_bytes(
        cls, snapshot: bytes, *, roster: Roster | None, keys_roster: bytes | None
    ) -> "AggregatorEpochState":
        """Read a stored state.

        Args:
            snapshot: What `to_bytes` gave.
            roster: The newest; without one no key epoch is open.
            keys_roster: Bytes of the roster that the open key epoch belongs to, if it is older.

        Raises:
            WireError: The snapshot is damaged or of another version.
        """
        body = wire.as_body(wire.decode(snapshot))
        if sorted(body) != list(range(4)):
            raise WireError("E-SNAPSHOT", "a snapshot with fields 0 to 3", f"{len(body)} fields")
        wire.as_int(body[0], SNAPSHOT_VERSION, SNAPSHOT_VERSION)
        keys = None
        if roster is not None and body[3] is not None:
            keys = _keys_of(body[3], roster, keys_roster)
        return cls(
            next_key_epoch=wire.as_int(body[1], 1, MAX_KEY_EPOCH),
            next_index=wire.as_int(body[2], 0, MAX_MASK_KEYS),
            keys=keys,
        )


def without_key_epoch(snapshot: bytes, *, skipped: int) -> bytes:
    """Return a snapshot from which the next key epoch follows, and the open one is given up.

    Args:
        snapshot: An older one than devices have seen.
        skipped: Numbers of key epochs that may have been given out since.

    Raises:
        WireError: The snapshot is damaged.
    """
    body = wire.as_body(wire.decode(snapshot))
    number = wire.as_int(wire.field(body, 1), 1, MAX_KEY_EPOCH) + skipped
    return _encoded(min(number, MAX_KEY_EPOCH), 0, None)


def _encoded(next_key_epoch: int, next_index: int, keys: wire.WireValue) -> bytes:
    return wire.encode({0: SNAPSHOT_VERSION, 1: next_key_epoch, 2: next_index, 3: keys})


def _keys_of(value: wire.WireValue, roster: Roster, keys_roster: bytes | None) -> MemberKeys | None:
    try:
        return MemberKeys.from_value(value, roster)
    except RemoteProtocolError as error:
        if error.code != "E-EPOCH-ROSTER":
            raise WireError("E-SNAPSHOT", "a sound key epoch", error.code) from None
    # A newer roster was signed: the next key epoch is due, after the round that is open.
    if keys_roster is None:
        return None
    try:
        return MemberKeys.from_value(value, Roster.from_bytes(keys_roster))
    except RemoteProtocolError:
        return None
