"""Messages by which a board gets into a fleet, and its certificate is renewed; docs/enrolment.md.

A request travels on the topic of a claim, signed with the board's own identity key (the envelope)
and with the claim's key (inside), so neither a broker nor another board can make one up.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from edgefl.errors import WireError
from edgefl.protocol.limits import DIGEST_BYTES, KEY_BYTES
from edgefl.protocol.wire import Body, WireValue, as_bytes, as_int, as_list, as_text, encode, field

MAX_CERTIFICATE_BYTES = 4096
MAX_REQUEST_BYTES = 2048
MAX_AUTHORITIES = 4
_MAX_SIGNATURE_BYTES = 80


class EnrolmentState(IntEnum):
    """What the gateway says to a board that wants in."""

    PENDING = 1  # the operator has not decided
    ACCEPTED = 2
    REJECTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentRequest:
    """A board asks to be let in; the sender of the envelope is the name that it wants.

    Attributes:
        identity_key: Ed25519 public key that signs the envelope, and everything later.
        certificate_request: PKCS #10, DER, for the same name.
        claim_signature: ECDSA by the claim's key over `claimed_bytes`.
    """

    kind: ClassVar[int] = 13
    identity_key: bytes
    agent_version: str
    certificate_request: bytes
    claim_signature: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: self.identity_key,
            1: self.agent_version,
            2: self.certificate_request,
            3: self.claim_signature,
        }

    @classmethod
    def from_body(cls, body: Body) -> "EnrolmentRequest":
        """Read the CBOR map."""
        return cls(
            identity_key=as_bytes(field(body, 0), KEY_BYTES),
            agent_version=as_text(field(body, 1), 64),
            certificate_request=as_bytes(field(body, 2), max_bytes=MAX_REQUEST_BYTES),
            claim_signature=as_bytes(field(body, 3), max_bytes=_MAX_SIGNATURE_BYTES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalRequest:
    """An enrolled board asks for its next certificate.

    Attributes:
        certificate_request: PKCS #10, DER, of a new key; empty where the board reports that it
            has a certificate of the newest authority, and what it trusts.
        trusted_digest: SHA-256 over the authorities that the board trusts, joined.
    """

    kind: ClassVar[int] = 14
    certificate_request: bytes
    trusted_digest: bytes

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.certificate_request, 1: self.trusted_digest}

    @classmethod
    def from_body(cls, body: Body) -> "RenewalRequest":
        """Read the CBOR map."""
        return cls(
            certificate_request=as_bytes(field(body, 0), max_bytes=MAX_REQUEST_BYTES),
            trusted_digest=as_bytes(field(body, 1), DIGEST_BYTES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentAnswer:
    """What became of an enrolment request.

    Attributes:
        state: Pending, accepted or rejected.
        reason: Code and one phrase where it is rejected; else empty.
        digest: SHA-256 of the request's payload: several boards may read one claim's topic.
        certificate: DER, where it is accepted.
        authorities: Certificates to trust the gateway by, DER.
    """

    kind: ClassVar[int] = 33
    state: EnrolmentState
    reason: str
    digest: bytes
    certificate: bytes
    authorities: tuple[bytes, ...]

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {
            0: int(self.state),
            1: self.reason,
            2: self.digest,
            3: self.certificate,
            4: list(self.authorities),
        }

    @classmethod
    def from_body(cls, body: Body) -> "EnrolmentAnswer":
        """Read the CBOR map."""
        state = EnrolmentState(as_int(field(body, 0), 1, len(EnrolmentState)))
        certificate = as_bytes(field(body, 3), max_bytes=MAX_CERTIFICATE_BYTES)
        if (state is EnrolmentState.ACCEPTED) != bool(certificate):
            raise WireError(
                "E-WIRE-FIELD", "a certificate where a board is accepted, and only there", "else"
            )
        return cls(
            state=state,
            reason=as_text(field(body, 1), 400),
            digest=as_bytes(field(body, 2), DIGEST_BYTES),
            certificate=certificate,
            authorities=read_authorities(field(body, 4)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateIssued:
    """A board's next certificate, or what it shall trust from now on.

    Attributes:
        certificate: DER; empty where only the authorities changed.
        authorities: All that the board shall trust, the one that signs now first.
    """

    kind: ClassVar[int] = 34
    certificate: bytes
    authorities: tuple[bytes, ...]

    def to_body(self) -> Body:
        """Return the CBOR map."""
        return {0: self.certificate, 1: list(self.authorities)}

    @classmethod
    def from_body(cls, body: Body) -> "CertificateIssued":
        """Read the CBOR map."""
        return cls(
            certificate=as_bytes(field(body, 0), max_bytes=MAX_CERTIFICATE_BYTES),
            authorities=read_authorities(field(body, 1)),
        )


def claimed_bytes(
    *, fleet: str, claim: str, device: str, identity_key: bytes, certificate_request: bytes
) -> bytes:
    """Return what a claim's key signs: nobody can put another board into the same request."""
    return encode(["edgefl/1 claim", fleet, claim, device, identity_key, certificate_request])


def digest_of(authorities: Sequence[bytes]) -> bytes:
    """Return the SHA-256 by which a board names the authorities that it trusts."""
    return hashlib.sha256(b"".join(authorities)).digest()


def read_authorities(value: WireValue) -> tuple[bytes, ...]:
    """Read a list of certificates.

    Raises:
        WireError: There are none, too many, or too large ones.
    """
    found = tuple(
        as_bytes(item, max_bytes=MAX_CERTIFICATE_BYTES) for item in as_list(value, MAX_AUTHORITIES)
    )
    if not all(found):
        raise WireError("E-WIRE-BYTES", "certificates", "an empty one")
    return found
