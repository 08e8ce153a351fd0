"""Speed of the core's vector functions beside plain NumPy, in one run.

Off by default; run with `pytest --benchmark-enable tests/benchmarks/test_masks.py`. The ratio to
NumPy is taken by turns and kept in the JSON's `extra_info` (`--benchmark-json FILE`), for a time
alone says little on a shared machine.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from edgefl import _native
from edgefl._native import Mask, Seed

COORDINATES = 100_000
RING_BITS = 20


def seed(number: int) -> Seed:
    return Seed.from_bytes(number.to_bytes(32, "little"))


def numpy_masks(accumulator: np.ndarray, masks: int) -> None:
    """The baseline: NumPy's own fast generator and a wrapping add. It is no secure PRG."""
    for number in range(masks):
        words = np.random.Generator(np.random.PCG64(number)).integers(
            0, 2**32, len(accumulator), dtype=np.uint32
        )
        accumulator += words
    accumulator &= np.uint32(2**RING_BITS - 1)


def ratio_by_turns(theirs: Callable[[], object], ours: Callable[[], object]) -> float:
    """Return the median of nine ratios of CPU time, theirs to ours."""
    ratios = []
    for _ in range(9):
        times = []
        for work in (theirs, ours):
            started = time.process_time()
            work()
            times.append(time.process_time() - started)
        ratios.append(times[0] / max(times[1], 1e-9))
    return statistics.median(ratios)


@pytest.mark.parametrize("prg", [1, 2], ids=["chacha20", "aes-128-ctr"])
@pytest.mark.parametrize(("lane", "bits"), [(np.uint16, 16), (np.uint32, RING_BITS)])
@pytest.mark.parametrize("masks", [1, 30])
def test_mask_expansion(
    benchmark: BenchmarkFixture, masks: int, lane: type, bits: int, prg: int
) -> None:
    added = [Mask(seed(number), prg, subtract=False) for number in range(masks)]
    accumulator = np.zeros(COORDINATES, dtype=lane)
    benchmark(_native.apply_masks, accumulator, bits, added)
    assert accumulator.any()
    assert accumulator.max() < 2**bits
    if benchmark.enabled:
        baseline = np.zeros(COORDINATES, dtype=np.uint32)
        benchmark.extra_info["ratio_to_numpy_pcg64"] = ratio_by_turns(
            lambda: numpy_masks(baseline, masks),
            lambda: _native.apply_masks(accumulator, bits, added),
        )
        name, backends = list(_native.backends().items())[prg - 1]
        benchmark.extra_info["ns_per_coordinate"] = _native.measure_backend(
            name, backends[0], np.iinfo(lane).bits
        )


def test_packing(benchmark: BenchmarkFixture) -> None:
    values = np.arange(COORDINATES, dtype=np.uint32)
    packed = benchmark(_native.pack, values, RING_BITS)
    assert len(packed) == COORDINATES * RING_BITS // 8
    benchmark.extra_info["bytes_per_coordinate"] = len(packed) / COORDINATES


def test_unpacking(benchmark: BenchmarkFixture) -> None:
    values = np.arange(COORDINATES, dtype=np.uint32)
    out = np.empty_like(values)
    benchmark(_native.unpack, _native.pack(values, RING_BITS), RING_BITS, out)
    assert (out == values).all()


def test_check_coordinates(benchmark: BenchmarkFixture) -> None:
    values = np.arange(COORDINATES, dtype=np.uint32)
    found = benchmark(_native.check_coordinates, values, RING_BITS, bytes(32))
    assert len(found) == _native.CHECK_COORDINATES


@pytest.mark.parametrize("variance", [100.0, 1e6])
def test_skellam_noise(benchmark: BenchmarkFixture, variance: float) -> None:
    values = np.zeros(COORDINATES, dtype=np.int64)
    benchmark(_native.add_skellam_noise, values, variance, seed(1))
    assert values.any()


def test_rounding(benchmark: BenchmarkFixture) -> None:
    update = np.random.default_rng(1).normal(size=COORDINATES).astype(np.float32)
    out = np.empty(COORDINATES, dtype=np.int64)
    attempts = benchmark(_native.quantize, update, out, 1000.0, float("inf"), seed(1))
    assert attempts == 1


def test_splitting_and_combining(benchmark: BenchmarkFixture) -> None:
    points = list(range(1, 102))
    secret = seed(1)

    def share_and_recover() -> bytes:
        shares = _native.split_secret(secret, 67, points, seed(2))
        return _native.combine_shares(list(zip(points, shares, strict=True)), 67).export_bytes()

    assert benchmark(share_and_recover) == secret.export_bytes()
