"""Masks, sharing, packing and checks of the core against plain Python written from the RFC."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgefl import _native
from edgefl._native import Mask, Seed
from edgefl.errors import ShareError

FIELD = 2**61 - 1
WORD = 2**32
RING_BITS = st.integers(8, 32)
KEYS = st.binary(min_size=32, max_size=32)


CHACHA20 = 1
AES_128_CTR = 2


def masks(add: list[Seed], subtract: list[Seed], prg: int = CHACHA20) -> list[Mask]:
    return [Mask(seed, prg, subtract=False) for seed in add] + [
        Mask(seed, prg, subtract=True) for seed in subtract
    ]


def quarter_round(state: list[int], a: int, b: int, c: int, d: int) -> None:
    for first, second, target, left in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[first] = (state[first] + state[second]) % WORD
        mixed = state[target] ^ state[first]
        state[target] = (mixed << left | mixed >> (32 - left)) % WORD


def chacha20_words(key: bytes) -> Iterator[int]:
    """Yield the words of the stream with zero nonce from block 0. Source: RFC 8439, 2.3."""
    constants = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)]
    words = [int.from_bytes(key[i : i + 4], "little") for i in range(0, 32, 4)]
    for counter in range(WORD):
        start = [*constants, *words, counter, 0, 0, 0]
        state = start.copy()
        for _ in range(10):
            for column in range(4):
                quarter_round(state, *(column + 4 * row for row in range(4)))
            for column in range(4):
                quarter_round(state, *(4 * row + (column + row) % 4 for row in range(4)))
        yield from ((old + new) % WORD for old, new in zip(start, state, strict=True))


@settings(max_examples=25, deadline=None)
@given(KEYS, KEYS, RING_BITS, st.integers(0, 300), st.integers(1, 3))
def test_masks_are_chacha20_words(
    added: bytes, subtracted: bytes, bits: int, length: int, threads: int
) -> None:
    values = np.arange(length, dtype=np.uint32)
    add, subtract = [Seed.from_bytes(added)], [Seed.from_bytes(subtracted)]
    _native.apply_masks(values, bits, masks(add, subtract), threads)
    streams = zip(range(length), chacha20_words(added), chacha20_words(subtracted), strict=False)
    assert values.tolist() == [(i + up - down) % 2**bits for i, up, down in streams]


def test_masks_do_not_depend_on_threads() -> None:
    seeds = [Seed.generate() for _ in range(3)]
    for length in (1, 2047, 2048, 2049, 10_000):
        results = []
        for threads in (1, 2, 5, 64):
            values = np.zeros(length, dtype=np.uint32)
            _native.apply_masks(values, 32, masks(seeds[:2], seeds[2:]), threads)
            results.append(values.tobytes())
        assert len(set(results)) == 1


def test_pairwise_masks_cancel_in_the_sum() -> None:
    bits, d = 20, 1000
    generator = np.random.default_rng(1)
    updates = generator.integers(0, 1000, (4, d), dtype=np.uint32)
    pairs = {(i, j): Seed.generate() for i in range(4) for j in range(i)}
    total = np.zeros(d, dtype=np.uint32)
    for device in range(4):
        masked = updates[device].copy()
        add = [seed for (high, _), seed in pairs.items() if high == device]
        subtract = [seed for (_, low), seed in pairs.items() if low == device]
        _native.apply_masks(masked, bits, masks(add, subtract))
        assert (masked != updates[device]).mean() > 0.99
        _native.add_in_ring(total, masked, bits)
    assert (total == updates.sum(axis=0)).all()


def test_masks_are_uniform_and_use_the_whole_seed() -> None:
    """Chi-square over 256 residues, 2^16 words: P(over 347) is about 1e-4 for a right PRG."""
    for bits, shift in ((8, 0), (20, 12), (32, 24)):
        values = np.zeros(1 << 16, dtype=np.uint32)
        _native.apply_masks(values, bits, masks([Seed.from_bytes(bytes(range(32)))], []))
        counts = np.bincount(values >> shift, minlength=256)
        assert len(counts) == 256
        assert ((counts - 256.0) ** 2 / 256).sum() < 347
    outputs = set()
    for bit in range(256):
        values = np.zeros(4, dtype=np.uint32)
        seed = Seed.from_bytes((1 << bit).to_bytes(32, "little"))
        _native.apply_masks(values, 32, masks([seed], []))
        outputs.add(values.tobytes())
    assert len(outputs) == 256


def share_limbs(secret: bytes, threshold: int, point: int, words: list[int]) -> list[int]:
    """Evaluate the five polynomials at a point; coefficients by degree, then limb."""
    number = int.from_bytes(secret, "little")
    constants = [number >> 52 * limb & (2**52 - 1) for limb in range(5)]
    rows = [constants, *(words[5 * i : 5 * i + 5] for i in range(threshold - 1))]
    return [
        sum(row[limb] * pow(point, degree, FIELD) for degree, row in enumerate(rows)) % FIELD
        for limb in range(5)
    ]


@settings(max_examples=25, deadline=None)
@given(KEYS, KEYS, st.sets(st.integers(1, 2**16), min_size=1, max_size=8), st.data())
def test_shares_are_points_of_the_polynomials(
    secret: bytes, coefficients: bytes, points: set[int], data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, len(points)))
    order = list(points)
    shares = _native.split_secret(
        Seed.from_bytes(secret), threshold, order, Seed.from_bytes(coefficients)
    )
    stream = chacha20_words(coefficients)
    words = [(next(stream) | next(stream) << 32) & FIELD for _ in range(5 * (threshold - 1))]
    for point, share in zip(order, shares, strict=True):
        limbs = share_limbs(secret, threshold, point, words)
        assert share == b"".join(limb.to_bytes(8, "little") for limb in limbs)
    held = data.draw(st.permutations(list(zip(order, shares, strict=True))))
    assert _native.combine_shares(held[:threshold], threshold).export_bytes() == secret


def test_a_wrong_share_of_the_right_form_changes_the_secret() -> None:
    secret = Seed.generate()
    shares = _native.split_secret(secret, 2, [1, 2], Seed.generate())
    wrong = bytes([shares[0][0] ^ 1]) + shares[0][1:]
    try:
        found = _native.combine_shares([(1, wrong), (2, shares[1])], 2).export_bytes()
    except ShareError:
        return
    assert found != secret.export_bytes()


@settings(max_examples=50, deadline=None)
@given(RING_BITS, st.lists(st.integers(0, WORD - 1), max_size=40))
def test_packing_is_one_long_little_endian_number(bits: int, raw: list[int]) -> None:
    values = [value % 2**bits for value in raw]
    number = sum(value << bits * index for index, value in enumerate(values))
    expected = number.to_bytes((bits * len(values) + 7) // 8, "little")
    packed = _native.pack(np.array(values, dtype=np.uint32), bits)
    assert packed == expected
    for source in (packed, bytearray(packed), memoryview(packed)):
        out = np.empty(len(values), dtype=np.uint32)
        _native.unpack(source, bits, out)
        assert out.tolist() == values


def odd_words(session_id: bytes, info: str, count: int) -> NDArray[np.uint32]:
    """Return the first words of a derived stream, each with its lowest bit set."""
    words = np.zeros(count, dtype=np.uint32)
    key = Seed.from_bytes(session_id).derive(b"", info.encode())
    _native.apply_masks(words, 32, [Mask(key, 1, subtract=False)])
    return words | 1


@settings(max_examples=25, deadline=None)
@given(RING_BITS, KEYS, st.integers(0, 3000), st.integers(0, WORD - 1))
def test_check_coordinates_follow_their_definition(
    bits: int, session_id: bytes, length: int, factor: int
) -> None:
    places = np.arange(length)
    values = places.astype(np.uint32) * np.uint32(factor) + np.uint32(1)
    expected = []
    for row in range(_native.CHECK_COORDINATES):
        place_factors = odd_words(session_id, f"check row {row}", 1024)
        tile_factors = odd_words(session_id, f"check row {row} tiles", 3)
        coefficients = place_factors[places % 1024] * tile_factors[places // 1024]
        expected.append(int((coefficients * values).sum(dtype=np.uint32)) % 2**bits)
    assert _native.check_coordinates(values, bits, session_id) == expected


@given(RING_BITS, st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_reducing_is_the_remainder(bits: int, values: list[int]) -> None:
    out = np.empty(len(values), dtype=np.uint32)
    _native.reduce_to_ring(np.array(values, dtype=np.int64), out, bits)
    assert out.tolist() == [value % 2**bits for value in values]


def test_the_backends_are_named() -> None:
    found = _native.backends()
    assert set(found) == {"chacha20", "aes-128-ctr"}
    for names in found.values():
        assert names[-1] == "portable"
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", ["SHARE_BYTES", "SECRET_BYTES"])
def test_sizes_match_what_is_made(name: str) -> None:
    seed = Seed.generate()
    sizes = {
        "SHARE_BYTES": len(_native.split_secret(seed, 1, [1], seed)[0]),
        "SECRET_BYTES": len(seed.export_bytes()),
    }
    assert getattr(_native, name) == sizes[name]
