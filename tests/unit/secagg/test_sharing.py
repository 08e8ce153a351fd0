"""Shares open for their holder alone, in their session alone."""

import dataclasses
import itertools

import pytest

from edgefl._native import SHARE_BYTES, AgreementKey, Seed, combine_shares
from edgefl.errors import RemoteProtocolError
from edgefl.protocol.limits import SEALED_BYTES
from edgefl.secagg.session import PeerKeys, Session
from edgefl.secagg.sharing import ShareChannels
from tests.round_boards import InsecureEntropy

N_DEVICES, THRESHOLD = 6, 3
ENTROPY = InsecureEntropy("sharing")
SHARE_SECRETS = [AgreementKey.from_seed(ENTROPY.fresh_seed()) for _ in range(N_DEVICES)]
MASK_SECRETS = [AgreementKey.from_seed(ENTROPY.fresh_seed()) for _ in range(N_DEVICES)]
SELF_SEEDS = [ENTROPY.fresh_seed() for _ in range(N_DEVICES)]
SESSION = Session(
    session_id=b"\x03" * 32,
    round_number=2,
    attempt=3,
    length=10,
    ring_bits=20,
    allows_aes=False,
    peers={
        index: PeerKeys(
            share_key=share.public_key,
            mask_key=mask.public_key,
            bundle_sha256=bytes([index]) * 32,
            has_aes=False,
        )
        for index, (share, mask) in enumerate(zip(SHARE_SECRETS, MASK_SECRETS, strict=True))
    },
)
OWNER = 1
HOLDERS = (0, 2, 3, 5)
"""Position 4 is no neighbour."""


def channels(
    own: int, session: Session = SESSION, pair_secrets: dict[bytes, Seed] | None = None
) -> ShareChannels:
    known = {} if pair_secrets is None else pair_secrets
    return ShareChannels(session, own, SHARE_SECRETS[own], known)


def share(session: Session = SESSION) -> dict[int, bytes]:
    return channels(OWNER, session).share_secrets(
        MASK_SECRETS[OWNER],
        SELF_SEEDS[OWNER],
        threshold=THRESHOLD,
        neighbours=HOLDERS,
        sharing_seed=ENTROPY.fresh_seed(),
    )


SEALED = share()


def test_sizes() -> None:
    assert {holder: len(sealed) for holder, sealed in SEALED.items()} == dict.fromkeys(
        HOLDERS, SEALED_BYTES
    )
    opened = channels(0).open_all({OWNER: SEALED[0]})
    assert [len(part) for part in opened[OWNER]] == [SHARE_BYTES, SHARE_BYTES]


@pytest.mark.parametrize("thief", [0, 2, 3, 4, 5])
@pytest.mark.parametrize("holder", HOLDERS)
def test_only_the_holder_opens_its_share(holder: int, thief: int) -> None:
    assert bool(channels(thief).open_all({OWNER: SEALED[holder]})) == (thief == holder)


@pytest.mark.parametrize("claimed", [2, 3, 4, 5])
def test_a_share_cannot_be_passed_off_as_another_owners(claimed: int) -> None:
    assert channels(0).open_all({claimed: SEALED[0]}) == {}


def test_a_share_cannot_be_sent_back_to_its_owner_as_the_holders() -> None:
    assert channels(OWNER).open_all({0: SEALED[0]}) == {}


def test_one_that_does_not_open_leaves_the_others_alone() -> None:
    others = ShareChannels(SESSION, 2, SHARE_SECRETS[2], {}).share_secrets(
        MASK_SECRETS[2],
        SELF_SEEDS[2],
        threshold=THRESHOLD,
        neighbours=[0, 1, 3],
        sharing_seed=ENTROPY.fresh_seed(),
    )
    spoilt = bytes([SEALED[0][0] ^ 1]) + SEALED[0][1:]
    assert set(channels(0).open_all({OWNER: spoilt, 2: others[0]})) == {2}
    assert set(channels(0).open_all({OWNER: SEALED[0][:-1], 2: others[0]})) == {2}
    assert channels(0).open_all({OWNER: b""}) == {}


@pytest.mark.parametrize(
    "change",
    [{"session_id": b"\x04" * 32}, {"round_number": 3}, {"attempt": 4}],
    ids=str,
)
def test_shares_belong_to_one_session(change: dict[str, object]) -> None:
    other = dataclasses.replace(SESSION, **change)  # type: ignore[arg-type]
    assert channels(0, other).open_all({OWNER: SEALED[0]}) == {}


def test_shares_belong_to_the_bundles_of_both_ends() -> None:
    for end in (0, OWNER):
        peer = dataclasses.replace(SESSION.peers[end], bundle_sha256=b"\xff" * 32)
        other = dataclasses.replace(SESSION, peers={**SESSION.peers, end: peer})
        assert channels(0, other).open_all({OWNER: SEALED[0]}) == {}


@pytest.mark.parametrize("holders", list(itertools.combinations(HOLDERS, THRESHOLD)))
def test_any_threshold_of_holders_reconstruct(holders: tuple[int, ...]) -> None:
    opened = [
        (holder, channels(holder).open_all({OWNER: SEALED[holder]})[OWNER]) for holder in holders
    ]
    mask = combine_shares([(1 + holder, pair[0]) for holder, pair in opened], THRESHOLD)
    seed = combine_shares([(1 + holder, pair[1]) for holder, pair in opened], THRESHOLD)
    assert AgreementKey.from_seed(mask).public_key == MASK_SECRETS[OWNER].public_key
    assert seed.export_bytes() == SELF_SEEDS[OWNER].export_bytes()


def test_sharing_again_gives_other_shares() -> None:
    assert not set(share().values()) & set(SEALED.values())


def test_a_pair_agrees_once_for_a_key_epoch() -> None:
    known: dict[bytes, Seed] = {}
    first = channels(0, pair_secrets=known).open_all({OWNER: SEALED[0]})
    assert list(known) == [SESSION.peers[OWNER].bundle_sha256]
    # The next session uses what is known, and derives keys of its own from it.
    later = dataclasses.replace(SESSION, session_id=b"\x04" * 32)
    agreed = dict(known)
    assert channels(0, later, known).open_all({OWNER: share(later)[0]})
    assert known == agreed
    assert channels(0, pair_secrets=known).open_all({OWNER: SEALED[0]}) == first


def test_a_useless_share_key_is_refused() -> None:
    peer = dataclasses.replace(SESSION.peers[OWNER], share_key=bytes(32))
    session = dataclasses.replace(SESSION, peers={**SESSION.peers, OWNER: peer})
    with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
        channels(0, session).open_all({OWNER: SEALED[0]})
