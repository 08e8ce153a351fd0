"""A key epoch: the closed set of devices whose keys serve until the next one, and its beacon.

The beacon is drawn by commit and reveal: every member and the gateway commit to a nonce before any
is shown, so that nobody can choose it. Not guaranteed: whoever reveals last may abort a key epoch
whose beacon it dislikes; devices count that (`device_epoch`), and graph sizes leave room for it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.key_bundle import MAX_KEY_EPOCH, KeyBundle
from edgefl.protocol.limits import MAX_COHORT
from edgefl.protocol.merkle import DIGEST_BYTES, MerkleTree
from edgefl.protocol.roster_epoch import MAX_ROSTER, MAX_ROSTER_NUMBER
from edgefl.protocol.wire import WireValue, as_bytes, as_int, as_text

NONCE_BYTES = 32
MIN_MEMBERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """What the members of a key epoch agree on before any nonce is shown.

    Attributes:
        key_epoch: From 1; a device answers one record per number, ever.
        roster_number: The roster that it belongs to, as are hash and size.
        members: Bitmap over roster positions.
        commitments_root: Merkle root over the members' nonce commitments in roster order.
        bundles_hash: `hash_bundles` of the members' bundles; for audits.
        gateway_commitment: `commit_gateway_nonce` of the gateway's nonce.
    """

    fleet: str
    key_epoch: int
    roster_number: int
    roster_hash: bytes
    roster_size: int
    members: bytes
    commitments_root: bytes
    bundles_hash: bytes
    gateway_commitment: bytes
    _positions: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the bitmap."""
        bitmap = wire.decode_bitmap(self.members, self.roster_size)
        positions = tuple(position for position, is_member in enumerate(bitmap) if is_member)
        if not MIN_MEMBERS <= len(positions) <= MAX_COHORT:
            raise WireError(
                "E-EPOCH-SIZE", f"{MIN_MEMBERS} to {MAX_COHORT} members", f"{len(positions)}"
            )
        object.__setattr__(self, "_positions", positions)
        object.__setattr__(self, "_digest", wire.digest(self.to_list()))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the deterministic encoding."""
        return self._digest

    @property
    def positions(self) -> tuple[int, ...]:
        """Roster positions of the members, ascending."""
        return self._positions

    def epoch_position_of(self, roster_position: int) -> int | None:
        """Return a member's rank among the members; None for others."""
        rank = bisect_left(self._positions, roster_position)
        found = self._positions[rank : rank + 1]
        return rank if found == (roster_position,) else None

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [
            self.fleet,
            self.key_epoch,
            self.roster_number,
            self.roster_hash,
            self.roster_size,
            self.members,
            self.commitments_root,
            self.bundles_hash,
            self.gateway_commitment,
        ]

    @classmethod
    def from_value(cls, value: WireValue) -> "EpochRecord":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 9:
            raise WireError("E-WIRE-EPOCH", "an array of 9", type(value).__name__)
        return cls(
            fleet=as_text(value[0], 64),
            key_epoch=as_int(value[1], 1, MAX_KEY_EPOCH),
            roster_number=as_int(value[2], 1, MAX_ROSTER_NUMBER),
            roster_hash=as_bytes(value[3], DIGEST_BYTES),
            roster_size=as_int(value[4], 1, MAX_ROSTER),
            members=as_bytes(value[5], max_bytes=MAX_ROSTER // 8),
            commitments_root=as_bytes(value[6], DIGEST_BYTES),
            bundles_hash=as_bytes(value[7], DIGEST_BYTES),
            gateway_commitment=as_bytes(value[8], DIGEST_BYTES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEpoch:
    """A key epoch whose beacon is known.

    Attributes:
        beacon: 32 public random bytes that nobody could choose.
    """

    record: EpochRecord
    beacon: bytes

    @classmethod
    def from_nonces(
        cls, record: EpochRecord, nonces: Sequence[bytes], gateway_nonce: bytes
    ) -> "OpenEpoch":
        """Check all nonces against their commitments, and draw the beacon.

        Args:
            record: The closed set.
            nonces: 32 bytes per member, in roster order.
            gateway_nonce: 32 bytes.

        Raises:
            RemoteProtocolError: E-EPOCH-NONCES or E-EPOCH-GATEWAY-NONCE.
        """
        if len(nonces) != len(record.positions) or record.commitments_root != commitments_root(
            [
                commit_nonce(record.fleet, record.key_epoch, position, nonce)
                for position, nonce in zip(record.positions, nonces, strict=True)
            ]
        ):
            raise RemoteProtocolError(
                "E-EPOCH-NONCES",
                f"the {len(record.positions)} nonces that the members committed to",
                f"{len(nonces)} others",
            )
        committed = commit_gateway_nonce(record.fleet, record.key_epoch, gateway_nonce)
        if committed != record.gateway_commitment:
            raise RemoteProtocolError(
                "E-EPOCH-GATEWAY-NONCE", "the nonce that the gateway committed to", "another one"
            )
        joined = b"".join(nonces)
        beacon = wire.digest(["edgefl/1 beacon", record.digest, joined, gateway_nonce])
        return cls(record=record, beacon=beacon)

    @property
    def members(self) -> tuple[int, ...]:
        """Roster positions of the members, ascending; an epoch position is a rank in this list."""
        return self.record.positions

    @property
    def size(self) -> int:
        """Number of members."""
        return len(self.record.positions)

    @property
    def key_epoch(self) -> int:
        """The number of the key epoch."""
        return self.record.key_epoch

    def epoch_position_of(self, roster_position: int) -> int | None:
        """Return a member's rank among the members; None for others."""
        return self.record.epoch_position_of(roster_position)

    def graph_seed(self, key_index: int) -> bytes:
        """Return the 32 bytes that the neighbour graph of a session is drawn from."""
        return self._seed("edgefl/1 graph seed", key_index)

    def committee_seed(self, key_index: int) -> bytes:
        """Return the 32 bytes that the certificate committee of a session is drawn from."""
        return self._seed("edgefl/1 committee seed", key_index)

    def _seed(self, label: str, key_index: int) -> bytes:
        return wire.digest([label, self.beacon, key_index.to_bytes(4, "big")])


def commit_nonce(fleet: str, key_epoch: int, roster_position: int, nonce: bytes) -> bytes:
    """Return a member's commitment to its nonce.

    By position, not by name: whoever checks the opened nonces knows the members' positions alone.
    """
    return wire.digest(["edgefl/1 nonce", fleet, key_epoch, roster_position, nonce])


def commit_gateway_nonce(fleet: str, key_epoch: int, nonce: bytes) -> bytes:
    """Return the gateway's commitment to its nonce."""
    return wire.digest(["edgefl/1 gateway nonce", fleet, key_epoch, nonce])


def commitments_root(commitments: Sequence[bytes]) -> bytes:
    """Return the Merkle root over the members' commitments, in roster order."""
    return MerkleTree(commitments).root


def hash_bundles(bundles: Sequence[KeyBundle]) -> bytes:
    """Return one hash over the members' bundles, in roster order."""
    return wire.digest(["edgefl/1 bundles", b"".join(bundle.digest for bundle in bundles)])
