"""The aggregator's phases, one class each: whom it waits for, what it takes, when it may go on."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Set
from typing import ClassVar

from edgefl.errors import ConfigError, LocalProtocolError
from edgefl.protocol.certificate import SurvivorCertificate
from edgefl.protocol.check_ins import CheckIns
from edgefl.protocol.collection import SessionCollection
from edgefl.protocol.events import Charge, DeviceSaid
from edgefl.protocol.messages import AggregatorMessage, DeviceMessage
from edgefl.protocol.reasons import AbortReason, Phase
from edgefl.protocol.round_messages import (
    CheckIn,
    MaskedInput,
    RevealedShares,
    SharedKeys,
    SurvivorVote,
)
from edgefl.protocol.round_setup import RoundSetup
from edgefl.protocol.votes import VoteCollection


class RoundPhase(ABC):
    """One open phase."""

    phase: ClassVar[Phase]
    takes: ClassVar[type[DeviceMessage] | tuple[type[DeviceMessage], ...]]
    """The message that the phase takes; others are not for it, and change nothing."""
    session: SessionCollection | None = None

    @property
    @abstractmethod
    def expected(self) -> Set[str]:
        """Devices that the phase was opened for."""

    @property
    @abstractmethod
    def done(self) -> Set[str]:
        """Devices that completed it."""

    @property
    @abstractmethod
    def needed(self) -> int:
        """Least number of devices that it can go on with."""

    @property
    def present(self) -> Set[str]:
        """Devices that belong to the round, whether or not the phase expects them."""
        return self.expected

    @abstractmethod
    def take(self, event: DeviceSaid) -> bool:
        """Take the phase's message, and tell whether it is news.

        Raises:
            RemoteProtocolError: The device broke the protocol.
        """

    @abstractmethod
    def message_for(self, device: str) -> AggregatorMessage | None:
        """Return what the phase asks a device that it expects."""

    @abstractmethod
    def close(self) -> AbortReason | None:
        """Close the phase, and return why the round cannot go on, if it cannot."""

    @abstractmethod
    def next(self) -> "RoundPhase":
        """Return the phase that follows; this one is closed."""

    @property
    def silence_is_a_dropout(self) -> bool:
        """Whether a device that says nothing was expected to speak."""
        return True

    waits_for_stragglers: ClassVar[bool] = True
    """Whether a phase that has all it needs waits a moment for the others."""

    def is_ample(self, silent: Collection[str]) -> bool:
        """Tell whether nothing more is needed, although some may still answer.

        Args:
            silent: Devices that are not waited for.
        """
        del silent
        return False


class CheckInPhase(RoundPhase):
    """Devices say that they take part.

    Args:
        setup: The gateway's decisions.
    """

    phase = Phase.CHECK_IN
    takes = CheckIn

    def __init__(self, setup: RoundSetup) -> None:
        """Start with nobody."""
        self._setup = setup
        self._check_ins = CheckIns(setup)

    @property
    def expected(self) -> Set[str]:
        """Everybody who is called."""
        return self._setup.population

    @property
    def done(self) -> Set[str]:
        """Devices that checked in."""
        return self._check_ins.devices

    @property
    def needed(self) -> int:
        """The survivor floor."""
        return self._setup.privacy.survivor_floor

    def take(self, event: DeviceSaid) -> bool:
        """Take a check-in."""
        message = event.message
        return isinstance(message, CheckIn) and self._check_ins.take(event.device, message)

    @property
    def silence_is_a_dropout(self) -> bool:
        """Whether everybody who is called is expected to check in: not where coins are thrown."""
        return not self._setup.is_drawn

    def message_for(self, device: str) -> AggregatorMessage | None:
        """Return the call."""
        del device
        return self._setup.call

    def close(self) -> AbortReason | None:
        """Fix the cohort."""
        if len(self.done) < self.needed:
            return AbortReason.TOO_FEW_CHECKED_IN
        if len(self.done) > self._setup.privacy.n_cohort:
            return AbortReason.TOO_MANY_CHECKED_IN
        try:
            self.session = SessionCollection(self._check_ins.make_session())
        except ConfigError:
            # So few have no graph with which the survivor floor could be unmasked.
            return AbortReason.TOO_FEW_CHECKED_IN
        return None if self.session.members_hold() else AbortReason.NEIGHBOURHOOD_LOST

    def next(self) -> RoundPhase:
        """Return SHARE_KEYS."""
        return ShareKeysPhase(_require(self.session))


class SessionPhase(RoundPhase):
    """A phase with a session plan.

    Args:
        session: What is collected.
    """

    session: SessionCollection

    def __init__(self, session: SessionCollection) -> None:
        """Go on with a session."""
        self.session = session

    @property
    def needed(self) -> int:
        """The survivor floor."""
        return self.session.plan.thresholds.survivor_floor

    def take(self, event: DeviceSaid) -> bool:
        """Take the message of a member, if it is for this session."""
        position = self.session.position_of(event.device)
        if position is None or event.session_id != self.session.plan.session_id:
            return False
        return self._take(position, event.message)

    @abstractmethod
    def _take(self, position: int, message: DeviceMessage) -> bool:
        """Take the message of a member."""

    def message_for(self, device: str) -> AggregatorMessage | None:
        """Return what the phase asks a member that it expects."""
        position = self.session.position_of(device)
        return None if position is None else self._message_to(position)

    @abstractmethod
    def _message_to(self, position: int) -> AggregatorMessage | None:
        """Return what the phase asks a member that it expects."""


class ShareKeysPhase(SessionPhase):
    """The cohort agrees on the plan and shares its secrets."""

    phase = Phase.SHARE_KEYS
    takes = SharedKeys

    @property
    def expected(self) -> Set[str]:
        """The cohort."""
        return self.session.members

    @property
    def done(self) -> Set[str]:
        """Devices whose shares arrived."""
        return self.session.shared

    def close(self) -> AbortReason | None:
        """Fix who makes masks with whom."""
        if len(self.done) < self.needed:
            return AbortReason.TOO_FEW_SHARED_KEYS
        self.session.fix_sharers()
        return None if self.session.sharers_hold() else AbortReason.NEIGHBOURHOOD_LOST

    def next(self) -> RoundPhase:
        """Return MASKED_INPUT."""
        return MaskedInputPhase(self.session)

    def _take(self, position: int, message: DeviceMessage) -> bool:
        return isinstance(message, SharedKeys) and self.session.take_shared_keys(position, message)

    def _message_to(self, position: int) -> AggregatorMessage:
        return self.session.announcement_to(position)


class MaskedInputPhase(SessionPhase):
    """Devices train, and send their masked updates."""

    phase = Phase.MASKED_INPUT
    takes = MaskedInput

    @property
    def expected(self) -> Set[str]:
        """Devices that masks are made with."""
        return self.session.sharers

    @property
    def done(self) -> Set[str]:
        """Devices whose masked input is in the sum."""
        return self.session.survivors

    def close(self) -> AbortReason | None:
        """Fix the survivors."""
        thresholds = self.session.plan.thresholds
        if len(self.done) < self.needed:
            return AbortReason.BELOW_SURVIVOR_FLOOR
        if not self.session.survivors_hold():
            return AbortReason.NEIGHBOURHOOD_LOST
        if len(self.session.voters()) < thresholds.certificate:
            return AbortReason.TOO_FEW_SIGNATURES
        self.session.forget_sealed_shares()
        return None

    def next(self) -> RoundPhase:
        """Return CERTIFICATE where the plan has a committee, else UNMASKING."""
        if self.session.plan.thresholds.committee:
            return CertificatePhase(self.session)
        return UnmaskingPhase(self.session, None)

    def _take(self, position: int, message: DeviceMessage) -> bool:
        if not isinstance(message, MaskedInput):
            return False
        return self.session.take_masked_input(position, message)

    def _message_to(self, position: int) -> AggregatorMessage:
        return self.session.routed_to(position)


class CertificatePhase(SessionPhase):
    """The committee signs who survived."""

    phase = Phase.CERTIFICATE
    takes = SurvivorVote

    def __init__(self, session: SessionCollection) -> None:
        """Propose the lists."""
        super().__init__(session)
        self._votes = VoteCollection(
            session.plan.session_id,
            session.proposal(),
            session.voters(),
            session.plan.thresholds.certificate,
        )

    @property
    def expected(self) -> Set[str]:
        """The committee's survivors."""
        return self.session.names(self._votes.members)

    @property
    def present(self) -> Set[str]:
        """All survivors."""
        return self.session.survivors

    @property
    def done(self) -> Set[str]:
        """Those who signed."""
        return self.session.names(self._votes.voters)

    @property
    def needed(self) -> int:
        """The certificate threshold."""
        return self._votes.needed

    waits_for_stragglers: ClassVar[bool] = False

    def is_ample(self, silent: Collection[str]) -> bool:
        """Tell whether there are votes enough."""
        del silent
        return len(self._votes.voters) >= self._votes.needed

    def close(self) -> AbortReason | None:
        """Close the vote."""
        too_few = len(self._votes.voters) < self._votes.needed
        return AbortReason.TOO_FEW_SIGNATURES if too_few else None

    def next(self) -> RoundPhase:
        """Return UNMASKING."""
        return UnmaskingPhase(self.session, self._votes.certificate())

    def _take(self, position: int, message: DeviceMessage) -> bool:
        return isinstance(message, SurvivorVote) and self._votes.take(position, message)

    def _message_to(self, position: int) -> AggregatorMessage:
        del position
        return self._votes.proposal


class UnmaskingPhase(SessionPhase):
    """Survivors reveal shares, once the privacy ledger was charged.

    Args:
        session: What is collected.
        certificate: The committee's signatures, where the plan has a committee.
    """

    phase = Phase.UNMASKING
    takes: ClassVar[type[DeviceMessage] | tuple[type[DeviceMessage], ...]] = RevealedShares

    def __init__(self, session: SessionCollection, certificate: SurvivorCertificate | None) -> None:
        """Make the request; it is shown to nobody before the charge."""
        super().__init__(session)
        self._request = session.unmask_request(certificate)
        self.is_charged = False

    @property
    def expected(self) -> Set[str]:
        """Devices whose masked input is in the sum."""
        return self.session.survivors

    @property
    def done(self) -> Set[str]:
        """Devices that answered."""
        return self.session.revealers

    @property
    def needed(self) -> int:
        """One answer more than the threshold: nobody holds a share of its own secret."""
        return self.session.plan.thresholds.neighbourhood + 1

    def charge(self) -> Charge:
        """Return what the ledger is charged with."""
        return Charge(plan=self.session.plan, n_survivors=len(self.session.survivors))

    def is_ample(self, silent: Collection[str]) -> bool:
        """Tell whether each secret has spare shares, or all that will come."""
        return self.session.has_ample_shares(
            {
                position
                for device in silent
                if (position := self.session.position_of(device)) is not None
            }
        )

    def close(self) -> AbortReason | None:
        """Close the collection of shares."""
        enough = self.session.has_enough_shares()
        return None if enough else AbortReason.TOO_FEW_UNMASKED

    def next(self) -> RoundPhase:
        """Return this phase, the last one: the unmasking job is what follows."""
        return self

    def _take(self, position: int, message: DeviceMessage) -> bool:
        if not isinstance(message, RevealedShares) or not self.is_charged:
            return False
        return self.session.take_revealed(position, message)

    def _message_to(self, position: int) -> AggregatorMessage | None:
        del position
        return self._request if self.is_charged else None


def _require(session: SessionCollection | None) -> SessionCollection:
    if session is None:
        raise LocalProtocolError("E-AGGREGATOR-STATE", "a session", "none")
    return session


ROUND_PHASES: tuple[type[RoundPhase], ...] = (
    CheckInPhase,
    ShareKeysPhase,
    MaskedInputPhase,
    CertificatePhase,
    UnmaskingPhase,
)
