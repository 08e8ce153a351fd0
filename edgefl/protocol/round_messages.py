"""The messages of a round, one frozen dataclass each; docs/protocol.md lists the bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from enum import IntEnum
from typing import ClassVar, TypeVar

from edgefl._native import StagedBlob
from edgefl.errors import WireError
from edgefl.privacy.sampling import ALWAYS
from edgefl.protocol.certificate import SurvivorCertificate
from edgefl.protocol.key_bundle import MaskKeyProof
from edgefl.protocol.limits import (
    DIGEST_BYTES,
    MAX_ATTEMPT,
    MAX_COHORT,
    MAX_KEY_EPOCH,
    MAX_MASK_KEYS,
    SEALED_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
)
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase, RoundMode
from edgefl.protocol.wire import Body, WireValue, as_bytes, as_int, as_list, as_text, field

_Reason = TypeVar("_Reason", bound=IntEnum)
_MAX_BITMAP_BYTES = MAX_COHORT // 8
_SEED_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The aggregator calls for check-in to one attempt at one round.

    Attributes:
        key_epoch: The key epoch whose keys are used.
        key_index: Which one-time mask key every device uses; no other session ever does.
        coin: With this, of `COIN_SIDES`, each device throws whether it takes part.
        draw: Names the throw; a device throws once for each. 0 where all take part.
    """

    kind: ClassVar[int] = 16
    task: str
    round_number: int
    attempt: int
    mode: RoundMode
    key_epoch: int
    key_index: int
    nonce: bytes
    closes_in_ms: int
    coin: int = ALWAYS
    draw: int = 0

    def to_body(self) -> Body:
        """Return the CBOR map."""
        body: Body = {
            0: self.task,
            1: self.round_number,
            2: self.attempt,
            3: int(self.mode),
            4: self.key_epoch,
            5: self.key_index,
            6: self.nonce,
            7: self.closes_in_ms,
        }
        return body if self.coin == ALWAYS else {**body, 8: self.coin, 9: self.draw}

    @classmethod
    def from_body(cls, body: Body) -> "Call":
        """Read the CBOR map."""
        is_thrown = 8 in body
        return cls(
            task=as_text(field(body, 0), 64),
            round_number=as_int(field(body, 1), 1, MAX_ATTEMPT),
            attempt=as_int(field(body, 2), 1, MAX_ATTEMPT),
            mode=_enum_value(RoundMode, field(body, 3)),
            key_epoch=as_int(field(body, 4), 1, MAX_KEY_EPOCH),
            key_index=as_int(field(body, 5), 0, MAX_MASK_KEYS - 1),
            nonce=as_bytes(field(body, 6), DIGEST_BYTES),
            closes_in_ms=as_int(field(body, 7), 0, 7 * 24 * 3600 * 1000),
            coin=as_int(field(body, 8), 1, ALWAYS - 1) if is_thrown else ALWAYS,
            draw=as_int(field(body, 9), 1, MAX_ATTEMPT) if is_thrown else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckIn:
    """A device takes part in the called round, with the one-time mask key that the call names."""

    kind: ClassVar[int] = 2
    call_id: bytes
    mask_key: MaskKeyProof

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.call_id, 1: self.mask_key.to_list()}

    @classmethod
    def from_body(cls, body: Body) -> "CheckIn":
        """Read the CBOR map."""
        return cls(
            call_id=as_bytes(field(body, 0), DIGEST_BYTES),
            mask_key=MaskKeyProof.from_value(field(body, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnnouncement:
    """The session plan, as the bytes that the session id is the hash of.

    Attributes:
        peers: Proof of identity and keys of each neighbour of the receiver, by its position in the
            plan, ascending.
    """

    kind: ClassVar[int] = 17
    plan: bytes
    peers: tuple[tuple[int, PeerProof], ...]

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.plan,
            1: [[position, proof.to_list()] for position, proof in self.peers],
        }

    @classmethod
    def from_body(cls, body: Body) -> "PlanAnnouncement":
        """Read the CBOR map."""
        return cls(
            plan=as_bytes(field(body, 0)),
            peers=tuple(
                (position, PeerProof.from_value(proof))
                for position, proof in _by_position(field(body, 1))
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKeys:
    """Sealed shares of a device's two secrets.

    Attributes:
        commitment: SHA-256 over the self-mask seed and the session id.
        sealed: One ciphertext for each neighbour, ascending by position.
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
            commitment=as_bytes(field(body, 0), DIGEST_BYTES),
            sealed=_sealed_list(field(body, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedShares:
    """Who shared keys (U2), and the ciphertexts meant for the receiver.

    Attributes:
        sharers: Bitmap over the plan's members.
        sealed: One ciphertext for each neighbour that shared, ascending by position.
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
            sharers=as_bytes(field(body, 0), max_bytes=_MAX_BITMAP_BYTES),
            sealed=_sealed_list(field(body, 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedInput:
    """A device's masked ring vector, bit-packed.

    Attributes:
        packed: The vector; empty where it is staged.
        staged: The vector where it came to the gateway in chunks; it is not in the body.
        skipped: Pairwise mask seeds of neighbours whose ciphertext did not open, by position,
            ascending: these masks are not in the vector. Empty but in the honest-but-curious class.
    """

    kind: ClassVar[int] = 4
    packed: bytes = attribute(repr=False)
    staged: StagedBlob | None = attribute(default=None, repr=False)
    skipped: tuple[tuple[int, bytes], ...] = attribute(default=(), repr=False)

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.packed, 1: [[position, seed] for position, seed in self.skipped]}

    @classmethod
    def from_body(cls, body: Body) -> "MaskedInput":
        """Read the CBOR map."""
        return cls(
            packed=as_bytes(field(body, 0)),
            skipped=tuple(
                (position, as_bytes(seed, _SEED_BYTES))
                for position, seed in _by_position(field(body, 1))
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorProposal:
    """The aggregator asks a committee member to sign who survived and who dropped out.

    Attributes:
        survivors: Bitmap over the plan's members (A).
        dropped: Bitmap over the plan's members (D): shared keys, and no vector arrived.
    """

    kind: ClassVar[int] = 23
    survivors: bytes
    dropped: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.survivors, 1: self.dropped}

    @classmethod
    def from_body(cls, body: Body) -> "SurvivorProposal":
        """Read the CBOR map."""
        return cls(
            survivors=as_bytes(field(body, 0), max_bytes=_MAX_BITMAP_BYTES),
            dropped=as_bytes(field(body, 1), max_bytes=_MAX_BITMAP_BYTES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorVote:
    """A committee member's signature over the one list that it signs in this session."""

    kind: ClassVar[int] = 10
    signature: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.signature}

    @classmethod
    def from_body(cls, body: Body) -> "SurvivorVote":
        """Read the CBOR map."""
        return cls(signature=as_bytes(field(body, 0), SIGNATURE_BYTES))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskRequest:
    """Who is in the sum and who dropped out, as bitmaps over the plan's members.

    Attributes:
        certificate: The committee's signatures over both lists; None in classes that need none.
    """

    kind: ClassVar[int] = 19
    survivors: bytes
    dropped: bytes
    certificate: SurvivorCertificate | None

    def to_body(self) -> Body:
        """Return the CBOR map."""
        certificate = None if self.certificate is None else self.certificate.to_list()
        return {0: self.survivors, 1: self.dropped, 2: certificate}

    @classmethod
    def from_body(cls, body: Body) -> "UnmaskRequest":
        """Read the CBOR map."""
        certificate = field(body, 2)
        return cls(
            survivors=as_bytes(field(body, 0), max_bytes=_MAX_BITMAP_BYTES),
            dropped=as_bytes(field(body, 1), max_bytes=_MAX_BITMAP_BYTES),
            certificate=(
                None if certificate is None else SurvivorCertificate.from_value(certificate)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealedShares:
    """Shares for unmasking: of one secret per neighbour, never of both.

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
        return cls(
            shares=tuple(
                (position, as_bytes(share, SHARE_BYTES))
                for position, share in _by_position(field(body, 0))
            )
        )


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


def _by_position(value: WireValue) -> Sequence[tuple[int, WireValue]]:
    """Read a list of [position, something] with ascending positions."""
    pairs: list[tuple[int, WireValue]] = []
    for item in as_list(value, MAX_COHORT):
        pair = as_list(item, 2)
        if len(pair) != 2:
            raise WireError("E-WIRE-PAIR", "pairs of position and value", f"{len(pair)} parts")
        position = as_int(pair[0], 0, MAX_COHORT - 1)
        if pairs and position <= pairs[-1][0]:
            raise WireError("E-WIRE-ORDER", "ascending positions", "another order")
        pairs.append((position, pair[1]))
    return pairs


def _sealed_list(value: WireValue) -> tuple[bytes, ...]:
    return tuple(as_bytes(item, SEALED_BYTES) for item in as_list(value, MAX_COHORT))


def _enum_value(enum: type[_Reason], value: WireValue) -> _Reason:
    number = as_int(value, 0, 255)
    try:
        return enum(number)
    except ValueError:
        raise WireError("E-WIRE-ENUM", f"a {enum.__name__}", str(number)) from None
