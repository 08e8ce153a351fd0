"""Every message of the protocol, by who sends it; the envelope finds them here by their kind."""

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
    KeyBundleMessage,
    NonceReveal,
    SurvivorVote,
    Deposit,
    OneUpload,
    EnrolmentRequest,
    RenewalRequest,
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
)
