"""Many secrets come back at once, whoever of the holders lies, or are named as missing."""

import hashlib
import itertools
from collections.abc import Callable, Collection, Mapping

import pytest

from edgefl._native import AgreementKey, Seed, split_secrets
from edgefl.secagg.reconstruction import MOST_LIARS, SharedSecret, reconstruct
from tests.round_boards import InsecureEntropy

N_HOLDERS, THRESHOLD = 7, 4
CONTEXT = b"context"
ENTROPY = InsecureEntropy("reconstruction")
SECRETS = [ENTROPY.fresh_seed() for _ in range(5)]
HOLDERS = range(10, 10 + N_HOLDERS)
DEALT = split_secrets(SECRETS, THRESHOLD, [1 + holder for holder in HOLDERS], ENTROPY.fresh_seed())
SHARES = [dict(zip(HOLDERS, shares, strict=True)) for shares in DEALT]


def shared(owner: int, shares: Mapping[int, bytes]) -> SharedSecret:
    commitment = SECRETS[owner].commitment(CONTEXT)
    return SharedSecret(
        owner=owner,
        shares=shares,
        is_right=lambda secret: secret.commitment(CONTEXT) == commitment,
    )


def kept(owner: int, holders: Collection[int]) -> dict[int, bytes]:
    return {holder: SHARES[owner][holder] for holder in holders}


def wrong(share: bytes) -> bytes:
    # No two liars tell equal lies, which could cancel each other.
    noise = hashlib.sha256(share).digest()[:5]
    changed = bytes(byte ^ other for byte, other in zip(share[1:6], noise, strict=True))
    return share[:1] + changed + share[6:]


def broken(share: bytes) -> bytes:
    return b"\xff" * len(share)


def short(share: bytes) -> bytes:
    return share[:-1]


def of_another_secret(share: bytes) -> bytes:
    return next(
        SHARES[owner - 1][holder]
        for owner in range(len(SECRETS))
        for holder in HOLDERS
        if SHARES[owner][holder] == share
    )


def test_all_secrets_come_back() -> None:
    found = reconstruct([shared(owner, SHARES[owner]) for owner in range(5)], THRESHOLD)
    assert {owner: seed.export_bytes() for owner, seed in found.secrets.items()} == {
        owner: secret.export_bytes() for owner, secret in enumerate(SECRETS)
    }
    assert (found.missing, found.liars) == ((), ())


@pytest.mark.parametrize("holders", list(itertools.combinations(HOLDERS, THRESHOLD)))
def test_any_threshold_of_holders_suffices(holders: tuple[int, ...]) -> None:
    found = reconstruct([shared(0, kept(0, holders))], THRESHOLD)
    assert found.secrets[0].export_bytes() == SECRETS[0].export_bytes()


def test_each_secret_may_have_holders_of_its_own() -> None:
    sets = list(itertools.combinations(HOLDERS, THRESHOLD))[::8]
    secrets = [shared(owner, kept(owner, sets[owner])) for owner in range(4)]
    found = reconstruct(secrets, THRESHOLD)
    assert sorted(found.secrets) == [0, 1, 2, 3]


@pytest.mark.parametrize("n_holders", range(THRESHOLD))
def test_fewer_do_not(n_holders: int) -> None:
    few = shared(0, kept(0, HOLDERS[:n_holders]))
    found = reconstruct([few, shared(1, SHARES[1])], THRESHOLD)
    assert found.missing == (0,)
    assert sorted(found.secrets) == [1]
    assert found.liars == (), "who is missing did not lie"


@pytest.mark.parametrize("change", [wrong, broken, short, of_another_secret])
@pytest.mark.parametrize(
    "liars",
    [set(some) for count in (1, 2) for some in itertools.combinations(HOLDERS, count)],
    ids=str,
)
def test_two_liars_are_survived_and_named(
    liars: set[int], change: Callable[[bytes], bytes]
) -> None:
    secrets = [
        shared(
            owner,
            {
                holder: change(share) if holder in liars else share
                for holder, share in SHARES[owner].items()
            },
        )
        for owner in range(5)
    ]
    found = reconstruct(secrets, THRESHOLD)
    assert found.missing == ()
    assert {owner: seed.export_bytes() for owner, seed in found.secrets.items()} == {
        owner: secret.export_bytes() for owner, secret in enumerate(SECRETS)
    }
    # Where none of the first shares is wrong, the others are not looked at.
    assert set(found.liars) == (liars if liars & set(HOLDERS[:THRESHOLD]) else set())


def test_as_many_liars_as_spare_shares_are_survived() -> None:
    for spare in range(MOST_LIARS + 1):
        holders = HOLDERS[: THRESHOLD + spare]
        for liars in itertools.combinations(holders, spare):
            shares = kept(0, holders) | {holder: wrong(SHARES[0][holder]) for holder in liars}
            found = reconstruct([shared(0, shares)], THRESHOLD)
            assert found.missing == ()
            assert set(found.liars) <= set(liars)
    one_more = kept(0, HOLDERS[:THRESHOLD]) | {10: wrong(SHARES[0][10])}
    assert reconstruct([shared(0, one_more)], THRESHOLD).missing == (0,)


def test_three_liars_are_noticed() -> None:
    shares = SHARES[0] | {holder: wrong(SHARES[0][holder]) for holder in HOLDERS[:3]}
    found = reconstruct([shared(0, shares)], THRESHOLD)
    assert found.missing == (0,)
    assert found.secrets == {}


def test_a_published_key_is_compared_whatever_its_secret_looks_like() -> None:
    """The lowest three bits of a mask key's secret do not matter; equal keys are right."""
    published = AgreementKey.from_seed(SECRETS[0]).public_key
    shares = dict(SHARES[0])
    holder = HOLDERS[0]
    shares[holder] = bytes([shares[holder][0] ^ 1]) + shares[holder][1:]
    secret = SharedSecret(
        owner=0,
        shares=shares,
        is_right=lambda seed: AgreementKey.from_seed(seed).public_key == published,
    )
    found = reconstruct([secret], THRESHOLD)
    assert AgreementKey.from_seed(found.secrets[0]).public_key == published


def test_liars_cannot_make_an_honest_holder_look_like_one() -> None:
    """Two wrong shares whose errors cancel at the secret name nobody, and hide nothing."""
    holders = HOLDERS[:THRESHOLD]
    shares = dict(SHARES[0])
    # The errors e_i with e_0 L_0 + e_1 L_1 = 0 for the four points of the first choice.
    shares[holders[0]], shares[holders[1]] = cancelling(shares, holders)
    found = reconstruct([shared(0, shares)], THRESHOLD)
    assert found.secrets[0].export_bytes() == SECRETS[0].export_bytes()
    assert found.liars == ()
    # With a third liar in the first choice, leaving that one out is not enough.
    shares[holders[2]] = wrong(shares[holders[2]])
    found = reconstruct([shared(0, shares)], THRESHOLD)
    assert set(found.liars) <= set(holders[:3])


PRIME = 2**61 - 1


def cancelling(shares: Mapping[int, bytes], holders: Collection[int]) -> tuple[bytes, bytes]:
    """Return two wrong shares that make a right secret together with the other two."""
    points = [1 + holder for holder in holders]

    def weight(index: int) -> int:
        product = 1
        for other, point in enumerate(points):
            if other != index:
                product = product * point % PRIME
                product = product * pow(point - points[index], -1, PRIME) % PRIME
        return product

    def moved(share: bytes, amount: int) -> bytes:
        limb = int.from_bytes(share[:8], "little")
        return ((limb + amount) % PRIME).to_bytes(8, "little") + share[8:]

    first, second = (shares[holder] for holder in list(holders)[:2])
    return (
        moved(first, 5 * weight(1)),
        moved(second, -5 * weight(0)),
    )


def test_the_work_is_bounded() -> None:
    """However many secrets are spoilt, the search ends."""
    secrets = [
        SharedSecret(
            owner=owner,
            shares={holder: wrong(share) for holder, share in SHARES[owner % 5].items()},
            is_right=lambda _: False,
        )
        for owner in range(1200)
    ]
    found = reconstruct(secrets, THRESHOLD)
    assert len(found.missing) == 1200


def test_a_seed_is_never_shown() -> None:
    secret = shared(0, SHARES[0])
    found = reconstruct([secret], THRESHOLD)
    assert isinstance(found.secrets[0], Seed)
    for text in (repr(secret), repr(found)):
        assert SHARES[0][10].hex() not in text
        assert "shares" not in text
        assert "secrets" not in text
