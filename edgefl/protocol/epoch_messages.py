"""Messages about roster and key epochs, and their CBOR bodies; docs/protocol.md lists the bytes."""

from dataclasses import dataclass
from dataclasses import field as attribute
from typing import ClassVar

from edgefl.errors import WireError
from edgefl.protocol.key_bundle import (
    MAX_KEY_EPOCH,
    MAX_MASK_KEYS,
    KeyBundle,
    require_mask_key_count,
)
from edgefl.protocol.key_epoch import NONCE_BYTES, EpochRecord
from edgefl.protocol.limits import MAX_COHORT
from edgefl.protocol.merkle import DIGEST_BYTES, read_concatenated, read_path
from edgefl.protocol.roster_epoch import (
    KEY_BYTES,
    MAX_DAY,
    MAX_ROSTER,
    MAX_ROSTER_NUMBER,
    RosterEpoch,
    read_headers,
)
from edgefl.protocol.wire import Body, as_bytes, as_int, field

# ---------------------------------------------------------------- from devices


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBundleMessage:
    """Retained, on a topic of its own: a device's bundle for a key epoch."""

    kind: ClassVar[int] = 8
    bundle: KeyBundle

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.bundle.to_list()}

    @classmethod
    def from_body(cls, body: Body) -> "KeyBundleMessage":
        """Read the CBOR map."""
        return cls(bundle=KeyBundle.from_value(field(body, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NonceReveal:
    """A member shows the nonce that its bundle committed to."""

    kind: ClassVar[int] = 9
    record_hash: bytes
    nonce: bytes = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.record_hash, 1: self.nonce}

    @classmethod
    def from_body(cls, body: Body) -> "NonceReveal":
        """Read the CBOR map."""
        return cls(
            record_hash=as_bytes(field(body, 0), DIGEST_BYTES),
            nonce=as_bytes(field(body, 1), NONCE_BYTES),
        )


# ---------------------------------------------------------------- from the aggregator


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterUpdate:
    """The newest roster headers, and the receiver's own entry under the last of them.

    Attributes:
        enrolment_key: Who signs the roster; taken by a device that has pinned none, else compared.
        headers: A chain that reaches back to the header that the device has pinned.
        enrolled_day: Of the receiver's entry; id and key it knows.
        position: Roster position of the receiver's entry.
        path: Merkle path of that entry.
    """

    kind: ClassVar[int] = 26
    enrolment_key: bytes
    headers: tuple[RosterEpoch, ...]
    enrolled_day: int
    position: int
    path: tuple[bytes, ...]

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.enrolment_key,
            1: [header.to_list() for header in self.headers],
            2: self.enrolled_day,
            3: self.position,
            4: list(self.path),
        }

    @classmethod
    def from_body(cls, body: Body) -> "RosterUpdate":
        """Read the CBOR map."""
        return cls(
            enrolment_key=as_bytes(field(body, 0), KEY_BYTES),
            headers=read_headers(field(body, 1)),
            enrolled_day=as_int(field(body, 2), 0, MAX_DAY),
            position=as_int(field(body, 3), 0, MAX_ROSTER - 1),
            path=read_path(field(body, 4)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochInvitation:
    """The aggregator asks for a key bundle.

    Attributes:
        key_epoch: Above every number that the device has signed a bundle for.
        roster_number: The roster that the key epoch belongs to.
        roster_hash: Hash of that roster epoch.
        mask_key_count: How many one-time mask keys the bundle shall hold.
    """

    kind: ClassVar[int] = 27
    key_epoch: int
    roster_number: int
    roster_hash: bytes
    mask_key_count: int

    def __post_init__(self) -> None:
        """Check the count."""
        require_mask_key_count(self.mask_key_count)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.key_epoch,
            1: self.roster_number,
            2: self.roster_hash,
            3: self.mask_key_count,
        }

    @classmethod
    def from_body(cls, body: Body) -> "EpochInvitation":
        """Read the CBOR map."""
        return cls(
            key_epoch=as_int(field(body, 0), 1, MAX_KEY_EPOCH),
            roster_number=as_int(field(body, 1), 1, MAX_ROSTER_NUMBER),
            roster_hash=as_bytes(field(body, 2), DIGEST_BYTES),
            mask_key_count=as_int(field(body, 3), 1, MAX_MASK_KEYS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochClosed:
    """The set of members is closed: the receiver shall show its nonce.

    Attributes:
        path: Merkle path of the receiver's own commitment under the record's `commitments_root`.
    """

    kind: ClassVar[int] = 28
    record: EpochRecord
    path: tuple[bytes, ...]

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.record.to_list(), 1: list(self.path)}

    @classmethod
    def from_body(cls, body: Body) -> "EpochClosed":
        """Read the CBOR map."""
        return cls(record=EpochRecord.from_value(field(body, 0)), path=read_path(field(body, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOpened:
    """All nonces of a key epoch are known.

    Attributes:
        nonces: 32 bytes per member, in roster order.
    """

    kind: ClassVar[int] = 29
    record_hash: bytes
    nonces: tuple[bytes, ...] = attribute(repr=False)
    gateway_nonce: bytes

    def __post_init__(self) -> None:
        """Check the sizes."""
        if any(len(nonce) != NONCE_BYTES for nonce in self.nonces):
            raise WireError("E-WIRE-BYTES", f"nonces of {NONCE_BYTES} bytes", "another size")

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.record_hash, 1: b"".join(self.nonces), 2: self.gateway_nonce}

    @classmethod
    def from_body(cls, body: Body) -> "EpochOpened":
        """Read the CBOR map."""
        return cls(
            record_hash=as_bytes(field(body, 0), DIGEST_BYTES),
            nonces=read_concatenated(field(body, 1), MAX_COHORT),
            gateway_nonce=as_bytes(field(body, 2), NONCE_BYTES),
        )


EpochDeviceMessage = KeyBundleMessage | NonceReveal
EpochAggregatorMessage = RosterUpdate | EpochInvitation | EpochClosed | EpochOpened
EPOCH_DEVICE_MESSAGES: tuple[type[EpochDeviceMessage], ...] = (KeyBundleMessage, NonceReveal)
EPOCH_AGGREGATOR_MESSAGES: tuple[type[EpochAggregatorMessage], ...] = (
    RosterUpdate,
    EpochInvitation,
    EpochClosed,
    EpochOpened,
)
