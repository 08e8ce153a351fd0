"""Standard vectors and our own past outputs, through the Python door of the core."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefl import _native
from edgefl._native import AgreementKey, Mask, Seed, SigningKey
from edgefl.errors import RemoteProtocolError

VECTORS = Path(__file__).parents[1] / "vectors"
Case = dict[str, Any]


def cases(name: str, key: str = "cases") -> list[Case]:
    found = json.loads((VECTORS / name).read_text())[key]
    assert found
    return found


def unhex(case: Case, field: str) -> bytes:
    return bytes.fromhex(case[field])


def seed(text: str) -> Seed:
    return Seed.from_bytes(bytes.fromhex(text))


def keystream_holds(case: Case) -> bool:
    start = 16 * case["block"]
    words = np.zeros(start + 16, dtype=np.uint32)
    _native.apply_masks(words, 32, [Mask(seed(case["key"]), 1, subtract=False)])
    return words[start:].astype("<u4").tobytes() == unhex(case, "keystream")


def agreement_holds(case: Case) -> bool:
    key = AgreementKey.from_seed(seed(case["scalar"]))
    agreed = key.agree(unhex(case, "u"), b"salt", b"info")
    expected = seed(case["result"]).derive(b"salt", b"info")
    return agreed.export_bytes() == expected.export_bytes()


def signature_holds(case: Case) -> bool:
    key = SigningKey.from_seed(seed(case["secret_key"]))
    return (
        key.public_key == unhex(case, "public_key")
        and key.sign(unhex(case, "message")) == unhex(case, "signature")
        and verification_holds(case)
    )


def verification_holds(case: Case) -> bool:
    return _native.verify(
        unhex(case, "public_key"), unhex(case, "message"), unhex(case, "signature")
    )


def opening_holds(case: Case) -> bool:
    sealed = unhex(case, "nonce") + unhex(case, "ciphertext") + unhex(case, "tag")
    try:
        opened = _native.open_sealed(seed(case["key"]), sealed, unhex(case, "associated_data"))
    except RemoteProtocolError:
        return False
    return opened == unhex(case, "plaintext")


CHECKS: list[tuple[str, Callable[[Case], bool], list[str]]] = [
    ("rfc8439_chacha20.json", keystream_holds, ["key", "keystream"]),
    ("rfc7748_x25519.json", agreement_holds, ["scalar", "u", "result"]),
    (
        "rfc8032_ed25519.json",
        signature_holds,
        ["secret_key", "public_key", "message", "signature"],
    ),
    ("rfc8032_ed25519.json", verification_holds, ["public_key", "message", "signature"]),
    (
        "xchacha20_poly1305.json",
        opening_holds,
        ["key", "nonce", "associated_data", "plaintext", "ciphertext", "tag"],
    ),
]


@pytest.mark.parametrize(("name", "holds", "fields"), CHECKS)
def test_vectors_hold_and_a_flipped_byte_is_noticed(
    name: str, holds: Callable[[Case], bool], fields: list[str]
) -> None:
    for case in cases(name):
        assert holds(case)
        for field in fields:
            content = bytearray(unhex(case, field))
            if content:
                content[len(content) // 2] ^= 1
                assert not holds({**case, field: content.hex()}), field


def test_signatures_that_must_not_verify_do_not() -> None:
    for case in cases("rfc8032_ed25519.json", "refused"):
        assert not verification_holds(case), case["why"]


def test_public_keys_of_small_order_are_refused() -> None:
    key = AgreementKey.from_seed(Seed.generate())
    for public_key in cases("small_order_x25519.json", "public_keys"):
        with pytest.raises(RemoteProtocolError, match="E-PUBLIC-KEY"):
            key.agree(bytes.fromhex(str(public_key)), b"", b"")


def test_masks_are_as_before() -> None:
    for case in cases("regression_masks.json"):
        lane_bits, prg = case["lane_bits"], case["prg"]
        words = np.arange(case["length"], dtype=np.uint32) * np.uint32(2654435761)
        lanes = words.astype(f"uint{lane_bits}")
        masks = [Mask(seed(text), prg, subtract=False) for text in case["add"]]
        masks += [Mask(seed(text), prg, subtract=True) for text in case["subtract"]]
        _native.apply_masks(lanes, case["ring_bits"], masks)
        assert lanes[:8].tolist() == case["first_words"]
        assert sha256(lanes.astype(f"<u{lane_bits // 8}").tobytes()).hexdigest() == case["sha256"]


def test_shares_are_as_before() -> None:
    for case in cases("regression_shares.json"):
        threshold, points = case["threshold"], case["points"]
        coefficients = seed(case["coefficient_seed"])
        shares = _native.split_secret(seed(case["secret"]), threshold, points, coefficients)
        assert [share.hex() for share in shares] == case["shares"]
        held = list(zip(points, shares, strict=True))
        found = _native.combine_shares(held[-threshold:], threshold)
        assert found.export_bytes().hex() == case["secret"]


def test_key_schedule_is_as_before() -> None:
    for case in cases("regression_key_schedule.json"):
        own = seed(case["seed"])
        salt, info = unhex(case, "salt"), unhex(case, "info")
        assert own.derive(salt, info).export_bytes().hex() == case["derived"]
        assert own.commitment(info).hex() == case["commitment"]
        key, peer = AgreementKey.from_seed(own), AgreementKey.from_seed(seed(case["peer_seed"]))
        assert key.public_key.hex() == case["agreement_public_key"]
        assert key.agree(peer.public_key, salt, info).export_bytes().hex() == case["agreed"]
        signing = SigningKey.from_seed(own)
        assert signing.public_key.hex() == case["signing_public_key"]
        assert signing.sign(unhex(case, "message")).hex() == case["signature"]
        header, nonce_seed = unhex(case, "associated_data"), seed(case["nonce_seed"])
        sealed = _native.seal(own, unhex(case, "message"), header, nonce_seed)
        assert sealed.hex() == case["sealed"]


def test_packing_and_checks_are_as_before() -> None:
    for case in cases("regression_pack.json"):
        values = np.array(case["values"], dtype=np.uint32)
        assert _native.pack(values, case["ring_bits"]).hex() == case["packed"]
    for case in cases("regression_check_coordinates.json"):
        values = np.array(case["values"], dtype=np.uint32)
        found = _native.check_coordinates(values, case["ring_bits"], unhex(case, "session_id"))
        assert found == case["check_coordinates"]


def test_rounding_and_noise_are_as_before() -> None:
    for case in cases("regression_rounding.json"):
        update = np.array(case["update"], dtype=np.float32)
        out = np.zeros(len(update), dtype=np.int64)
        attempts = _native.quantize(
            update,
            out,
            case["scale"],
            case["l2_squared_bound"],
            seed(case["rounding_seed"]),
            case["max_attempts"],
        )
        assert attempts == case["attempts"]
        assert out.tolist() == case["values"]
    for case in cases("regression_noise.json"):
        values = np.zeros(len(case["values"]), dtype=np.int64)
        _native.add_skellam_noise(values, case["variance"], seed(case["noise_seed"]))
        assert values.tolist() == case["values"]
