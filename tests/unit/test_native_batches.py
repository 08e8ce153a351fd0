"""One call over many items gives what one call per item gives, and names what it refuses."""

from collections.abc import Callable

import pytest

from edgefl import _native
from edgefl._native import AgreementKey, Seed, SigningKey
from edgefl.errors import ConfigError, RemoteProtocolError, ShareError

SALT = b"session"
SEEDS = [Seed.from_bytes(bytes([index + 1]) * 32) for index in range(11)]
INFOS = [b"info %d" % index for index in range(len(SEEDS))]
OWN = AgreementKey.from_seed(Seed.from_bytes(b"\xaa" * 32))
SMALL_ORDER = bytes(32)


def content(seeds: list[Seed]) -> list[bytes]:
    return [seed.export_bytes() for seed in seeds]


def test_public_keys() -> None:
    expected = [AgreementKey.from_seed(seed).public_key for seed in SEEDS]
    assert _native.agreement_public_keys(SEEDS) == expected
    assert _native.agreement_public_keys([]) == []


@pytest.mark.parametrize("count", range(len(SEEDS) + 1))
@pytest.mark.parametrize("threads", [1, 2, 5, 64])
def test_agreements(count: int, threads: int) -> None:
    peers = _native.agreement_public_keys(SEEDS[:count])
    found = OWN.agree_many(peers, SALT, INFOS[:count], threads)
    expected = [OWN.agree(peer, SALT, info) for peer, info in zip(peers, INFOS, strict=False)]
    assert content(found) == content(expected)
    assert len(set(content(found))) == count


@pytest.mark.parametrize("index", range(len(SEEDS)))
@pytest.mark.parametrize("bad", [SMALL_ORDER, bytes([1]) * 31, b""])
def test_a_refused_key_is_named(index: int, bad: bytes) -> None:
    peers = _native.agreement_public_keys(SEEDS)
    peers[index] = bad
    with pytest.raises(RemoteProtocolError, match=f"E-PUBLIC-KEY.* at index {index};"):
        OWN.agree_many(peers, SALT, INFOS)


def test_derivations() -> None:
    expected = [SEEDS[0].derive(SALT, info) for info in INFOS]
    assert content(SEEDS[0].derive_many(SALT, INFOS)) == content(expected)
    assert SEEDS[0].derive_many(SALT, []) == []


def test_splits_share_no_coefficient_and_start_as_one_split_does() -> None:
    points = [5, 1, 9, 65536]
    same_secret = [SEEDS[0], SEEDS[0], SEEDS[1]]
    lists = _native.split_secrets(same_secret, 3, points, SEEDS[2])
    assert lists[0] == _native.split_secret(SEEDS[0], 3, points, SEEDS[2])
    assert not set(lists[0]) & set(lists[1])
    for secret, shares in zip(same_secret, lists, strict=True):
        combined = _native.combine_shares(list(zip(points, shares, strict=True))[1:], 3)
        assert combined.export_bytes() == secret.export_bytes()
    assert _native.split_secrets([], 3, points, SEEDS[2]) == []


def test_combinations() -> None:
    points = [5, 1, 9, 65536, 3]
    lists = _native.split_secrets(SEEDS[:6], 4, points, SEEDS[7])
    assert content([seed for seed in _native.combine_many(points, lists, 4) if seed]) == content(
        SEEDS[:6]
    )
    # Of 2^61 field elements 2^52 are limbs: a wrong share gives a secret once in 2^47.
    wrong = [*lists[1][:1], bytes(40), *lists[1][2:]]
    found = _native.combine_many(points, [lists[0], wrong, lists[2]], 4)
    assert [seed and seed.export_bytes() for seed in found] == [
        SEEDS[0].export_bytes(),
        None,
        SEEDS[2].export_bytes(),
    ]
    unused = [*lists[1][:4], bytes(40)]
    (found_seed,) = _native.combine_many(points, [unused], 4)
    assert found_seed is not None
    assert found_seed.export_bytes() == SEEDS[1].export_bytes()
    assert _native.combine_many(points, [], 4) == []


def test_sealing() -> None:
    keys, headers = SEEDS[:4], INFOS[:4]
    plaintexts = [b"message", b"", b"x" * 80, b"message"]
    sealed = _native.seal_many(keys, plaintexts, headers)
    assert [len(message) for message in sealed] == [40 + len(plain) for plain in plaintexts]
    assert len({message[:24] for message in sealed}) == 4
    assert _native.open_many(keys, sealed, headers) == plaintexts
    seeded = _native.seal_many(keys, plaintexts, headers, insecure_nonce_seeds=SEEDS[4:8])
    assert seeded == [
        _native.seal(key, plain, header, nonce_seed)
        for key, plain, header, nonce_seed in zip(
            keys, plaintexts, headers, SEEDS[4:8], strict=True
        )
    ]


def test_what_does_not_open_is_none_and_disturbs_no_other() -> None:
    keys, headers = SEEDS[:5], INFOS[:5]
    sealed = _native.seal_many(keys, [b"message"] * 5, headers)
    sealed[1] = sealed[1][:-1] + bytes([sealed[1][-1] ^ 1])
    sealed[2] = b""
    others = [*keys[:3], SEEDS[9], keys[4]]
    opened = _native.open_many(others, sealed, [*headers[:4], b"another"])
    assert opened == [b"message", None, None, None, None]


def test_verification() -> None:
    keys = [SigningKey.from_seed(seed) for seed in SEEDS]
    public_keys = [key.public_key for key in keys]
    signatures = [key.sign(info) for key, info in zip(keys, INFOS, strict=True)]
    assert _native.verify_many(public_keys, INFOS, signatures) == [True] * len(keys)
    signatures[3] = signatures[4]
    public_keys[5] = b"short"
    messages = [*INFOS[:7], b"another", *INFOS[8:]]
    expected = [index not in {3, 5, 7} for index in range(len(keys))]
    assert _native.verify_many(public_keys, messages, signatures) == expected


def test_a_batch_is_as_strict_as_a_single_verification() -> None:
    # A = R = the identity and S = 0 satisfies the equation for every message.
    identity = b"\x01" + bytes(31)
    assert _native.verify_many([identity], [b"any"], [identity + bytes(32)]) == [False]


REFUSALS: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (ConfigError, "E-BATCH-LENGTH", lambda: OWN.agree_many([], SALT, [b""])),
    (ConfigError, "E-THREADS", lambda: OWN.agree_many([], SALT, [], threads=0)),
    (ConfigError, "E-THREADS", lambda: OWN.agree_many([], SALT, [], threads=-(10**30))),
    (ConfigError, "E-BATCH-LENGTH", lambda: _native.seal_many(SEEDS[:1], [], [b""])),
    (ConfigError, "E-BATCH-LENGTH", lambda: _native.seal_many(SEEDS[:1], [b""], [b""], [])),
    (ConfigError, "E-BATCH-LENGTH", lambda: _native.open_many(SEEDS[:1], [b""], [])),
    (ConfigError, "E-BATCH-LENGTH", lambda: _native.verify_many([b""], [b""], [])),
    (ConfigError, "E-BATCH-LENGTH", lambda: _native.combine_many([1, 2], [[bytes(40)]], 1)),
    (ShareError, "E-SHARE-THRESHOLD", lambda: _native.split_secrets([], 0, [1], SEEDS[0])),
    (ShareError, "E-SHARE-POINT", lambda: _native.combine_many([0], [], 1)),
    (ShareError, "E-SHARE-DUPLICATE", lambda: _native.combine_many([2, 2], [], 1)),
    (ShareError, "E-SHARE-TOO-FEW", lambda: _native.combine_many([2], [], 2)),
    (ShareError, "E-SHARE-LENGTH", lambda: _native.combine_many([2], [[b""]], 1)),
    (ShareError, "E-SHARE-RANGE", lambda: _native.combine_many([2], [[b"\xff" * 40]], 1)),
]


@pytest.mark.parametrize(("kind", "code", "action"), REFUSALS)
def test_refusals(kind: type[Exception], code: str, action: Callable[[], object]) -> None:
    with pytest.raises(kind, match=code):
        action()
