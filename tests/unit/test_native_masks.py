"""Masks, sharing, packing and checks of the core against plain Python written from the RFC."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgefl import _native
from edgefl._native import CancelFlag, Mask, Seed
from edgefl.errors import Cancelled, ShareError

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
        total += masked
    assert (total % 2**bits == updates.sum(axis=0)).all()


LANES = [np.uint16, np.uint32]
PRGS = [CHACHA20, AES_128_CTR]


def expand(raw_seed: bytes, prg: int, length: int, lane: type, bits: int) -> np.ndarray:
    lanes = np.zeros(length, dtype=lane)
    _native.apply_masks(lanes, bits, masks([Seed.from_bytes(raw_seed)], [], prg))
    return lanes


@pytest.mark.parametrize("prg", PRGS)
def test_narrow_and_wide_lanes_cut_one_stream(prg: int) -> None:
    key = bytes(range(32))
    wide = expand(key, prg, 5000, np.uint32, 32)
    narrow = expand(key, prg, 10_000, np.uint16, 16)
    assert wide.astype("<u4").tobytes() == narrow.astype("<u2").tobytes()


@pytest.mark.parametrize("prg", PRGS)
@pytest.mark.parametrize("lane", LANES)
def test_masks_are_uniform(prg: int, lane: type) -> None:
    """Chi-square over 256 residues, 2^16 lanes: P(over 347) is about 1e-4 for a right PRG."""
    width = np.iinfo(lane).bits
    for bits in {8, 11, width - 3, width}:
        values = expand(bytes(range(32)), prg, 1 << 16, lane, bits)
        for shift in (0, bits - 8):
            counts = np.bincount(values >> shift & 255, minlength=256)
            assert len(counts) == 256
            assert ((counts - 256.0) ** 2 / 256).sum() < 347


@pytest.mark.parametrize("prg", PRGS)
@pytest.mark.parametrize("lane", LANES)
def test_every_residue_occurs(prg: int, lane: type) -> None:
    """2^21 lanes over 2^16 residues: a right PRG misses one with probability 2^16 e^-32."""
    values = expand(bytes(range(1, 33)), prg, 1 << 21, lane, 16)
    assert len(np.unique(values)) == 1 << 16


def bits_that_matter(expander: Callable[[bytes], bytes]) -> set[int]:
    """Return the bits of a 32-byte seed that change the mask when flipped."""
    start = bytes(range(100, 132))
    number = int.from_bytes(start, "little")
    usual = expander(start)
    return {
        bit for bit in range(256) if expander((number ^ 1 << bit).to_bytes(32, "little")) != usual
    }


@pytest.mark.parametrize(("prg", "width"), [(CHACHA20, 256), (AES_128_CTR, 128)])
@pytest.mark.parametrize("lane", LANES)
def test_every_bit_of_the_key_matters(prg: int, width: int, lane: type) -> None:
    bits = np.iinfo(lane).bits
    found = bits_that_matter(lambda seed: expand(seed, prg, 16, lane, bits).tobytes())
    assert found == set(range(width))


def test_a_seed_folded_to_32_bits_would_be_noticed() -> None:
    """What a generator seeded with 32 bits does (NumPy's legacy one, for example) is seen above."""

    def folded(seed: bytes) -> bytes:
        return expand(seed[:4] + bytes(28), CHACHA20, 16, np.uint32, 32).tobytes()

    assert bits_that_matter(folded) == set(range(32))


def test_a_flag_ends_masking_in_another_thread() -> None:
    """Without the flag the masks would take seconds."""
    added = masks([Seed.generate() for _ in range(500)], [])
    lanes = np.zeros(1 << 21, dtype=np.uint32)
    flag = CancelFlag()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(_native.apply_masks, lanes, 32, added, 1, flag)
        assert not flag.is_cancelled
        flag.cancel()
        with pytest.raises(Cancelled, match="E-CANCELLED"):
            future.result(timeout=30)
    assert flag.is_cancelled
    assert not lanes.any()


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
