"""The committee's signatures over one list of survivors, as they arrive."""

from collections.abc import Mapping

from edgefl._native import verify
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.certificate import (
    CertificateSignature,
    SurvivorCertificate,
    certificate_statement,
)
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.round_messages import SurvivorProposal, SurvivorVote


class VoteCollection:
    """Votes over one proposal; the aggregator makes one proposal in a session.

    Args:
        session_id: Of the plan.
        proposal: What is signed.
        members: The committee's survivors, by position in the plan.
        needed: Signatures that make the certificate.
    """

    def __init__(
        self,
        session_id: bytes,
        proposal: SurvivorProposal,
        members: Mapping[int, PeerProof],
        needed: int,
    ) -> None:
        """Start with no vote."""
        self.proposal = proposal
        self.needed = needed
        self._members = dict(members)
        self._statement = certificate_statement(session_id, proposal.survivors, proposal.dropped)
        self._signatures: dict[int, bytes] = {}

    @property
    def members(self) -> set[int]:
        """Positions of those who may vote."""
        return set(self._members)

    @property
    def voters(self) -> set[int]:
        """Positions of those who did."""
        return set(self._signatures)

    def take(self, position: int, message: SurvivorVote) -> bool:
        """Take a member's vote, and tell whether it is news; others have none.

        Raises:
            RemoteProtocolError: The signature is not the member's, or not over the proposal.
        """
        member = self._members.get(position)
        if member is None or self._signatures.get(position) == message.signature:
            return False
        # A second signature that is right as well can replace the first.
        if not verify(member.entry.identity_key, self._statement, message.signature):
            raise RemoteProtocolError(
                "E-VOTE-SIGNATURE", "a signature over the proposed lists", "another one"
            )
        self._signatures[position] = message.signature
        return True

    def certificate(self) -> SurvivorCertificate | None:
        """Return the certificate, or None where votes are missing.

        It holds as many signatures as are needed and no more: every device downloads it.
        """
        if len(self._signatures) < self.needed:
            return None
        # Positions in the plan ascend with those in the roster.
        signers = sorted(self._signatures)[: self.needed]
        return SurvivorCertificate(
            signatures=tuple(self._signed_by(position) for position in signers)
        )

    def _signed_by(self, position: int) -> CertificateSignature:
        member = self._members[position]
        return CertificateSignature(
            entry=member.entry,
            roster_position=member.roster_position,
            roster_path=member.roster_path,
            signature=self._signatures[position],
        )
