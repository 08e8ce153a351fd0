"""Hypothesis strategies that several test files share."""

from hypothesis import strategies as st

from edgefl.privacy.sampling import ALWAYS
from edgefl.protocol.certificate import CertificateSignature, SurvivorCertificate
from edgefl.protocol.enrolment_messages import (
    CertificateIssued,
    EnrolmentAnswer,
    EnrolmentRequest,
    EnrolmentState,
    RenewalRequest,
)
from edgefl.protocol.key_bundle import MaskKeyProof
from edgefl.protocol.limits import SEALED_BYTES, SEALED_SHARE_BYTES, SHARE_BYTES
from edgefl.protocol.messages import Message
from edgefl.protocol.one_upload_messages import (
    CommitteeProposal,
    Deposit,
    DepositCall,
    OneUpload,
    OneUploadAnnouncement,
)
from edgefl.protocol.one_upload_sharing import SealingKey
from edgefl.protocol.one_upload_sizes import DepositTerms
from edgefl.protocol.reasons import AbortReason, AdversaryClass, LeaveReason, Phase, RoundMode
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
from edgefl.protocol.wire import MAX_DEPTH
from edgefl.transfer.manifest import (
    MAX_CHUNK_BYTES,
    MIN_CHUNK_BYTES,
    TRANSFER_ID_BYTES,
    describe,
)
from edgefl.transfer.messages import (
    MAX_WINDOW_BYTES,
    RefusalReason,
    TransferGrant,
    TransferOffer,
    TransferProgress,
    TransferRefusal,
)
from tests.epoch_strategies import (
    DIGESTS,
    ENTRIES,
    EPOCH_BY_TYPE,
    KEY_EPOCHS,
    PATHS,
    PEERS,
    SIGNATURES,
)

MASK_KEYS = st.builds(MaskKeyProof, index=st.integers(0, 1023), key=DIGESTS, path=PATHS)
BITMAPS = st.binary(max_size=16)
ATTEMPTS = st.integers(1, 1_000_000)
KEY_INDICES = st.integers(0, 1023)
SEALED_LISTS = st.lists(st.binary(min_size=SEALED_BYTES, max_size=SEALED_BYTES), max_size=4).map(
    tuple
)


def by_position(values: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    """Return pairs of position and value, ascending by position."""
    return st.dictionaries(st.integers(0, 16_383), values, max_size=3).map(
        lambda pairs: tuple(sorted(pairs.items()))
    )


CERTIFICATES = st.lists(
    st.builds(
        CertificateSignature,
        entry=ENTRIES,
        roster_position=st.integers(0, 65_535),
        roster_path=PATHS,
        signature=SIGNATURES,
    ),
    max_size=3,
    unique_by=lambda signature: signature.roster_position,
).map(
    lambda found: SurvivorCertificate(
        signatures=tuple(sorted(found, key=lambda signature: signature.roster_position))
    )
)

SEALED_SHARES = st.lists(
    st.binary(min_size=SEALED_SHARE_BYTES, max_size=SEALED_SHARE_BYTES), max_size=4
).map(tuple)
DEPOSITS = st.builds(Deposit, mask_key=MASK_KEYS, sealed=SEALED_SHARES)
HOLDERS = st.lists(PEERS, max_size=3, unique_by=lambda peer: peer.roster_position).map(
    lambda peers: tuple(
        peer.member for peer in sorted(peers, key=lambda peer: peer.roster_position)
    )
)

AUTHORITIES = st.lists(st.binary(min_size=1, max_size=40), max_size=3).map(tuple)
ENROLMENT_BY_TYPE: dict[type[Message], st.SearchStrategy[Message]] = {
    EnrolmentRequest: st.builds(
        EnrolmentRequest,
        identity_key=DIGESTS,
        agent_version=st.text(max_size=64),
        certificate_request=st.binary(max_size=200),
        claim_signature=st.binary(max_size=80),
    ),
    RenewalRequest: st.builds(
        RenewalRequest, certificate_request=st.binary(max_size=200), trusted_digest=DIGESTS
    ),
    EnrolmentAnswer: st.sampled_from(EnrolmentState).flatmap(
        lambda state: st.builds(
            EnrolmentAnswer,
            state=st.just(state),
            reason=st.text(max_size=100),
            digest=DIGESTS,
            certificate=st.binary(min_size=1, max_size=100)
            if state is EnrolmentState.ACCEPTED
            else st.just(b""),
            authorities=AUTHORITIES,
        )
    ),
    CertificateIssued: st.builds(
        CertificateIssued, certificate=st.binary(max_size=100), authorities=AUTHORITIES
    ),
}

CHUNK_BYTES = st.integers(MIN_CHUNK_BYTES, MAX_CHUNK_BYTES)
TRANSFER_IDS = st.binary(min_size=TRANSFER_ID_BYTES, max_size=TRANSFER_ID_BYTES)
MANIFESTS = st.builds(
    describe,
    st.integers(1, 3 * MIN_CHUNK_BYTES).map(lambda size_bytes: b"x" * size_bytes),
    CHUNK_BYTES,
)
TRANSFER_BY_TYPE: dict[type[Message], st.SearchStrategy[Message]] = {
    TransferOffer: st.builds(
        TransferOffer,
        message_kind=st.integers(0, 255),
        head=st.binary(max_size=80),
        bulk_key=st.none() | st.integers(0, 255),
        manifest=MANIFESTS,
        window_bytes=st.none() | st.integers(0, MAX_WINDOW_BYTES),
    ),
    TransferGrant: st.builds(
        TransferGrant,
        transfer_id=TRANSFER_IDS,
        epoch=st.integers(0, 2**53),
        number=st.integers(1, 2**32 - 1),
        window_bytes=st.integers(0, 1 << 26),
        deadline_ms=st.integers(0, 10**6),
        missing=BITMAPS,
    ),
    TransferProgress: st.builds(
        TransferProgress,
        transfer_id=TRANSFER_IDS,
        epoch=st.integers(0, 2**53),
        number=st.integers(0, 2**32 - 1),
        missing=BITMAPS,
        is_done=st.booleans(),
    ),
    TransferRefusal: st.builds(
        TransferRefusal,
        transfer_id=TRANSFER_IDS,
        reason=st.sampled_from(RefusalReason),
        limit_bytes=st.integers(0, 2**53),
    ),
}

BY_TYPE: dict[type[Message], st.SearchStrategy[Message]] = {
    **EPOCH_BY_TYPE,
    **ENROLMENT_BY_TYPE,
    **TRANSFER_BY_TYPE,
    Hello: st.builds(
        Hello,
        identity_key=DIGESTS,
        agent_version=st.text(max_size=64),
        roster_number=st.integers(0, 2**32 - 1),
        key_epoch=st.integers(0, 2**32 - 1),
        backend=st.text(max_size=32),
        protocol_minor=st.integers(0, 2**16),
        chunk_bytes=CHUNK_BYTES,
    ),
    CheckIn: st.builds(CheckIn, call_id=DIGESTS, mask_key=MASK_KEYS),
    SharedKeys: st.builds(SharedKeys, commitment=DIGESTS, sealed=SEALED_LISTS),
    MaskedInput: st.builds(
        MaskedInput, packed=st.binary(max_size=200), skipped=by_position(DIGESTS)
    ),
    SurvivorVote: st.builds(SurvivorVote, signature=SIGNATURES),
    RevealedShares: st.builds(
        RevealedShares, shares=by_position(st.binary(min_size=SHARE_BYTES, max_size=SHARE_BYTES))
    ),
    Leave: st.builds(Leave, reason=st.sampled_from(LeaveReason)),
    GetBlob: st.builds(GetBlob, sha256=DIGESTS),
    Call: st.builds(
        Call,
        task=st.text(max_size=64),
        round_number=ATTEMPTS,
        attempt=ATTEMPTS,
        mode=st.sampled_from(RoundMode),
        key_epoch=KEY_EPOCHS,
        key_index=KEY_INDICES,
        nonce=DIGESTS,
        closes_in_ms=st.integers(0, 7 * 24 * 3600 * 1000),
        coin=st.integers(1, ALWAYS - 1),
        draw=ATTEMPTS,
    ),
    PlanAnnouncement: st.builds(
        PlanAnnouncement, plan=st.binary(max_size=200), peers=by_position(PEERS)
    ),
    RoutedShares: st.builds(RoutedShares, sharers=BITMAPS, sealed=SEALED_LISTS),
    SurvivorProposal: st.builds(SurvivorProposal, survivors=BITMAPS, dropped=BITMAPS),
    UnmaskRequest: st.builds(
        UnmaskRequest,
        survivors=BITMAPS,
        dropped=BITMAPS,
        certificate=st.none() | CERTIFICATES,
    ),
    RoundClosed: st.builds(
        RoundClosed,
        phase=st.sampled_from([Phase.COMMITTED, Phase.ABORTED]),
        reason=st.sampled_from(AbortReason),
        counted=st.booleans(),
    ),
    Receipt: st.builds(Receipt, digest=DIGESTS),
    Blob: st.builds(Blob, content=st.binary(max_size=200)),
    AggregatorStatus: st.builds(
        AggregatorStatus,
        identity_key=DIGESTS,
        epoch=st.integers(0, 2**53),
        least_agent_version=st.text(max_size=64),
        most_sleep_s=st.integers(0, 24 * 3600),
        protocol_minor=st.integers(0, 2**16),
        gateway_version=st.text(max_size=64),
        chunk_bytes=CHUNK_BYTES,
        moved_to=st.lists(st.text(max_size=200), max_size=8).map(tuple),
    ),
    Deposit: DEPOSITS,
    OneUpload: st.builds(
        OneUpload,
        packed=st.binary(max_size=200),
        commitment=DIGESTS,
        sealed=SEALED_SHARES,
        next_deposit=st.none() | DEPOSITS,
    ),
    DepositCall: st.builds(
        DepositCall,
        key_epoch=KEY_EPOCHS,
        key_index=KEY_INDICES,
        terms=st.builds(
            DepositTerms,
            adversary=st.sampled_from(AdversaryClass),
            corrupt_permille=st.integers(0, 500),
            drop_permille=st.integers(0, 1000),
        ),
        holders=HOLDERS,
    ),
    OneUploadAnnouncement: st.builds(
        OneUploadAnnouncement,
        plan=st.binary(max_size=200),
        peers=by_position(PEERS),
        holders=HOLDERS,
        asks_deposit=st.booleans(),
    ),
    CommitteeProposal: st.builds(
        CommitteeProposal,
        survivors=BITMAPS,
        dropped=BITMAPS,
        owners=st.lists(
            st.builds(SealingKey, share_key=DIGESTS, bundle_sha256=DIGESTS), max_size=3
        ).map(tuple),
        sealed=SEALED_SHARES,
    ),
    Rejection: st.builds(
        Rejection, code=st.text(max_size=40), text=st.text(max_size=400), digest=DIGESTS
    ),
}

MESSAGES = st.sampled_from(list(BY_TYPE)).flatmap(BY_TYPE.__getitem__)

_LEAVES = (
    st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=80)
    | st.booleans()
    | st.none()
)

PLAIN_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.integers(-3, 20), inner, max_size=6)
    ),
    max_leaves=MAX_DEPTH * 3,
)
"""What a decoder may meet: any mixture of plain CBOR types."""

BODIES = st.dictionaries(st.integers(-1, 17), PLAIN_VALUES, max_size=17)
