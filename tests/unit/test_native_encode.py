"""The fused device path and the gateway's sum, through the Python door of the core.

The Rust tests hold the fused path to its steps over many cases; these hold both to plain NumPy.
"""

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import hadamard

from edgefl import _native
from edgefl._native import CancelFlag, Mask, RingSum, Seed
from edgefl.errors import Cancelled, ConfigError, PrivacyError, WireError

VECTORS = Path(__file__).parents[1] / "vectors"
SESSION_ID = b"\x03" * 32
SIGN_SEED = b"\x09" * 32
CHECKS = _native.CHECK_COORDINATES
RING_BITS = st.integers(8, 32)


def seed(number: int) -> Seed:
    return Seed.from_bytes(number.to_bytes(32, "little"))


def masks(prg: int, count: int = 3, *, subtract: bool = False) -> list[Mask]:
    return [Mask(seed(100 + index), prg, subtract=subtract) for index in range(count)]


def encode(update: NDArray[np.float32], **changed: Any) -> bytes:
    """Call the fused path with plain settings, some of them changed."""
    plain: dict[str, Any] = {
        "clip_norm": 1.0,
        "scale": 1000.0,
        "l2_squared_bound": 1e30,
        "noise_variance": 0.0,
        "ring_bits": 20,
        "session_id": SESSION_ID,
        "rounding_seed": seed(1),
        "noise_seed": seed(2),
        "masks": [],
    }
    return _native.encode_and_mask(update, **{**plain, **changed})


def keystream(key: Seed, prg: int, lane_bits: int, length: int) -> NDArray[np.uint32]:
    lanes = np.zeros(length, dtype=np.dtype(f"uint{lane_bits}"))
    _native.apply_masks(lanes, lane_bits, [Mask(key, prg, subtract=False)])
    return lanes.astype(np.uint32)


def rotated(values: NDArray[np.float64], block: int) -> NDArray[np.float64]:
    """Rotate by the definition: signs from the seed's stream, then the Hadamard matrix."""
    stream = keystream(Seed.from_bytes(SIGN_SEED), 1, 32, values.size // 32 + 1)
    minus = np.unpackbits(stream.astype("<u4").view(np.uint8), bitorder="little")
    signed = values * (1.0 - 2.0 * minus[: values.size])
    blocks = signed.reshape(-1, block)
    product: NDArray[np.float64] = blocks @ hadamard(block).astype(np.float64) / np.sqrt(block)
    return product.ravel()


def unpacked(packed: bytes, length: int, bits: int) -> NDArray[np.uint32]:
    values = np.empty(length, dtype=np.uint32)
    _native.unpack(packed, bits, values)
    return values


def composed(
    update: NDArray[np.float32], *, bits: int, block: int, weight: int, prg: int
) -> NDArray[np.uint32]:
    """Encode step by step in NumPy, with weight slot and checks, masked."""
    exact = update.astype(np.float64)
    norm = np.sqrt(np.sum(exact * exact))
    scaled = exact * (1000.0 * min(1.0, 1.0 / norm * (1 - 2.0**-22)))
    if block:
        padded = np.zeros(-(-update.size // block) * block)
        padded[: update.size] = scaled
        scaled = rotated(padded, block)
    words = keystream(seed(1).derive(b"", b"rounding attempt 1"), prg, 32, scaled.size)
    floors = np.floor(scaled)
    integers = floors + (words < (scaled - floors) * 2.0**32)
    ring = 2**bits
    values = (integers.astype(np.int64) * weight % ring).astype(np.uint32)
    values = np.append(values, np.uint32(weight))
    checks = np.array(_native.check_coordinates(values, bits, SESSION_ID), dtype=np.uint32)
    values = np.concatenate([values, checks])
    lane_bits = 16 if bits <= 16 else 32
    for index in range(3):
        values += keystream(seed(100 + index), prg, lane_bits, values.size)
    reduced: NDArray[np.uint32] = (values.astype(np.uint64) % ring).astype(np.uint32)
    return reduced


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9000),
    RING_BITS,
    st.sampled_from([0, 1, 2, 64, 512]),
    st.integers(0, 50),
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
def test_the_fused_path_is_its_steps(
    dimension: int, bits: int, block: int, weight: int, prg: int, threads: int, number: int
) -> None:
    update = np.random.default_rng(number).normal(size=dimension).astype(np.float32)
    packed = encode(
        update,
        ring_bits=bits,
        rotation_block=block,
        rotation_seed=SIGN_SEED,
        weight=weight,
        weight_bound=50,
        masks=masks(prg),
        rounding_prg=prg,
        threads=threads,
    )
    expected = composed(update, bits=bits, block=block, weight=weight, prg=prg)
    found = unpacked(packed, expected.size, bits)
    # A value within 1e-12 of a neighbour's threshold may fall either way in another summation;
    # that one coordinate then also moves the checks. Not seen in these seeds beyond rotation.
    differs = found != expected
    if block <= 1:
        assert not differs.any()
    else:
        assert differs.sum() <= 1 + CHECKS


def test_threads_give_the_same_bytes() -> None:
    update = np.random.default_rng(5).normal(size=50_000).astype(np.float32)
    for changed in ({"noise_variance": 30.0}, {"rotation_block": 4096, "rotation_seed": SIGN_SEED}):
        one = encode(update, masks=masks(1), **changed)
        assert all(encode(update, masks=masks(1), threads=n, **changed) == one for n in (2, 3, 64))


def test_noise_is_that_of_the_noise_function() -> None:
    update = np.zeros(9000, dtype=np.float32)
    noise = np.zeros(9000, dtype=np.int64)
    _native.add_skellam_noise(noise, 30.0, seed(2))
    found = unpacked(encode(update, noise_variance=30.0), 9000 + CHECKS, 20)
    assert (found[:9000] == noise % 2**20).all()
    assert found[:9000].std() > 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_rotation_is_the_hadamard_matrix_with_signs(power: int, blocks: int, number: int) -> None:
    block = 2 ** min(power, 9)
    values = np.random.default_rng(number).normal(size=block * blocks)
    expected = rotated(values, block)
    _native.rotate(values, block, SIGN_SEED)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("block", [1, 2, 256, 4096])
def test_a_single_one_spreads_evenly(block: int) -> None:
    values = np.zeros(8192)
    values[4097] = 1.0
    _native.rotate(values, block, SIGN_SEED)
    start = 4097 // block * block
    inside = np.abs(values[start : start + block])
    np.testing.assert_allclose(inside, block**-0.5, rtol=1e-15)
    assert np.count_nonzero(values) == block


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9000), st.sampled_from([0, 16, 4096]), st.integers(2, 6))
def test_a_sum_decodes_to_the_updates(dimension: int, block: int, cohort: int) -> None:
    rng = np.random.default_rng(dimension)
    updates = rng.normal(size=(cohort, dimension)).astype(np.float32) / np.float32(200.0)
    rotation: dict[str, Any] = {"rotation_block": block, "rotation_seed": SIGN_SEED}
    padded = -(-dimension // block) * block if block else dimension
    total = RingSum(padded + CHECKS, 24)
    for device, update in enumerate(updates):
        mask = [Mask(seed(device), 1, subtract=False)]
        total.add_packed(
            encode(update, ring_bits=24, masks=mask, rounding_seed=seed(50 + device), **rotation)
        )
    total.apply_masks([Mask(seed(device), 1, subtract=True) for device in range(cohort)])
    assert total.checks_hold(SESSION_ID)
    values = np.frombuffer(total.values(padded), dtype="<u4").astype(np.uint32)
    out = np.empty(dimension)
    _native.decode_sum(values, out, ring_bits=24, scale=1000.0, **rotation)
    error = np.abs(out - updates.sum(axis=0, dtype=np.float64))
    # Less than one unit each, in the norm of a block.
    assert error.max() < cohort / 1000.0 * max(block, 1) ** 0.5


def test_a_sum_refuses_what_is_malformed_and_keeps_its_content() -> None:
    total = RingSum(6, 20)
    packed = encode(np.ones(2, dtype=np.float32))
    total.add_packed(packed)
    before = total.values(2)
    for wrong in (b"", packed[:-1], packed + b"\0"):
        with pytest.raises(WireError, match="E-PACKED-LENGTH"):
            total.add_packed(wrong)
    odd = RingSum(5, 13)
    with pytest.raises(WireError, match="E-PACKED-PADDING"):
        odd.add_packed(b"\0" * 8 + b"\x80")
    assert odd.values(1) == b"\0" * 4
    assert total.values(2) == before
    assert total.checks_hold(SESSION_ID)
    assert not total.checks_hold(b"\x04" * 32)
    assert len(total) == 6
    with pytest.raises(ConfigError, match="E-LENGTH"):
        total.values(3)


def test_a_cancelled_sum_is_gone() -> None:
    flag = CancelFlag()
    flag.cancel()
    total = RingSum(10_000, 20)
    with pytest.raises(Cancelled):
        total.apply_masks(masks(1), cancel=flag)
    for use in (
        lambda: total.add_packed(b""),
        lambda: total.values(1),
        lambda: total.checks_hold(SESSION_ID),
        lambda: total.apply_masks([]),
    ):
        with pytest.raises(ConfigError, match="E-SUM-SPOILT"):
            use()
    with pytest.raises(Cancelled):
        encode(np.ones(5000, dtype=np.float32), cancel=flag)


def test_a_sum_may_be_shared_by_threads() -> None:
    update = np.full(3000, 0.01, dtype=np.float32)
    packed = encode(update)
    total = RingSum(3000 + CHECKS, 20)

    def add_often() -> None:
        for _ in range(50):
            total.add_packed(packed)

    workers = [threading.Thread(target=add_often) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    single = unpacked(packed, 3000 + CHECKS, 20)[:3000]
    found = np.frombuffer(total.values(3000), dtype="<u4")
    assert (found == single.astype(np.uint64) * 200 % 2**20).all()
    assert total.checks_hold(SESSION_ID)


def test_nothing_of_a_sum_is_shown_or_copied() -> None:
    total = RingSum(9, 20)
    assert repr(total) == "<RingSum>"
    with pytest.raises(TypeError):
        total.__reduce__()


REFUSED: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (ConfigError, "E-CLIP-NORM", {"clip_norm": 0.0}),
    (ConfigError, "E-CLIP-NORM", {"clip_norm": float("nan")}),
    (ConfigError, "E-QUANTIZE-SCALE", {"scale": float("inf")}),
    (ConfigError, "E-NORM-BOUND", {"l2_squared_bound": -1.0}),
    (ConfigError, "E-RING-BITS", {"ring_bits": 33}),
    (ConfigError, "E-ROTATION-BLOCK", {"rotation_block": 3, "rotation_seed": SIGN_SEED}),
    (ConfigError, "E-ROTATION-BLOCK", {"rotation_block": 8192, "rotation_seed": SIGN_SEED}),
    (ConfigError, "E-ROTATION-BLOCK", {"rotation_block": 10**30, "rotation_seed": SIGN_SEED}),
    (ConfigError, "E-LENGTH", {"rotation_block": 4, "rotation_seed": b"short"}),
    (ConfigError, "E-LENGTH", {"session_id": b"short"}),
    (ConfigError, "E-WEIGHT", {"weight": 2}),
    (ConfigError, "E-WEIGHT", {"weight": 6, "weight_bound": 5}),
    (ConfigError, "E-WEIGHT", {"weight": -1, "weight_bound": 5}),
    (ConfigError, "E-PRG", {"rounding_prg": 3}),
    (ConfigError, "E-THREADS", {"threads": 0}),
    (PrivacyError, "E-WEIGHTED-NOISE", {"weight_bound": 5, "noise_variance": 1.0}),
    (PrivacyError, "E-NOISE-VARIANCE", {"noise_variance": -1.0}),
    (PrivacyError, "E-UPDATE-NORM", {"l2_squared_bound": 10.0}),
    (PrivacyError, "E-UPDATE-RANGE", {"scale": 2e15}),
]


@pytest.mark.parametrize(("kind", "code", "changed"), REFUSED)
def test_unusable_settings_are_refused(
    kind: type[Exception], code: str, changed: dict[str, Any]
) -> None:
    with pytest.raises(kind, match=code):
        encode(np.ones(10, dtype=np.float32), **changed)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(bad: float) -> None:
    update = np.zeros(5000, dtype=np.float32)
    update[4100:4103] = bad
    with pytest.raises(PrivacyError, match=r"E-UPDATE-NOT-FINITE.*3 NaN.*4100"):
        encode(update)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, ">f4"])
def test_updates_are_not_cast(dtype: str) -> None:
    with pytest.raises(ConfigError, match="E-BUFFER-FORMAT"):
        encode(np.ones(3, dtype=dtype))


def test_encoding_is_as_before() -> None:
    cases = json.loads((VECTORS / "regression_encode.json").read_text())["cases"]
    assert cases
    for case in cases:
        assert hashlib.sha256(encode_case(case)).hexdigest() == case["sha256"]


def encode_case(case: dict[str, Any]) -> bytes:
    """Encode the update of a regression case: steps of 1/64 from -1, over and over."""
    update = (np.arange(case["dimension"]) % 129 - 64).astype(np.float32) / np.float32(64)
    return encode(
        update,
        l2_squared_bound=case["l2_squared_bound"],
        noise_variance=case["noise_variance"],
        ring_bits=case["ring_bits"],
        rotation_block=case["rotation_block"],
        rotation_seed=SIGN_SEED,
        weight=case["weight"],
        weight_bound=case["weight_bound"],
        rounding_prg=case["prg"],
        masks=masks(case["prg"]),
    )
