"""Secrets of the core are neither shown, copied, pickled nor compared by content."""

import copy
import gc
import hmac
import pickle
from hashlib import sha256

import pytest

from edgefl import _native
from edgefl._native import AgreementKey, Mask, Seed, SigningKey
from edgefl.errors import ConfigError, EdgeflError, RemoteProtocolError, ShareError

SECRET = bytes(range(100, 132))
HOLDERS = [
    Seed.from_bytes(SECRET),
    AgreementKey.from_seed(Seed.from_bytes(SECRET)),
    SigningKey.from_seed(Seed.from_bytes(SECRET)),
    Mask(Seed.from_bytes(SECRET), 1, subtract=False),
]


def shows_secret(text: str) -> bool:
    return SECRET.hex()[:8] in text or repr(SECRET)[2:10] in text or str(list(SECRET))[1:12] in text


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_secret_is_not_shown(holder: object) -> None:
    assert repr(holder) == f"<{type(holder).__name__}>"
    for text in (str(holder), f"{holder}", f"{holder!r}", repr([holder]), repr({"key": holder})):
        assert not shows_secret(text)
    assert shows_secret(SECRET.hex())
    assert shows_secret(repr(SECRET))


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_secret_is_neither_copied_nor_pickled(holder: object) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(holder, protocol)
    for copier in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="secret"):
            copier(holder)


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_secret_has_no_open_doors(holder: object) -> None:
    assert not hasattr(holder, "__dict__")
    with pytest.raises(TypeError):
        memoryview(holder)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        type(holder)()
    with pytest.raises(AttributeError):
        holder.extra = 1  # type: ignore[attr-defined]
    assert gc.get_referents(holder) in ([], [type(holder)])


def test_seeds_are_compared_by_identity() -> None:
    assert Seed.from_bytes(SECRET) != Seed.from_bytes(SECRET)


def test_errors_do_not_carry_the_secret() -> None:
    key, coefficients = Seed.from_bytes(SECRET), Seed.generate()
    shares = _native.split_secret(key, 1, [1, 2], coefficients)
    damaged = shares[0][:-1] + b"\xff"
    failures: list[EdgeflError] = []
    with pytest.raises(ConfigError) as length:
        Seed.from_bytes(SECRET + b"x")
    with pytest.raises(ShareError) as share:
        _native.combine_shares([(1, damaged)], 1)
    with pytest.raises(RemoteProtocolError) as sealed:
        _native.open_sealed(key, SECRET * 2, b"")
    failures += [length.value, share.value, sealed.value]
    for failure in failures:
        assert not shows_secret(str(failure) + repr(failure))


def test_generated_seeds_differ_and_come_back() -> None:
    seeds = {Seed.generate().export_bytes() for _ in range(100)}
    assert len(seeds) == 100
    for secret in seeds:
        assert Seed.from_bytes(secret).export_bytes() == secret


def test_keys_come_back_from_their_seed() -> None:
    seed = Seed.from_bytes(SECRET)
    for kind in (AgreementKey, SigningKey):
        key = kind.from_seed(seed)
        assert key.export_seed().export_bytes() == SECRET
        assert kind.from_seed(key.export_seed()).public_key == key.public_key


def test_derivation_is_hkdf_and_commitment_is_sha256() -> None:
    seed = Seed.from_bytes(SECRET)
    for salt, info in ((b"", b""), (b"salt", b"info"), (bytes(100), bytes(200))):
        extracted = hmac.digest(salt or bytes(32), SECRET, "sha256")
        expected = hmac.digest(extracted, info + b"\x01", "sha256")
        assert seed.derive(salt, info).export_bytes() == expected
    context = b"round 3"
    message = b"edgefl/1 seed commitment" + len(context).to_bytes(8, "little") + context + SECRET
    assert seed.commitment(context) == sha256(message).digest()


def test_sealing_takes_a_fresh_nonce_each_time() -> None:
    key = Seed.generate()
    sealed = [_native.seal(key, b"message", b"header") for _ in range(50)]
    assert len({message[:24] for message in sealed}) == 50
    assert {len(message) for message in sealed} == {24 + 7 + 16}
    assert {_native.open_sealed(key, message, b"header") for message in sealed} == {b"message"}


def test_a_seeded_nonce_repeats_only_for_the_same_message() -> None:
    key, nonce_seed = Seed.generate(), Seed.generate()

    def nonce(plaintext: bytes, header: bytes) -> bytes:
        return _native.seal(key, plaintext, header, insecure_nonce_seed=nonce_seed)[:24]

    assert nonce(b"a", b"b") == nonce(b"a", b"b")
    assert len({nonce(b"a", b"b"), nonce(b"ab", b""), nonce(b"", b"ab"), nonce(b"a", b"c")}) == 4


def test_verification_of_malformed_bytes_is_false() -> None:
    key = SigningKey.from_seed(Seed.generate())
    signature = key.sign(b"message")
    assert _native.verify(key.public_key, b"message", signature)
    for public_key, found in (
        (b"", signature),
        (key.public_key[:31], signature),
        (key.public_key + b"x", signature),
        (key.public_key, b""),
        (key.public_key, signature[:63]),
        (key.public_key, signature + b"x"),
        (b"\xff" * 32, signature),
    ):
        assert not _native.verify(public_key, b"message", found)
