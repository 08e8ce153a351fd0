"""The aggregator's phases of a one-upload round: whom each waits for, what it takes, when it ends.

There is no check-in and nobody shares keys with neighbours: who deposited is the cohort.
"""

from collections.abc import Set

from edgefl.protocol.certificate import SurvivorCertificate
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.one_upload_collection import OneUploadCollection
from edgefl.protocol.one_upload_messages import OneUpload
from edgefl.protocol.reasons import AbortReason, Phase
from edgefl.protocol.round_messages import RevealedShares, SurvivorVote
from edgefl.protocol.round_phases import (
    CertificatePhase,
    RoundPhase,
    SessionPhase,
    UnmaskingPhase,
)
from edgefl.protocol.votes import VoteCollection


class UploadPhase(SessionPhase):
    """Devices train, and publish the one message of theirs."""

    phase = Phase.MASKED_INPUT
    takes = OneUpload
    session: OneUploadCollection

    @property
    def expected(self) -> Set[str]:
        """The cohort."""
        return self.session.members

    @property
    def done(self) -> Set[str]:
        """Devices whose upload is in the sum."""
        return self.session.survivors

    def close(self) -> AbortReason | None:
        """Fix the survivors."""
        if len(self.done) < self.needed:
            return AbortReason.BELOW_SURVIVOR_FLOOR
        if not self.session.survivors_hold():
            return AbortReason.NEIGHBOURHOOD_LOST
        if len(self.session.committee) < self.session.plan.thresholds.certificate:
            return AbortReason.TOO_FEW_SIGNATURES
        return None

    def next(self) -> RoundPhase:
        """Return CERTIFICATE, which every class has in this mode."""
        return CommitteePhase(self.session)

    def _take(self, position: int, message: DeviceMessage) -> bool:
        return isinstance(message, OneUpload) and self.session.take_upload(position, message)

    def _message_to(self, position: int) -> AggregatorMessage:
        return self.session.announce_to(position)


class CommitteePhase(CertificatePhase):
    """The committee signs who survived, and gets its shares."""

    session: OneUploadCollection

    def next(self) -> RoundPhase:
        """Return UNMASKING."""
        return RevealPhase(self.session, self._votes)

    def _message_to(self, position: int) -> AggregatorMessage:
        return self.session.proposal_to(position)


class RevealPhase(UnmaskingPhase):
    """The committee reveals shares, once the privacy ledger was charged.

    A member that has not voted yet has no shares to open: it gets the proposal again, and its late
    vote is answered by the request.

    Args:
        session: What is collected.
        votes: The votes so far, enough for a certificate.
    """

    session: OneUploadCollection
    takes = (RevealedShares, SurvivorVote)

    def __init__(self, session: OneUploadCollection, votes: VoteCollection) -> None:
        """Make the request; it is shown to nobody before the charge."""
        certificate: SurvivorCertificate | None = votes.certificate()
        super().__init__(session, certificate)
        self._votes = votes

    @property
    def expected(self) -> Set[str]:
        """The committee's survivors."""
        return self.session.committee

    @property
    def present(self) -> Set[str]:
        """All survivors."""
        return self.session.survivors

    @property
    def needed(self) -> int:
        """The committee's threshold: a member holds a share of its own secret too."""
        return self.session.plan.share_threshold

    def has_voted(self, device: str) -> bool:
        """Tell whether a member's vote arrived."""
        return self.session.position_of(device) in self._votes.voters

    def _take(self, position: int, message: DeviceMessage) -> bool:
        if isinstance(message, SurvivorVote):
            return self._votes.take(position, message)
        return super()._take(position, message)

    def _message_to(self, position: int) -> AggregatorMessage | None:
        if not self.is_charged:
            return None
        is_late = position not in self._votes.voters
        return self.session.proposal_to(position) if is_late else self._request
