"""The messages that only the one-upload mode has, one frozen dataclass each.

Votes, unmask requests, answers and the end of a round are those of the other mode.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import ClassVar

from edgefl._native import StagedBlob
from edgefl.errors import WireError
from edgefl.protocol.key_bundle import MaskKeyProof
from edgefl.protocol.limits import (
    DIGEST_BYTES,
    KEY_BYTES,
    MAX_COHORT,
    MAX_KEY_EPOCH,
    MAX_MASK_KEYS,
    SEALED_SHARE_BYTES,
)
from edgefl.protocol.one_upload_sharing import SealingKey
from edgefl.protocol.one_upload_sizes import DepositTerms
from edgefl.protocol.peer_proof import MemberProof, PeerProof
from edgefl.protocol.wire import Body, WireValue, as_body, as_bytes, as_int, as_list, field

_MAX_BITMAP_BYTES = MAX_COHORT // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """A device entrusts the one-time mask key of an index to the committee of that index.

    Attributes:
        mask_key: Public key at the index, with its path to the bundle.
        sealed: A share of its secret for each member of the committee but the sender, ascending.
    """

    kind: ClassVar[int] = 11
    mask_key: MaskKeyProof
    sealed: tuple[bytes, ...] = attribute(repr=False)

    @property
    def key_index(self) -> int:
        """The index."""
        return self.mask_key.index

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.mask_key.to_list(), 1: list(self.sealed)}

    @classmethod
    def from_body(cls, body: Body) -> "Deposit":
        """Read the CBOR map."""
        return cls(
            mask_key=MaskKeyProof.from_value(field(body, 0)), sealed=_sealed_list(field(body, 1))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OneUpload:
    """All that an ordinary device publishes in a round.

    Attributes:
        packed: Masked ring vector, bit-packed; empty where it is staged.
        staged: The vector where it came to the gateway in chunks; it is not in the body.
        commitment: SHA-256 over the self-mask seed and the session id.
        sealed: A share of that seed for each member of the committee but the sender, ascending.
        next_deposit: For the next index; None where there is none, or none is asked for.
    """

    kind: ClassVar[int] = 12
    packed: bytes = attribute(repr=False)
    staged: StagedBlob | None = attribute(default=None, repr=False)
    commitment: bytes
    sealed: tuple[bytes, ...] = attribute(repr=False)
    next_deposit: Deposit | None

    def to_body(self) -> Body:
        """Return the CBOR map."""
        deposit = None if self.next_deposit is None else dict(self.next_deposit.to_body())
        return {0: self.packed, 1: self.commitment, 2: list(self.sealed), 3: deposit}

    @classmethod
    def from_body(cls, body: Body) -> "OneUpload":
        """Read the CBOR map."""
        deposit = field(body, 3)
        return cls(
            packed=as_bytes(field(body, 0)),
            commitment=as_bytes(field(body, 1), DIGEST_BYTES),
            sealed=_sealed_list(field(body, 2)),
            next_deposit=None if deposit is None else Deposit.from_body(as_body(deposit)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositCall:
    """The aggregator asks for a deposit outside of a round.

    Attributes:
        holders: The committee of the index but for the receiver, ascending by roster position.
    """

    kind: ClassVar[int] = 30
    key_epoch: int
    key_index: int
    terms: DepositTerms
    holders: tuple[MemberProof, ...]

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.key_epoch,
            1: self.key_index,
            2: self.terms.to_list(),
            3: _to_list(self.holders),
        }

    @classmethod
    def from_body(cls, body: Body) -> "DepositCall":
        """Read the CBOR map."""
        return cls(
            key_epoch=as_int(field(body, 0), 1, MAX_KEY_EPOCH),
            key_index=as_int(field(body, 1), 0, MAX_MASK_KEYS - 1),
            terms=DepositTerms.from_value(field(body, 2)),
            holders=_members(field(body, 3)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OneUploadAnnouncement:
    """The session plan, with all keys that its receiver masks with and seals for.

    Attributes:
        plan: The bytes that the session id is the hash of.
        peers: Proof of each neighbour of the receiver, by its position in the plan, ascending.
        holders: The committees of this index and, where a deposit for it is asked for, of the next
            one, but for the receiver; ascending by roster position.
        asks_deposit: Whether the upload is to carry a deposit for the next index.
    """

    kind: ClassVar[int] = 31
    plan: bytes
    peers: tuple[tuple[int, PeerProof], ...]
    holders: tuple[MemberProof, ...]
    asks_deposit: bool

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.plan,
            1: [[position, proof.to_list()] for position, proof in self.peers],
            2: _to_list(self.holders),
            3: int(self.asks_deposit),
        }

    @classmethod
    def from_body(cls, body: Body) -> "OneUploadAnnouncement":
        """Read the CBOR map."""
        return cls(
            plan=as_bytes(field(body, 0)),
            peers=_peers(field(body, 1)),
            holders=_members(field(body, 2)),
            asks_deposit=bool(as_int(field(body, 3), 0, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeProposal:
    """The aggregator asks a committee member to sign who survived, and brings its shares.

    Attributes:
        survivors: Bitmap over the plan's members (A).
        dropped: Bitmap over the plan's members (D): deposited, and no upload arrived.
        owners: Sealing key of each member of the plan but the receiver, ascending.
        sealed: In the same order, the share of the owner's self seed if it survived, of its mask
            key if it dropped out.
    """

    kind: ClassVar[int] = 32
    survivors: bytes
    dropped: bytes
    owners: tuple[SealingKey, ...]
    sealed: tuple[bytes, ...] = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.survivors,
            1: self.dropped,
            2: [owner.share_key + owner.bundle_sha256 for owner in self.owners],
            3: list(self.sealed),
        }

    @classmethod
    def from_body(cls, body: Body) -> "CommitteeProposal":
        """Read the CBOR map."""
        return cls(
            survivors=as_bytes(field(body, 0), max_bytes=_MAX_BITMAP_BYTES),
            dropped=as_bytes(field(body, 1), max_bytes=_MAX_BITMAP_BYTES),
            owners=tuple(_sealing_key(item) for item in as_list(field(body, 2), MAX_COHORT)),
            sealed=_sealed_list(field(body, 3)),
        )


def _sealing_key(value: WireValue) -> SealingKey:
    joined = as_bytes(value, KEY_BYTES + DIGEST_BYTES)
    return SealingKey(share_key=joined[:KEY_BYTES], bundle_sha256=joined[KEY_BYTES:])


def _sealed_list(value: WireValue) -> tuple[bytes, ...]:
    return tuple(as_bytes(item, SEALED_SHARE_BYTES) for item in as_list(value, MAX_COHORT))


def _to_list(members: Iterable[MemberProof]) -> list[WireValue]:
    return [member.to_list() for member in members]


def _members(value: WireValue) -> tuple[MemberProof, ...]:
    members = tuple(MemberProof.from_value(item) for item in as_list(value, MAX_COHORT))
    positions = [member.roster_position for member in members]
    if positions != sorted(set(positions)):
        raise WireError("E-WIRE-ORDER", "ascending roster positions", "another order")
    return members


def _peers(value: WireValue) -> tuple[tuple[int, PeerProof], ...]:
    peers: list[tuple[int, PeerProof]] = []
    for item in as_list(value, MAX_COHORT):
        pair = as_list(item, 2)
        if len(pair) != 2:
            raise WireError("E-WIRE-PAIR", "pairs of position and proof", f"{len(pair)} parts")
        peers.append((as_int(pair[0], 0, MAX_COHORT - 1), PeerProof.from_value(pair[1])))
    positions = [position for position, _ in peers]
    if positions != sorted(set(positions)):
        raise WireError("E-WIRE-ORDER", "ascending positions", "another order")
    return tuple(peers)
