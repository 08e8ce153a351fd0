"""Every message of the protocol, by who sends it; the envelope finds them here by their kind."""

from edgefl.errors import WireError
from edgefl.protocol.enrolment_messages import (
    CertificateIssued,
    EnrolmentAnswer,
    EnrolmentRequest,
    RenewalRequest,
)
from edgefl.protocol.epoch_messages import (
    EpochClosed,
    EpochInvitation,
    EpochOpened,
    KeyBundleMessage,
    NonceReveal,
    RosterUpdate,
)
from edgefl.protocol.one_upload_messages import (
    CommitteeProposal,
    Deposit,
    DepositCall,
    OneUpload,
    OneUploadAnnouncement,
)
from edgefl.protocol.round_messages import (
    Call,
    CheckIn,
    Leave,
    MaskedInput,
    PlanAnnouncement,
    RevealedShares,
    RoundClosed,
    RoutedShares,
    SharedKeys,
    SurvivorProposal,
    SurvivorVote,
    UnmaskRequest,
)
from edgefl.protocol.service_messages import (
    AggregatorStatus,
    Blob,
    GetBlob,
    Hello,
    Receipt,
    Rejection,
)
from edgefl.transfer.messages import (
    TransferGrant,
    TransferOffer,
    TransferProgress,
    TransferRefusal,
)

DeviceMessage = (
    Hello
    | CheckIn
    | SharedKeys
    | MaskedInput
    | RevealedShares
    | Leave
    | GetBlob
    | KeyBundleMessage
    | NonceReveal
    | SurvivorVote
    | Deposit
    | OneUpload
    | EnrolmentRequest
    | RenewalRequest
    | TransferOffer
    | TransferGrant
    | TransferProgress
    | TransferRefusal
)
AggregatorMessage = (
    Call
    | PlanAnnouncement
    | RoutedShares
    | UnmaskRequest
    | RoundClosed
    | Receipt
    | Blob
    | SurvivorProposal
    | AggregatorStatus
    | Rejection
    | RosterUpdate
    | EpochInvitation
    | EpochClosed
    | EpochOpened
    | DepositCall
    | OneUploadAnnouncement
    | CommitteeProposal
    | EnrolmentAnswer
    | CertificateIssued
    | TransferOffer
    | TransferGrant
    | TransferProgress
    | TransferRefusal
)
Message = DeviceMessage | AggregatorMessage
"""The messages of transfers are in both: each side offers, grants and receives."""

DEVICE_MESSAGES: tuple[type[DeviceMessage], ...] = (
    Hello,
    CheckIn,
    SharedKeys,
    MaskedInput,
    RevealedShares,
    Leave,
    GetBlob,
    KeyBundleMessage,
    NonceReveal,
    SurvivorVote,
    Deposit,
    OneUpload,
    EnrolmentRequest,
    RenewalRequest,
    TransferOffer,
    TransferGrant,
    TransferProgress,
    TransferRefusal,
)
AGGREGATOR_MESSAGES: tuple[type[AggregatorMessage], ...] = (
    Call,
    PlanAnnouncement,
    RoutedShares,
    UnmaskRequest,
    RoundClosed,
    Receipt,
    Blob,
    SurvivorProposal,
    AggregatorStatus,
    Rejection,
    RosterUpdate,
    EpochInvitation,
    EpochClosed,
    EpochOpened,
    DepositCall,
    OneUploadAnnouncement,
    CommitteeProposal,
    EnrolmentAnswer,
    CertificateIssued,
    TransferOffer,
    TransferGrant,
    TransferProgress,
    TransferRefusal,
)
_BY_KIND: dict[int, type[Message]] = {
    message.kind: message for message in (*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES)
}


def type_of(kind: int) -> type[Message]:
    """Return the type of the messages of a kind.

    Raises:
        WireError: This process knows none.
    """
    message_type = _BY_KIND.get(kind)
    if message_type is None:
        raise WireError("E-WIRE-KIND", "a known message kind", str(kind))
    return message_type
