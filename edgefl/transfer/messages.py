"""What the two ends of a transfer tell each other beside the chunks; signed, as all messages."""

from dataclasses import dataclass
from dataclasses import field as attribute
from enum import IntEnum
from typing import ClassVar

from edgefl.errors import WireError
from edgefl.protocol.wire import Body, as_bytes, as_int, field
from edgefl.transfer.manifest import TRANSFER_ID_BYTES, Manifest, read_manifest

MAX_WINDOW_BYTES = 64 * 1024 * 1024
_MAX_EPOCH = 2**53
_MAX_NUMBER = 2**32 - 1
_MAX_DEADLINE_MS = 7 * 24 * 3600 * 1000
_MAX_SIZE_BYTES = 2**53


class RefusalReason(IntEnum):
    """Why a receiver does not take an offer. A value on the wire: never renumber."""

    TOO_LARGE = 1  # above the receiver's limit, which the refusal names
    NOT_WANTED = 2  # of a round that is over, or of nothing that the receiver asked for
    TOO_MANY = 3  # this peer has offered too much at once
    BROKEN = 4  # every chunk has its hash, and the whole is no message


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOffer:
    """A message that is too large for one packet, without its bulk: that follows in chunks.

    The signature of the envelope covers the hashes, and so the bulk; nothing else signs it.

    Attributes:
        message_kind: Kind of the message.
        head: Encoded map of the message's body without its bulk; empty where all of it is bulk.
        bulk_key: The body's key whose byte string is the bulk; None where the bulk is the encoded
            body.
        manifest: What will come.
        window_bytes: How much the sender would have under way without a receipt, where that is
            more than a window has by default: its link holds back what the receiver does not take.
    """

    kind: ClassVar[int] = 40
    message_kind: int
    head: bytes = attribute(repr=False)
    bulk_key: int | None
    manifest: Manifest
    window_bytes: int | None = None

    def to_body(self) -> Body:
        """Return the CBOR map."""
        body: Body = {
            0: self.message_kind,
            1: self.head,
            2: self.bulk_key,
            3: self.manifest.size_bytes,
            4: self.manifest.chunk_bytes,
            5: self.manifest.chunk_hashes,
        }
        return body if self.window_bytes is None else {**body, 6: self.window_bytes}

    @classmethod
    def from_body(cls, body: Body) -> "TransferOffer":
        """Read the CBOR map."""
        bulk_key = field(body, 2)
        window_bytes = body.get(6)
        return cls(
            message_kind=as_int(field(body, 0), 0, 255),
            head=as_bytes(field(body, 1)),
            bulk_key=None if bulk_key is None else as_int(bulk_key, 0, 255),
            manifest=read_manifest(
                as_int(field(body, 3), 1, _MAX_SIZE_BYTES),
                as_int(field(body, 4), 1, _MAX_SIZE_BYTES),
                as_bytes(field(body, 5)),
            ),
            window_bytes=None
            if window_bytes is None
            else as_int(window_bytes, 0, MAX_WINDOW_BYTES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferGrant:
    """The receiver's leave to send.

    Attributes:
        transfer_id: 8 bytes.
        epoch: How often the gateway has started, where it is the receiver: what it said in an
            earlier life is stale. A device says 0, and its hello tells that it has started anew.
        number: Of this grant in the transfer, from 1 in each life of the receiver.
        window_bytes: How much may be under way without a receipt; 0 asks to wait for a slot.
        deadline_ms: After so long without `done` the sender offers again.
        missing: Bitmap of the chunks that the receiver lacks.
    """

    kind: ClassVar[int] = 41
    transfer_id: bytes
    epoch: int
    number: int
    window_bytes: int
    deadline_ms: int
    missing: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.transfer_id,
            1: self.epoch,
            2: self.number,
            3: self.window_bytes,
            4: self.deadline_ms,
            5: self.missing,
        }

    @classmethod
    def from_body(cls, body: Body) -> "TransferGrant":
        """Read the CBOR map."""
        return cls(
            transfer_id=as_bytes(field(body, 0), TRANSFER_ID_BYTES),
            epoch=as_int(field(body, 1), 0, _MAX_EPOCH),
            number=as_int(field(body, 2), 1, _MAX_NUMBER),
            window_bytes=as_int(field(body, 3), 0, MAX_WINDOW_BYTES),
            deadline_ms=as_int(field(body, 4), 0, _MAX_DEADLINE_MS),
            missing=as_bytes(field(body, 5)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    """What the receiver has, said by itself: a broker's PUBACK says nothing of the kind.

    Attributes:
        transfer_id: 8 bytes.
        epoch: As of `TransferGrant`.
        number: The grant that it is about.
        missing: Bitmap of the chunks still missing.
        is_done: True only when the whole is verified and safe; the sender may forget it then.
    """

    kind: ClassVar[int] = 42
    transfer_id: bytes
    epoch: int
    number: int
    missing: bytes
    is_done: bool

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.transfer_id,
            1: self.epoch,
            2: self.number,
            3: self.missing,
            4: int(self.is_done),
        }

    @classmethod
    def from_body(cls, body: Body) -> "TransferProgress":
        """Read the CBOR map."""
        return cls(
            transfer_id=as_bytes(field(body, 0), TRANSFER_ID_BYTES),
            epoch=as_int(field(body, 1), 0, _MAX_EPOCH),
            number=as_int(field(body, 2), 0, _MAX_NUMBER),
            missing=as_bytes(field(body, 3)),
            is_done=bool(as_int(field(body, 4), 0, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRefusal:
    """The receiver will not take what was offered.

    Attributes:
        transfer_id: 8 bytes.
        reason: Why.
        limit_bytes: The limit, where it is about size; else 0.
    """

    kind: ClassVar[int] = 43
    transfer_id: bytes
    reason: RefusalReason
    limit_bytes: int = 0

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.transfer_id, 1: int(self.reason), 2: self.limit_bytes}

    @classmethod
    def from_body(cls, body: Body) -> "TransferRefusal":
        """Read the CBOR map."""
        number = as_int(field(body, 1), 0, 255)
        try:
            reason = RefusalReason(number)
        except ValueError:
            raise WireError("E-WIRE-ENUM", "a RefusalReason", str(number)) from None
        return cls(
            transfer_id=as_bytes(field(body, 0), TRANSFER_ID_BYTES),
            reason=reason,
            limit_bytes=as_int(field(body, 2), 0, _MAX_SIZE_BYTES),
        )


TransferAnswer = TransferGrant | TransferProgress | TransferRefusal
"""What a receiver says to its sender."""
TRANSFER_ANSWERS: tuple[type[TransferAnswer], ...] = (
    TransferGrant,
    TransferProgress,
    TransferRefusal,
)
