"""One frozen dataclass per message, and its CBOR body; docs/protocol.md lists the bytes."""

from dataclasses import dataclass
from dataclasses import field as attribute
from enum import IntEnum
from typing import ClassVar, TypeVar

from edgefl.errors import WireError
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase
from edgefl.protocol.wire import Body, WireValue, as_bytes, as_int, as_list, as_text, encode, field

KEY_BYTES = 32
DIGEST_BYTES = 32
SHARE_BYTES = 40
SIGNATURE_BYTES = 64
SEALED_BYTES = 24 + 2 * SHARE_BYTES + 16
"""Nonce, the two shares, and the tag of XChaCha20-Poly1305."""
MAX_COHORT = 4096
MAX_ATTEMPT = 1_000_000

_Reason = TypeVar("_Reason", bound=IntEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A device says who it is, at each connection."""

    kind: ClassVar[int] = 1
    identity_key: bytes
    agent_version: str

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.identity_key, 1: self.agent_version}

    @classmethod
    def from_body(cls, body: Body) -> "Hello":
        """Read the CBOR map."""
        return cls(
            identity_key=as_bytes(field(body, 0), KEY_BYTES),
            agent_version=as_text(field(body, 1), 64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAdvert:
    """The keys of one device for one call, signed so that the gateway cannot swap them.

    Attributes:
        identity_key: Ed25519 public key.
        share_key: X25519 public key that seals shares; its secret is never shared.
        mask_key: One-time X25519 public key that pairwise masks are agreed with; its secret is
            Shamir-shared.
        signature: By the identity key, over `signed_bytes`.
    """

    device: str
    identity_key: bytes
    share_key: bytes
    mask_key: bytes
    signature: bytes

    def to_list(self) -> list[bytes | str]:
        """Return the CBOR array."""
        return [self.device, self.identity_key, self.share_key, self.mask_key, self.signature]

    @classmethod
    def from_value(cls, value: object) -> "KeyAdvert":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 5:
            raise WireError("E-WIRE-ADVERT", "an array of 5", type(value).__name__)
        return cls(
            device=as_text(value[0], 64),
            identity_key=as_bytes(value[1], KEY_BYTES),
            share_key=as_bytes(value[2], KEY_BYTES),
            mask_key=as_bytes(value[3], KEY_BYTES),
            signature=as_bytes(value[4], SIGNATURE_BYTES),
        )

    def signed_bytes(self, call_id: bytes) -> bytes:
        """Return what the identity key signs: the keys, bound to the call that they answer."""
        return encode(
            [
                "edgefl/1 advert",
                call_id,
                self.device,
                self.identity_key,
                self.share_key,
                self.mask_key,
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckIn:
    """A device takes part in the called round."""

    kind: ClassVar[int] = 2
    call_id: bytes
    advert: KeyAdvert

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.call_id, 1: self.advert.to_list()}

    @classmethod
    def from_body(cls, body: Body) -> "CheckIn":
        """Read the CBOR map."""
        return cls(
            call_id=as_bytes(field(body, 0), DIGEST_BYTES),
            advert=KeyAdvert.from_value(field(body, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKeys:
    """Sealed shares of a device's two secrets.

    Attributes:
        commitment: SHA-256 over the self-mask seed and the session id.
        sealed: One ciphertext per member of the plan, in plan order; empty at the sender's own
            position.
    """

    kind: ClassVar[int] = 3
    commitment: bytes
    sealed: tuple[bytes, ...] = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.commitment, 1: list(self.sealed)}

    @classmethod
    def from_body(cls, body: Body) -> "SharedKeys":
        """Read the CBOR map."""
        return cls(
            commitment=as_bytes(field(body, 0), DIGEST_BYTES), sealed=_sealed_list(field(body, 1))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedInput:
    """A device's masked ring vector, bit-packed."""

    kind: ClassVar[int] = 4
    packed: bytes = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.packed}

    @classmethod
    def from_body(cls, body: Body) -> "MaskedInput":
        """Read the CBOR map."""
        return cls(packed=as_bytes(field(body, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealedShares:
    """Shares for unmasking: of one secret per member, never of both.

    Attributes:
        shares: (position in the plan, share bytes), ascending; the kind follows from the request's
            lists.
    """

    kind: ClassVar[int] = 5
    shares: tuple[tuple[int, bytes], ...] = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: [[position, share] for position, share in self.shares]}

    @classmethod
    def from_body(cls, body: Body) -> "RevealedShares":
        """Read the CBOR map."""
        shares = []
        for item in as_list(field(body, 0), MAX_COHORT):
            if not isinstance(item, list) or len(item) != 2:
                raise WireError("E-WIRE-SHARE", "pairs of position and share", type(item).__name__)
            shares.append((as_int(item[0], 0, MAX_COHORT - 1), as_bytes(item[1], SHARE_BYTES)))
        positions = [position for position, _ in shares]
        if positions != sorted(set(positions)):
            raise WireError(
                "E-WIRE-SHARE", "ascending positions without duplicates", "another order"
            )
        return cls(shares=tuple(shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A device leaves the round."""

    kind: ClassVar[int] = 6
    reason: LeaveReason

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: int(self.reason)}

    @classmethod
    def from_body(cls, body: Body) -> "Leave":
        """Read the CBOR map."""
        return cls(reason=_enum_value(LeaveReason, field(body, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBlob:
    """A device asks for a model bundle or for parameters by their hash."""

    kind: ClassVar[int] = 7
    sha256: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.sha256}

    @classmethod
    def from_body(cls, body: Body) -> "GetBlob":
        """Read the CBOR map."""
        return cls(sha256=as_bytes(field(body, 0), DIGEST_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The aggregator calls for check-in to one attempt at one round."""

    kind: ClassVar[int] = 16
    task: str
    round_number: int
    attempt: int
    nonce: bytes
    closes_in_ms: int

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.task,
            1: self.round_number,
            2: self.attempt,
            3: self.nonce,
            4: self.closes_in_ms,
        }

    @classmethod
    def from_body(cls, body: Body) -> "Call":
        """Read the CBOR map."""
        return cls(
            task=as_text(field(body, 0), 64),
            round_number=as_int(field(body, 1), 1, MAX_ATTEMPT),
            attempt=as_int(field(body, 2), 1, MAX_ATTEMPT),
            nonce=as_bytes(field(body, 3), DIGEST_BYTES),
            closes_in_ms=as_int(field(body, 4), 0, 7 * 24 * 3600 * 1000),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnnouncement:
    """The session plan, as the bytes that the session id is the hash of."""

    kind: ClassVar[int] = 17
    plan: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.plan}

    @classmethod
    def from_body(cls, body: Body) -> "PlanAnnouncement":
        """Read the CBOR map."""
        return cls(plan=as_bytes(field(body, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedShares:
    """Who shared keys, and the ciphertexts meant for the receiver.

    Attributes:
        sharers: Bitmap over the plan's members.
        sealed: One ciphertext per sharer in plan order; empty at the receiver's own position.
    """

    kind: ClassVar[int] = 18
    sharers: bytes
    sealed: tuple[bytes, ...] = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.sharers, 1: list(self.sealed)}

    @classmethod
    def from_body(cls, body: Body) -> "RoutedShares":
        """Read the CBOR map."""
        return cls(
            sharers=as_bytes(field(body, 0), max_bytes=MAX_COHORT // 8),
            sealed=_sealed_list(field(body, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskRequest:
    """Who is in the sum and who dropped out, as bitmaps over the plan's members."""

    kind: ClassVar[int] = 19
    survivors: bytes
    dropped: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.survivors, 1: self.dropped}

    @classmethod
    def from_body(cls, body: Body) -> "UnmaskRequest":
        """Read the CBOR map."""
        return cls(
            survivors=as_bytes(field(body, 0), max_bytes=MAX_COHORT // 8),
            dropped=as_bytes(field(body, 1), max_bytes=MAX_COHORT // 8),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundClosed:
    """The round is over for the receiver.

    Attributes:
        phase: COMMITTED or ABORTED.
        counted: The receiver's update is in the committed sum.
    """

    kind: ClassVar[int] = 20
    phase: Phase
    reason: AbortReason
    counted: bool

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: int(self.phase), 1: int(self.reason), 2: int(self.counted)}

    @classmethod
    def from_body(cls, body: Body) -> "RoundClosed":
        """Read the CBOR map."""
        phase = _enum_value(Phase, field(body, 0))
        if not phase.is_final:
            raise WireError("E-WIRE-ENUM", "COMMITTED or ABORTED", phase.name)
        return cls(
            phase=phase,
            reason=_enum_value(AbortReason, field(body, 1)),
            counted=bool(as_int(field(body, 2), 0, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The message with this SHA-256 was handled; it need not be sent again."""

    kind: ClassVar[int] = 21
    digest: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.digest}

    @classmethod
    def from_body(cls, body: Body) -> "Receipt":
        """Read the CBOR map."""
        return cls(digest=as_bytes(field(body, 0), DIGEST_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A model bundle or parameters, whole; the receiver checks the hash that it asked for."""

    kind: ClassVar[int] = 22
    content: bytes = attribute(repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.content}

    @classmethod
    def from_body(cls, body: Body) -> "Blob":
        """Read the CBOR map."""
        return cls(content=as_bytes(field(body, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorStatus:
    """Retained: the aggregator is there, who it is, and how often it has started."""

    kind: ClassVar[int] = 24
    identity_key: bytes
    epoch: int
    least_agent_version: str

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.identity_key, 1: self.epoch, 2: self.least_agent_version}

    @classmethod
    def from_body(cls, body: Body) -> "AggregatorStatus":
        """Read the CBOR map."""
        return cls(
            identity_key=as_bytes(field(body, 0), KEY_BYTES),
            epoch=as_int(field(body, 1), 0, 2**53),
            least_agent_version=as_text(field(body, 2), 64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """The aggregator will not work with this device, and says why and what to do.

    Attributes:
        digest: SHA-256 of the hello that is refused. Anybody can say hello in a device's name; the
            device itself must not mind the answer.
    """

    kind: ClassVar[int] = 25
    code: str
    text: str
    digest: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.code, 1: self.text, 2: self.digest}

    @classmethod
    def from_body(cls, body: Body) -> "Rejection":
        """Read the CBOR map."""
        return cls(
            code=as_text(field(body, 0), 40),
            text=as_text(field(body, 1), 400),
            digest=as_bytes(field(body, 2), DIGEST_BYTES),
        )


DeviceMessage = Hello | CheckIn | SharedKeys | MaskedInput | RevealedShares | Leave | GetBlob
AggregatorMessage = (
    Call
    | PlanAnnouncement
    | RoutedShares
    | UnmaskRequest
    | RoundClosed
    | Receipt
    | Blob
    | AggregatorStatus
    | Rejection
)
Message = DeviceMessage | AggregatorMessage

DEVICE_MESSAGES: tuple[type[DeviceMessage], ...] = (
    Hello,
    CheckIn,
    SharedKeys,
    MaskedInput,
    RevealedShares,
    Leave,
    GetBlob,
)
AGGREGATOR_MESSAGES: tuple[type[AggregatorMessage], ...] = (
    Call,
    PlanAnnouncement,
    RoutedShares,
    UnmaskRequest,
    RoundClosed,
    Receipt,
    Blob,
    AggregatorStatus,
    Rejection,
)


def _sealed_list(value: object) -> tuple[bytes, ...]:
    if not isinstance(value, list) or len(value) > MAX_COHORT:
        raise WireError(
            "E-WIRE-TYPE", f"a list of at most {MAX_COHORT} ciphertexts", type(value).__name__
        )
    for item in value:
        if type(item) is not bytes or len(item) not in (0, SEALED_BYTES):
            raise WireError(
                "E-WIRE-BYTES", f"ciphertexts of 0 or {SEALED_BYTES} bytes", type(item).__name__
            )
    return tuple(value)


def _enum_value(enum: type[_Reason], value: WireValue) -> _Reason:
    number = as_int(value, 0, 255)
    try:
        return enum(number)
    except ValueError:
        raise WireError("E-WIRE-ENUM", f"a {enum.__name__}", str(number)) from None
