"""Hypothesis strategies that several test files share."""

from hypothesis import strategies as st

from edgefl.protocol.messages import (
    AGGREGATOR_MESSAGES,
    DEVICE_MESSAGES,
    SEALED_BYTES,
    SHARE_BYTES,
    AggregatorStatus,
    Blob,
    Call,
    CheckIn,
    GetBlob,
    Hello,
    KeyAdvert,
    Leave,
    MaskedInput,
    Message,
    PlanAnnouncement,
    Receipt,
    Rejection,
    RevealedShares,
    RoundClosed,
    RoutedShares,
    SharedKeys,
    UnmaskRequest,
)
from edgefl.protocol.reasons import AbortReason, LeaveReason, Phase
from edgefl.protocol.wire import MAX_DEPTH
from tests.epoch_strategies import EPOCH_BY_TYPE

DIGESTS = st.binary(min_size=32, max_size=32)
NAMES = st.text("abcdefghij0123456789._-", min_size=1, max_size=64)
SEALED = st.binary(min_size=SEALED_BYTES, max_size=SEALED_BYTES)
BITMAPS = st.binary(max_size=16)
ATTEMPTS = st.integers(1, 1_000_000)

ADVERTS = st.builds(
    KeyAdvert,
    device=NAMES,
    identity_key=DIGESTS,
    share_key=DIGESTS,
    mask_key=DIGESTS,
    signature=st.binary(min_size=64, max_size=64),
)

BY_TYPE: dict[type[Message], st.SearchStrategy[Message]] = {
    **EPOCH_BY_TYPE,
    Hello: st.builds(Hello, identity_key=DIGESTS, agent_version=st.text(max_size=64)),
    CheckIn: st.builds(CheckIn, call_id=DIGESTS, advert=ADVERTS),
    SharedKeys: st.builds(
        SharedKeys,
        commitment=DIGESTS,
        sealed=st.lists(SEALED | st.just(b""), max_size=4).map(tuple),
    ),
    MaskedInput: st.builds(MaskedInput, packed=st.binary(max_size=200)),
    RevealedShares: st.builds(
        RevealedShares,
        shares=st.dictionaries(
            st.integers(0, 4095), st.binary(min_size=SHARE_BYTES, max_size=SHARE_BYTES), max_size=4
        ).map(lambda shares: tuple(sorted(shares.items()))),
    ),
    Leave: st.builds(Leave, reason=st.sampled_from(LeaveReason)),
    GetBlob: st.builds(GetBlob, sha256=DIGESTS),
    Call: st.builds(
        Call,
        task=st.text(max_size=64),
        round_number=ATTEMPTS,
        attempt=ATTEMPTS,
        nonce=DIGESTS,
        closes_in_ms=st.integers(0, 7 * 24 * 3600 * 1000),
    ),
    PlanAnnouncement: st.builds(PlanAnnouncement, plan=st.binary(max_size=200)),
    RoutedShares: st.builds(
        RoutedShares,
        sharers=BITMAPS,
        sealed=st.lists(SEALED | st.just(b""), max_size=4).map(tuple),
    ),
    UnmaskRequest: st.builds(UnmaskRequest, survivors=BITMAPS, dropped=BITMAPS),
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
    ),
    Rejection: st.builds(
        Rejection, code=st.text(max_size=40), text=st.text(max_size=400), digest=DIGESTS
    ),
}

MESSAGES = st.sampled_from([*DEVICE_MESSAGES, *AGGREGATOR_MESSAGES]).flatmap(BY_TYPE.__getitem__)

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
