"""Version 1 of shares and sealed shares: the files, plain Python and the core say the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from edgefl import _native
from edgefl._native import AgreementKey, Seed
from edgefl.errors import RemoteProtocolError, ShareError
from tests import plain_crypto

VECTORS = Path(__file__).parents[1] / "vectors"
Case = dict[str, Any]


def load(name: str, key: str = "cases") -> list[Case]:
    cases: list[Case] = json.loads((VECTORS / name).read_text())[key]
    assert cases
    return cases


def unhex_all(texts: list[str]) -> list[bytes]:
    return [bytes.fromhex(text) for text in texts]


def seed(text: str) -> Seed:
    return Seed.from_bytes(bytes.fromhex(text))


SHARINGS = load("v1/shamir.json")
SEALINGS = load("v1/sealed_shares.json")


@pytest.mark.parametrize("case", load("rfc7748_x25519.json"))
def test_plain_x25519_follows_the_standard(case: Case) -> None:
    found = plain_crypto.x25519(bytes.fromhex(case["scalar"]), bytes.fromhex(case["u"]))
    assert found.hex() == case["result"]


def test_plain_sealing_and_derivation_follow_the_standards() -> None:
    for case in load("xchacha20_poly1305.json"):
        key, nonce = bytes.fromhex(case["key"]), bytes.fromhex(case["nonce"])
        plaintext, header = bytes.fromhex(case["plaintext"]), bytes.fromhex(case["associated_data"])
        sealed = plain_crypto.seal(key, nonce, plaintext, header)
        assert sealed.hex() == case["nonce"] + case["ciphertext"] + case["tag"]
    for case in load("rfc5869_hkdf_sha256.json"):
        secret, salt, info = unhex_all([case["input"], case["salt"], case["info"]])
        found = plain_crypto.hkdf_32(secret, salt, info)
        assert found.hex() == case["output"][:64]


@pytest.mark.parametrize("case", SHARINGS, ids=lambda case: f"t={case['threshold']}")
def test_shares(case: Case) -> None:
    secrets, threshold, points = unhex_all(case["secrets"]), case["threshold"], case["points"]
    expected = [unhex_all(shares) for shares in case["shares"]]
    coefficient_seed = bytes.fromhex(case["coefficient_seed"])
    plain = plain_crypto.split_secrets(secrets, threshold, points, coefficient_seed)
    assert plain == expected
    seeds = [Seed.from_bytes(secret) for secret in secrets]
    made = _native.split_secrets(seeds, threshold, points, Seed.from_bytes(coefficient_seed))
    assert made == expected
    for start in range(len(points) - threshold + 1):
        chosen = slice(start, start + threshold)
        found = _native.combine_many(
            points[chosen], [shares[chosen] for shares in expected], threshold
        )
        assert [secret and secret.export_bytes() for secret in found] == secrets


@pytest.mark.parametrize("case", load("v1/shamir.json", "refused"), ids=lambda case: case["why"])
def test_shares_that_must_not_combine(case: Case) -> None:
    shares = list(zip(case["points"], unhex_all(case["shares"]), strict=True))
    with pytest.raises(ShareError) as caught:
        _native.combine_shares(shares, case["threshold"])
    assert caught.value.code == case["error"]


@pytest.mark.parametrize("case", SEALINGS, ids=range(len(SEALINGS)))
def test_sealed_shares(case: Case) -> None:
    info = bytes.fromhex(case["pair_info"])
    for own, peer in (("owner", "holder"), ("holder", "owner")):
        peer_key = bytes.fromhex(case[f"{peer}_share_key"])
        shared = plain_crypto.x25519(bytes.fromhex(case[f"{own}_share_secret"]), peer_key)
        assert plain_crypto.hkdf_32(shared, b"", info).hex() == case["pair_secret"]
        key = AgreementKey.from_seed(seed(case[f"{own}_share_secret"]))
        (agreed,) = key.agree_many([peer_key], b"", [info])
        assert agreed.export_bytes().hex() == case["pair_secret"]
    context, session_id = bytes.fromhex(case["context"]), bytes.fromhex(case["session_id"])
    (seal_key,) = seed(case["pair_secret"]).derive_many(session_id, [context])
    plain_key = plain_crypto.hkdf_32(bytes.fromhex(case["pair_secret"]), session_id, context)
    assert seal_key.export_bytes() == plain_key == bytes.fromhex(case["seal_key"])
    shares, sealed = unhex_all([case["mask_key_share"] + case["self_seed_share"], case["sealed"]])
    assert plain_crypto.seal(plain_key, sealed[:24], shares, context) == sealed
    assert _native.open_many([seal_key], [sealed], [context]) == [shares]


@pytest.mark.parametrize(
    "case", load("v1/sealed_shares.json", "refused"), ids=lambda case: case["why"]
)
def test_sealed_shares_that_must_not_open(case: Case) -> None:
    sealed, context = unhex_all([case["sealed"], case["context"]])
    with pytest.raises(RemoteProtocolError, match="E-SEALED"):
        _native.open_sealed(seed(case["seal_key"]), sealed, context)
