"""Keys of a session: the same at both ends of a pair, and of no use anywhere else."""

import dataclasses

import pytest

from edgefl._native import AgreementKey, Seed
from edgefl.errors import RemoteProtocolError
from edgefl.secagg.session import PeerKeys, Session
from tests.round_harness import InsecureEntropy

ENTROPY = InsecureEntropy("session")
SECRETS = [AgreementKey.from_seed(ENTROPY.fresh_seed()) for _ in range(4)]
SELF_SEED = ENTROPY.fresh_seed()
SESSION = Session(
    session_id=b"\x03" * 32,
    suite=1,
    round_number=2,
    attempt=3,
    length=10,
    ring_bits=20,
    peers=tuple(
        PeerKeys(
            share_key=secret.public_key,
            mask_key=secret.public_key,
            advert_sha256=bytes([index]) * 32,
        )
        for index, secret in enumerate(SECRETS)
    ),
)
CHANGES: list[dict[str, object]] = [
    {"session_id": b"\x04" * 32},
    {"suite": 2},
    {"round_number": 3},
    {"attempt": 4},
    {"length": 11},
    {"ring_bits": 21},
]


def pair_mask(session: Session, own: int, other: int) -> bytes:
    return session.pairwise_seed(SECRETS[own], own, other).export_bytes()


def pair_key(session: Session, own: int, other: int) -> bytes:
    return session.share_pair_key(SECRETS[own], own, other).export_bytes()


@pytest.mark.parametrize("derive", [pair_mask, pair_key])
def test_both_ends_of_each_pair_agree_and_no_two_pairs_do(derive) -> None:  # type: ignore[no-untyped-def]
    pairs = [(low, high) for low in range(4) for high in range(low + 1, 4)]
    for low, high in pairs:
        assert derive(SESSION, low, high) == derive(SESSION, high, low)
    assert len({derive(SESSION, low, high) for low, high in pairs}) == len(pairs)


def test_masks_and_seals_use_different_keys_even_of_equal_agreements() -> None:
    assert pair_mask(SESSION, 0, 1) != pair_key(SESSION, 0, 1)


def test_each_direction_of_a_pair_has_its_own_seal() -> None:
    key = SESSION.share_pair_key(SECRETS[0], 0, 1)
    there = SESSION.share_seal_key(key, 0, 1).export_bytes()
    back = SESSION.share_seal_key(key, 1, 0).export_bytes()
    assert there != back


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_part_of_the_session_changes_every_key(change: dict[str, object]) -> None:
    other = dataclasses.replace(SESSION, **change)
    assert pair_mask(other, 0, 1) != pair_mask(SESSION, 0, 1)
    assert pair_key(other, 0, 1) != pair_key(SESSION, 0, 1)
    assert (
        other.self_mask_key(SELF_SEED).export_bytes()
        != SESSION.self_mask_key(SELF_SEED).export_bytes()
    )


@pytest.mark.parametrize("swapped", [0, 1])
def test_another_advert_of_either_end_changes_the_keys(swapped: int) -> None:
    peers = list(SESSION.peers)
    peers[swapped] = dataclasses.replace(peers[swapped], advert_sha256=b"\xff" * 32)
    other = dataclasses.replace(SESSION, peers=tuple(peers))
    assert pair_mask(other, 0, 1) != pair_mask(SESSION, 0, 1)
    assert pair_key(other, 0, 1) != pair_key(SESSION, 0, 1)


def test_the_self_mask_is_not_the_seed_itself() -> None:
    assert SESSION.self_mask_key(SELF_SEED).export_bytes() != SELF_SEED.export_bytes()


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31), b"short", b""])
def test_a_useless_public_key_is_refused(key: bytes) -> None:
    peers = (SESSION.peers[0], dataclasses.replace(SESSION.peers[1], mask_key=key, share_key=key))
    session = dataclasses.replace(SESSION, peers=peers)
    with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
        session.pairwise_seed(SECRETS[0], 0, 1)
    with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
        session.share_pair_key(SECRETS[0], 0, 1)


def test_a_commitment_is_bound_to_its_context() -> None:
    assert SELF_SEED.commitment(b"a") != SELF_SEED.commitment(b"b")
    assert SELF_SEED.commitment(b"a") == Seed.from_bytes(SELF_SEED.export_bytes()).commitment(b"a")
