"""The survivor certificate: a committee's signatures over who survived and who dropped out.

Without it, a malicious aggregator could tell two halves of the cohort different lists and collect
both kinds of share of one device. No share leaves a device without it (class MALICIOUS).
"""

from dataclasses import dataclass

from edgefl.errors import WireError
from edgefl.protocol.limits import MAX_COHORT, MAX_POPULATION, SIGNATURE_BYTES
from edgefl.protocol.roster_epoch import RosterEntry
from edgefl.protocol.wire import WireValue, as_bytes, as_int, as_list, encode

_MAX_DEPTH = 16


def certificate_statement(session_id: bytes, survivors: bytes, dropped: bytes) -> bytes:
    """Return what a committee member signs: one list of survivors and one of dropped devices.

    Args:
        session_id: Hash of the session plan, which no two attempts share.
        survivors: Bitmap over the plan's members.
        dropped: Bitmap over the plan's members.
    """
    return encode(["edgefl/1 survivors", session_id, survivors, dropped])


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSignature:
    """One signature, with the proof of who made it.

    Attributes:
        entry: The signer in the roster.
        roster_position: Its position there, which the committee is drawn over.
        roster_path: Merkle path to the roster's root.
    """

    entry: RosterEntry
    roster_position: int
    roster_path: tuple[bytes, ...]
    signature: bytes

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [
            self.entry.to_list(),
            self.roster_position,
            list(self.roster_path),
            self.signature,
        ]

    @classmethod
    def from_value(cls, value: WireValue) -> "CertificateSignature":
        """Read the CBOR array."""
        parts = as_list(value, 4)
        if len(parts) != 4:
            raise WireError("E-WIRE-CERTIFICATE", "an array of 4", f"{len(parts)} parts")
        return cls(
            entry=RosterEntry.from_value(parts[0]),
            roster_position=as_int(parts[1], 0, MAX_POPULATION - 1),
            roster_path=tuple(as_bytes(node, 32) for node in as_list(parts[2], _MAX_DEPTH)),
            signature=as_bytes(parts[3], SIGNATURE_BYTES),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorCertificate:
    """Signatures of different committee members over one statement, ascending by signer."""

    signatures: tuple[CertificateSignature, ...]

    def __post_init__(self) -> None:
        """Refuse a signer that is counted twice."""
        positions = [signature.roster_position for signature in self.signatures]
        if positions != sorted(set(positions)):
            raise WireError("E-WIRE-CERTIFICATE", "ascending, different signers", "another order")

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [signature.to_list() for signature in self.signatures]

    @classmethod
    def from_value(cls, value: WireValue) -> "SurvivorCertificate":
        """Read the CBOR array."""
        signatures = as_list(value, MAX_COHORT)
        return cls(signatures=tuple(CertificateSignature.from_value(item) for item in signatures))
