"""Keys of a session: the same at both ends of a pair, and of no use anywhere else."""

import dataclasses

import numpy as np
import pytest

from edgefl._native import AgreementKey, Mask, Seed, apply_masks
from edgefl.errors import RemoteProtocolError
from edgefl.secagg.session import AES_128_CTR, CHACHA20, PeerKeys, Session
from tests.round_boards import InsecureEntropy

ENTROPY = InsecureEntropy("session")
SECRETS = [AgreementKey.from_seed(ENTROPY.fresh_seed()) for _ in range(4)]
SELF_SEED = ENTROPY.fresh_seed()
LENGTH = 10
HAS_AES = (True, True, False, True)
SESSION = Session(
    session_id=b"\x03" * 32,
    round_number=2,
    attempt=3,
    length=LENGTH,
    ring_bits=20,
    allows_aes=True,
    peers={
        index: PeerKeys(
            share_key=secret.public_key,
            mask_key=secret.public_key,
            bundle_sha256=bytes([index]) * 32,
            has_aes=has_aes,
        )
        for index, (secret, has_aes) in enumerate(zip(SECRETS, HAS_AES, strict=True))
    },
)
# Of the pair 0 and 1 and of the self mask of 0.
CHANGES: list[dict[str, object]] = [
    {"session_id": b"\x04" * 32},
    {"round_number": 3},
    {"attempt": 4},
    {"length": 11},
    {"ring_bits": 21},
    {"allows_aes": False},
]


def with_peer(position: int, **changes: object) -> Session:
    peer = dataclasses.replace(SESSION.peers[position], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(SESSION, peers={**SESSION.peers, position: peer})


def pair_seed(session: Session, own: int, other: int) -> bytes:
    (seed,) = session.pairwise_seeds(SECRETS[own], own, [other])
    return seed.export_bytes()


def expanded(*masks: Mask) -> list[int]:
    values = np.zeros(LENGTH, dtype=np.uint32)
    apply_masks(values, 20, list(masks))
    return values.tolist()


def test_both_ends_of_each_pair_agree_and_no_two_pairs_do() -> None:
    pairs = [(low, high) for low in range(4) for high in range(low + 1, 4)]
    for low, high in pairs:
        assert pair_seed(SESSION, low, high) == pair_seed(SESSION, high, low)
        assert SESSION.share_pair_info(low, high) == SESSION.share_pair_info(high, low)
    assert len({pair_seed(SESSION, low, high) for low, high in pairs}) == len(pairs)
    assert len({SESSION.share_pair_info(low, high) for low, high in pairs}) == len(pairs)


def test_many_seeds_are_those_of_one_at_a_time() -> None:
    seeds = SESSION.pairwise_seeds(SECRETS[1], 1, [0, 2, 3], threads=2)
    assert [seed.export_bytes() for seed in seeds] == [
        pair_seed(SESSION, 1, other) for other in (0, 2, 3)
    ]


def test_masks_of_a_pair_cancel_and_the_self_mask_is_taken_off() -> None:
    for low, high in [(0, 1), (1, 2), (0, 3)]:
        (there,) = SESSION.pairwise_masks(SECRETS[low], low, [high])
        (back,) = SESSION.pairwise_masks(SECRETS[high], high, [low])
        assert expanded(there, back) == [0] * LENGTH
        assert any(expanded(there))
    own = SESSION.self_mask(SELF_SEED, 0)
    assert any(expanded(own))
    assert expanded(own, SESSION.self_mask(SELF_SEED, 0, removing=True)) == [0] * LENGTH


def test_the_prg_is_aes_only_where_both_ends_and_the_plan_have_it() -> None:
    assert SESSION.pair_prg(0, 1) == SESSION.pair_prg(1, 0) == AES_128_CTR
    assert SESSION.pair_prg(0, 2) == SESSION.pair_prg(2, 3) == CHACHA20
    without = dataclasses.replace(SESSION, allows_aes=False)
    assert without.pair_prg(0, 1) == CHACHA20


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_every_part_of_the_session_changes_every_mask(change: dict[str, object]) -> None:
    other = dataclasses.replace(SESSION, **change)  # type: ignore[arg-type]
    assert pair_seed(other, 0, 1) != pair_seed(SESSION, 0, 1)
    assert expanded(other.self_mask(SELF_SEED, 0)) != expanded(SESSION.self_mask(SELF_SEED, 0))


@pytest.mark.parametrize("change", CHANGES[:3], ids=str)
def test_a_sealed_share_is_bound_to_session_round_and_attempt(change: dict[str, object]) -> None:
    other = dataclasses.replace(SESSION, **change)  # type: ignore[arg-type]
    assert other.seal_context(0, 1) != SESSION.seal_context(0, 1)


def test_each_direction_of_a_pair_has_its_own_seal() -> None:
    contexts = {SESSION.seal_context(one, other) for one in range(4) for other in range(4)}
    assert len(contexts) == 16


@pytest.mark.parametrize("swapped", [0, 1])
def test_another_bundle_of_either_end_changes_what_the_pair_derives(swapped: int) -> None:
    other = with_peer(swapped, bundle_sha256=b"\xff" * 32)
    assert pair_seed(other, 0, 1) != pair_seed(SESSION, 0, 1)
    assert other.share_pair_info(0, 1) != SESSION.share_pair_info(0, 1)


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31), b"short", b""])
def test_a_useless_public_key_is_refused(key: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
        with_peer(1, mask_key=key).pairwise_seeds(SECRETS[0], 0, [1])


def test_a_commitment_is_bound_to_its_context() -> None:
    assert SELF_SEED.commitment(b"a") != SELF_SEED.commitment(b"b")
    assert SELF_SEED.commitment(b"a") == Seed.from_bytes(SELF_SEED.export_bytes()).commitment(b"a")
