"""Hypothesis strategies for messages about roster and key epochs."""

from hypothesis import strategies as st

from edgefl.protocol.epoch_messages import (
    EpochAggregatorMessage,
    EpochClosed,
    EpochDeviceMessage,
    EpochInvitation,
    EpochOpened,
    KeyBundleMessage,
    NonceReveal,
    RosterUpdate,
)
from edgefl.protocol.key_bundle import KeyBundle, MaskKeyProof
from edgefl.protocol.key_epoch import EpochRecord
from edgefl.protocol.peer_proof import PeerProof
from edgefl.protocol.roster_epoch import NO_HASH, RosterEntry, RosterEpoch
from edgefl.protocol.wire import encode_bitmap

DIGESTS = st.binary(min_size=32, max_size=32)
SIGNATURES = st.binary(min_size=64, max_size=64)
DEVICES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda name: name != "aggregator"
)
PATHS = st.lists(DIGESTS, max_size=16).map(tuple)
KEY_EPOCHS = st.integers(1, 2**32 - 1)
COUNTS = st.integers(0, 10).map(lambda bits: 1 << bits)

ENTRIES = st.builds(
    RosterEntry, device=DEVICES, identity_key=DIGESTS, enrolled_day=st.integers(0, 2**32 - 1)
)


@st.composite
def headers(draw: st.DrawFn) -> RosterEpoch:
    days = sorted(draw(st.sets(st.integers(0, 30_000), min_size=1, max_size=5)))
    by_day = tuple((day, draw(st.integers(1, 1000))) for day in days)
    number = draw(st.integers(1, 2**32 - 1))
    previous = NO_HASH if number == 1 else draw(DIGESTS.filter(lambda digest: digest != NO_HASH))
    return RosterEpoch(
        fleet=draw(DEVICES),
        number=number,
        root=draw(DIGESTS),
        size=sum(count for _, count in by_day),
        enrolled_by_day=by_day,
        previous_hash=previous,
        signature=draw(SIGNATURES),
    )


BUNDLES = st.builds(
    KeyBundle,
    device=DEVICES,
    identity_key=DIGESTS,
    key_epoch=KEY_EPOCHS,
    roster_hash=DIGESTS,
    share_key=DIGESTS,
    mask_root=DIGESTS,
    mask_key_count=COUNTS,
    prgs=st.sampled_from([1, 3]),
    nonce_commitment=DIGESTS,
    signature=SIGNATURES,
)


@st.composite
def records(draw: st.DrawFn) -> EpochRecord:
    bitmap = draw(st.lists(st.booleans(), min_size=2, max_size=40).filter(lambda m: sum(m) >= 2))
    return EpochRecord(
        fleet=draw(DEVICES),
        key_epoch=draw(KEY_EPOCHS),
        roster_number=draw(st.integers(1, 2**32 - 1)),
        roster_hash=draw(DIGESTS),
        roster_size=len(bitmap),
        members=encode_bitmap(bitmap),
        commitments_root=draw(DIGESTS),
        bundles_hash=draw(DIGESTS),
        gateway_commitment=draw(DIGESTS),
    )


PEERS = st.builds(
    PeerProof,
    entry=ENTRIES,
    roster_position=st.integers(0, 65_535),
    roster_path=PATHS,
    bundle=BUNDLES,
    mask_key=st.builds(MaskKeyProof, index=st.integers(0, 1023), key=DIGESTS, path=PATHS),
)

EpochMessage = EpochDeviceMessage | EpochAggregatorMessage
EPOCH_BY_TYPE: dict[type[EpochMessage], st.SearchStrategy[EpochMessage]] = {
    KeyBundleMessage: st.builds(KeyBundleMessage, bundle=BUNDLES),
    NonceReveal: st.builds(NonceReveal, record_hash=DIGESTS, nonce=DIGESTS),
    RosterUpdate: st.builds(
        RosterUpdate,
        enrolment_key=DIGESTS,
        headers=st.lists(headers(), max_size=3).map(tuple),
        enrolled_day=st.integers(0, 2**32 - 1),
        position=st.integers(0, 65_535),
        path=PATHS,
    ),
    EpochInvitation: st.builds(
        EpochInvitation,
        key_epoch=KEY_EPOCHS,
        roster_number=st.integers(1, 2**32 - 1),
        roster_hash=DIGESTS,
        mask_key_count=COUNTS,
    ),
    EpochClosed: st.builds(EpochClosed, record=records(), path=PATHS),
    EpochOpened: st.builds(
        EpochOpened,
        record_hash=DIGESTS,
        nonces=st.lists(DIGESTS, min_size=1, max_size=4).map(tuple),
        gateway_nonce=DIGESTS,
    ),
}
EPOCH_MESSAGES = st.sampled_from(list(EPOCH_BY_TYPE)).flatmap(EPOCH_BY_TYPE.__getitem__)
