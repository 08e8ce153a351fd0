"""The chance of leaving the ring: bounds against exact tails, enumerated signs and real sums."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg, special

from edgefl.privacy import bounds, wrap

EXACT = wrap.SumShape(
    n_cohort=16,
    n_min=9,
    noise_multiplier=0.0,
    weight_bound=1,
    dimension=1900,
    rotation_block=0,
    beta=bounds.ROUNDING_FAILURE,
)
NOISY = replace(EXACT, noise_multiplier=0.1)
TURNED = replace(NOISY, rotation_block=2048)

_REACH = 4000


@pytest.mark.parametrize("variance", [0.5, 4.0, 100.0, 5000.0])
@pytest.mark.parametrize("sigmas", [1.0, 3.0, 6.0])
def test_tail_bound_covers_the_exact_tail(variance: float, sigmas: float) -> None:
    start = math.ceil(sigmas * math.sqrt(variance))
    exact = 2 * sum(special.ive(k, variance) for k in range(start, start + 2000))
    bound = wrap.skellam_tail(start, variance)
    assert exact <= bound * (1 + 1e-9)
    # Chernoff loses little more than the polynomial factor.
    assert bound <= exact * 60


def test_tail_at_the_ends() -> None:
    assert wrap.skellam_tail(0.0, 1.0) == 1.0
    assert wrap.skellam_tail(-1.0, 0.0) == 1.0
    assert wrap.skellam_tail(0.5, 0.0) == 0.0
    assert wrap.skellam_tail(1.0, math.inf) == 1.0


def test_tail_of_huge_variance_does_not_cancel() -> None:
    variance = 1e16
    gaussian = 2 * math.exp(-18)
    assert wrap.skellam_tail(6 * math.sqrt(variance), variance) == pytest.approx(gaussian, rel=1e-3)


@pytest.mark.parametrize("shape", [NOISY, TURNED, replace(TURNED, noise_multiplier=0.0)])
def test_largest_scale_is_at_the_edge(shape: wrap.SumShape) -> None:
    scale = wrap.largest_scale(shape, 1.0, 16)
    assert wrap.wrap_probability(shape, scale, 16) <= shape.accepted_probability
    assert wrap.wrap_probability(shape, scale * 1.0001, 16) > shape.accepted_probability


def test_exact_scale_fills_the_ring() -> None:
    norm = wrap.largest_scale(EXACT, 1.0, 16)
    assert 2 * 16 * (math.ceil(norm) + 1) + 1 <= 2**16
    assert 2 * 16 * (math.ceil(norm) + 2) + 1 > 2**16
    assert wrap.wrap_probability(EXACT, norm, 16) == 0.0


def test_worst_case_sum_stays_in_the_ring() -> None:
    """All devices put their whole norm on one coordinate; no draw of the fixed seed may wrap."""
    norm = wrap.largest_scale(NOISY, 1.0, 16)
    rng = np.random.default_rng(11)
    variance = NOISY.noise_share_variance(norm) / 2
    shares = rng.poisson(variance, (16, 20_000)) - rng.poisson(variance, (16, 20_000))
    worst = 16 * math.ceil(norm) + shares.sum(axis=0)
    assert worst.max() < 2**15


def exact_chance(
    blocks: list[NDArray[np.float64]], noise_variance: float, distance: float
) -> float:
    """Average over all signs, and sum over coordinates, the exact chance of the union bound."""
    width = blocks[0].size
    matrix = linalg.hadamard(width) / math.sqrt(width)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=width)))
    lattice = np.arange(-_REACH, _REACH + 1)
    no_more = np.cumsum(special.ive(np.abs(lattice), noise_variance))
    total = 0.0
    for block in blocks:
        rotated = (signs * block) @ matrix.T
        least_up = np.ceil(distance - rotated).astype(int) + _REACH
        most_down = np.floor(-distance - rotated).astype(int) + _REACH
        beyond = 1 - no_more[least_up - 1] + no_more[most_down]
        total += float(beyond.mean(axis=0).sum())
    return total


@pytest.mark.parametrize("noise_variance", [0.0, 4.0, 400.0])
@pytest.mark.parametrize("sigmas", [2.5, 2.8, 3.5])
@pytest.mark.parametrize("kind", ["one coordinate", "spread", "uneven", "two blocks"])
def test_rotated_tail_covers_all_signs(kind: str, sigmas: float, noise_variance: float) -> None:
    """Every pattern of 8 signs is enumerated, so nothing is left to luck."""
    norm = 60.0
    vector = {
        "one coordinate": [1.0] + [0.0] * 7,
        "spread": [1.0] * 8,
        "uneven": [2.0**-step for step in range(8)],
        "two blocks": [1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 0.0, 0.0] * 2,
    }[kind]
    whole = norm * np.array(vector) / np.linalg.norm(vector)
    blocks = list(whole.reshape(-1, 8))
    signs_variance = norm * norm / 8
    distance = sigmas * math.sqrt(signs_variance + noise_variance)
    bound = wrap.rotated_tail(
        distance=distance,
        signs_variance=signs_variance,
        noise_variance=noise_variance,
        rotation_block=8,
        n_blocks=len(blocks),
    )
    assert min(1.0, exact_chance(blocks, noise_variance, distance)) <= bound * (1 + 1e-9)
    assert bound < 1 or sigmas < 3


def test_rotated_tail_without_signs_is_the_noise_tail() -> None:
    rotated = wrap.rotated_tail(
        distance=400.0, signs_variance=0.0, noise_variance=4000.0, rotation_block=64, n_blocks=3
    )
    assert rotated == pytest.approx(3 * 64 * wrap.skellam_tail(400.0, 4000.0), rel=1e-9)


def test_rotated_tail_without_noise_is_hoeffdings() -> None:
    rotated = wrap.rotated_tail(
        distance=60.0, signs_variance=100.0, noise_variance=0.0, rotation_block=64, n_blocks=1
    )
    assert rotated == pytest.approx(128 * math.exp(-18))


@pytest.mark.parametrize("distance", [0.0, -5.0, 1.0, 1e3, 2.0**31])
@pytest.mark.parametrize("signs_variance", [0.0, 1e-300, 1.0, 1e12, 2.0**100])
@pytest.mark.parametrize("noise_variance", [0.0, 1e-300, 1.0, 1e15])
def test_rotated_tail_is_a_probability_at_the_ends(
    distance: float, signs_variance: float, noise_variance: float
) -> None:
    chance = wrap.rotated_tail(
        distance=distance,
        signs_variance=signs_variance,
        noise_variance=noise_variance,
        rotation_block=4096,
        n_blocks=250,
    )
    assert 0.0 <= chance <= 1.0
    if distance <= 0:
        assert chance == 1.0


def test_newton_finds_the_best_rate() -> None:
    """The bound at the found rate is within rounding of the least over a fine grid of rates."""
    numbers = {"distance": 4096.0, "signs_variance": 4e5, "noise_variance": 6e4}
    grid = np.linspace(1e-4, 0.05, 20_000)
    full = grid**2 * numbers["signs_variance"] / 2
    noise = numbers["noise_variance"] * (np.cosh(grid) - 1)
    logs = math.log(2 * 2048) + full + noise - grid * numbers["distance"]
    found = wrap.rotated_tail(**numbers, rotation_block=2048, n_blocks=1)
    assert math.log(found) == pytest.approx(float(logs.min()), abs=1e-6)


def test_rotation_never_makes_the_bound_worse() -> None:
    for bits in range(8, 33):
        for norm in (1.5, 30.0, 1e3, 1e5):
            turned = wrap.wrap_probability(TURNED, norm, bits)
            padded = replace(NOISY, dimension=2048)
            assert turned <= wrap.wrap_probability(padded, norm, bits)
