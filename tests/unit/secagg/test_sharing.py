"""Shares open for their holder alone, and give back the secret or an error."""

import dataclasses
import hashlib
import itertools

import pytest

from edgefl._native import SHARE_BYTES, AgreementKey
from edgefl.errors import RemoteProtocolError, ShareError
from edgefl.protocol.messages import SEALED_BYTES
from edgefl.secagg.session import PeerKeys, Session
from edgefl.secagg.sharing import ShareChannels, reconstruct_mask_key, reconstruct_self_seed
from tests.round_harness import InsecureEntropy

N_DEVICES, THRESHOLD = 5, 3
ENTROPY = InsecureEntropy("sharing")
SHARE_SECRETS = [AgreementKey.from_seed(ENTROPY.fresh_seed()) for _ in range(N_DEVICES)]
MASK_SECRETS = [AgreementKey.from_seed(ENTROPY.fresh_seed()) for _ in range(N_DEVICES)]
SELF_SEEDS = [ENTROPY.fresh_seed() for _ in range(N_DEVICES)]
SESSION = Session(
    session_id=b"\x03" * 32,
    suite=1,
    round_number=2,
    attempt=3,
    length=10,
    ring_bits=20,
    peers=tuple(
        PeerKeys(
            share_key=share.public_key, mask_key=mask.public_key, advert_sha256=bytes([index]) * 32
        )
        for index, (share, mask) in enumerate(zip(SHARE_SECRETS, MASK_SECRETS, strict=True))
    ),
)
OWNER = 1
SEALED = ShareChannels(SESSION, OWNER, SHARE_SECRETS[OWNER]).share_secrets(
    MASK_SECRETS[OWNER], SELF_SEEDS[OWNER], THRESHOLD, ENTROPY.fresh_seed()
)
HOLDERS = [position for position in range(N_DEVICES) if position != OWNER]


def channels(own: int, session: Session = SESSION) -> ShareChannels:
    return ShareChannels(session, own, SHARE_SECRETS[own])


OPENED = {holder: channels(holder).open_shares(OWNER, SEALED[holder]) for holder in HOLDERS}
MASK_SHARES = {holder: pair[0] for holder, pair in OPENED.items()}
SEED_SHARES = {holder: pair[1] for holder, pair in OPENED.items()}
COMMITMENT = SELF_SEEDS[OWNER].commitment(SESSION.session_id)


def test_sizes() -> None:
    assert [len(sealed) for sealed in SEALED] == [
        0 if position == OWNER else SEALED_BYTES for position in range(N_DEVICES)
    ]
    assert {len(share) for pair in OPENED.values() for share in pair} == {SHARE_BYTES}


@pytest.mark.parametrize("thief", HOLDERS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_only_the_holder_opens_its_share(holder: int, thief: int) -> None:
    if thief == holder:
        assert channels(thief).open_shares(OWNER, SEALED[holder]) == OPENED[holder]
        return
    with pytest.raises(RemoteProtocolError):
        channels(thief).open_shares(OWNER, SEALED[holder])


@pytest.mark.parametrize("claimed", [0, 2, 3, 4])
def test_a_share_cannot_be_passed_off_as_another_owners(claimed: int) -> None:
    holder = 0 if claimed else 2
    with pytest.raises(RemoteProtocolError):
        channels(holder).open_shares(claimed, SEALED[holder])


def test_a_share_cannot_be_sent_back_to_its_owner_as_the_holders() -> None:
    with pytest.raises(RemoteProtocolError):
        channels(OWNER).open_shares(0, SEALED[0])


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": b"\x04" * 32},
        {"round_number": 3},
        {"attempt": 4},
        {"suite": 2},
        {"length": 11},
        {"ring_bits": 21},
        {"peers": (*SESSION.peers[:1], dataclasses.replace(SESSION.peers[1], advert_sha256=b""))},
    ],
    ids=str,
)
def test_shares_belong_to_one_session(change: dict[str, object]) -> None:
    other = dataclasses.replace(SESSION, **change)
    with pytest.raises(RemoteProtocolError):
        channels(0, other).open_shares(OWNER, SEALED[0])


@pytest.mark.parametrize("holders", list(itertools.combinations(HOLDERS, THRESHOLD)))
def test_any_threshold_of_holders_reconstruct(holders: tuple[int, ...]) -> None:
    key = reconstruct_mask_key(
        {holder: MASK_SHARES[holder] for holder in holders},
        THRESHOLD,
        MASK_SECRETS[OWNER].public_key,
    )
    assert key.public_key == MASK_SECRETS[OWNER].public_key
    seed = reconstruct_self_seed(
        {holder: SEED_SHARES[holder] for holder in holders},
        THRESHOLD,
        COMMITMENT,
        SESSION.session_id,
    )
    assert seed.export_bytes() == SELF_SEEDS[OWNER].export_bytes()


@pytest.mark.parametrize("n_holders", range(THRESHOLD))
def test_fewer_do_not(n_holders: int) -> None:
    few = {holder: SEED_SHARES[holder] for holder in HOLDERS[:n_holders]}
    with pytest.raises(ShareError):
        reconstruct_self_seed(few, THRESHOLD, COMMITMENT, SESSION.session_id)
    few = {holder: MASK_SHARES[holder] for holder in HOLDERS[:n_holders]}
    with pytest.raises(ShareError):
        reconstruct_mask_key(few, THRESHOLD, MASK_SECRETS[OWNER].public_key)


def lie(share: bytes) -> bytes:
    # Not in the lowest byte, of which X25519 ignores three bits; and no two liars tell equal lies,
    # which could cancel each other.
    noise = hashlib.sha256(share).digest()[:5]
    changed = bytes(byte ^ other for byte, other in zip(share[1:6], noise, strict=True))
    return share[:1] + changed + share[6:]


def broken(share: bytes) -> bytes:
    return b"\xff" * len(share)


def of_the_other_kind(_: bytes) -> bytes:
    return MASK_SHARES[HOLDERS[0]]


def short(share: bytes) -> bytes:
    return share[:-1]


@pytest.mark.parametrize("change", [lie, broken, of_the_other_kind, short])
@pytest.mark.parametrize("liar", HOLDERS)
def test_one_liar_among_four_is_survived(liar: int, change) -> None:  # type: ignore[no-untyped-def]
    shares = SEED_SHARES | {liar: change(SEED_SHARES[liar])}
    seed = reconstruct_self_seed(shares, THRESHOLD, COMMITMENT, SESSION.session_id)
    assert seed.export_bytes() == SELF_SEEDS[OWNER].export_bytes()


@pytest.mark.parametrize("liars", list(itertools.combinations(HOLDERS, 2)))
def test_two_liars_among_four_are_noticed(liars: tuple[int, ...]) -> None:
    shares = SEED_SHARES | {liar: lie(SEED_SHARES[liar]) for liar in liars}
    with pytest.raises(ShareError, match="E-SHARE-WRONG"):
        reconstruct_self_seed(shares, THRESHOLD, COMMITMENT, SESSION.session_id)
    shares = MASK_SHARES | {liar: lie(MASK_SHARES[liar]) for liar in liars}
    with pytest.raises(ShareError, match="E-SHARE-WRONG"):
        reconstruct_mask_key(shares, THRESHOLD, MASK_SECRETS[OWNER].public_key)


def test_a_commitment_to_another_seed_is_noticed() -> None:
    for commitment, context in (
        (SELF_SEEDS[0].commitment(SESSION.session_id), SESSION.session_id),
        (COMMITMENT, bytes(32)),
    ):
        with pytest.raises(ShareError, match="E-SHARE-WRONG"):
            reconstruct_self_seed(SEED_SHARES, THRESHOLD, commitment, context)


def test_sharing_again_gives_other_shares() -> None:
    again = channels(OWNER).share_secrets(
        MASK_SECRETS[OWNER], SELF_SEEDS[OWNER], THRESHOLD, ENTROPY.fresh_seed()
    )
    assert not set(again) & (set(SEALED) - {b""})
