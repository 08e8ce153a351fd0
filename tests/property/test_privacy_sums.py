"""Sums at the extremes: whatever plan is made, integers of 2 to 200 devices come back exact."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import linalg

from edgefl.errors import ConfigError
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan
from edgefl.privacy.rotation import rotation_seed

DIMENSION = 100
N_SIGNS = 200

EXTREMES = ("one coordinate up", "one coordinate down", "spread", "alternating", "half up")


def exact_plan(**choices: object) -> PrivacyPlan:
    fixed = {
        "clip_norm": 1.0,
        "noise_multiplier": 0.0,
        "survivor_floor": 2,
        "colluders": 0,
        "dimension": DIMENSION,
        "delta": 1e-5,
        "epsilon_budget": math.inf,
        "rounds": 1,
    }
    return make_privacy_plan(**{**fixed, **choices})


def extreme_update(kind: str, size: int) -> NDArray[np.float64]:
    """Return a vector of norm 1, all of it where a sum gets largest."""
    update = np.zeros(size)
    if kind.startswith("one"):
        update[0] = -1.0 if kind.endswith("down") else 1.0
        return update
    update[:] = 1.0
    if kind == "alternating":
        update[1::2] = -1.0
    if kind == "half up":
        update[size // 2 :] = 0.0
    return update / np.linalg.norm(update)


def rotate(padded: NDArray[np.float64], block: int, seed: bytes) -> NDArray[np.float64]:
    """Rotate block by block with signs of its own making: a plan holds for any public seed."""
    rng = np.random.default_rng(int.from_bytes(seed, "big"))
    signs = rng.choice([-1.0, 1.0], size=padded.size)
    matrix = linalg.hadamard(block) / math.sqrt(block)
    return ((padded * signs).reshape(-1, block) @ matrix.T).reshape(-1)


def centre(ring_value: int, ring_bits: int) -> int:
    half = 1 << (ring_bits - 1)
    return ring_value - (1 << ring_bits) if ring_value >= half else ring_value


def assert_sum_comes_back(plan: PrivacyPlan, rounded: list[list[int]], weights: list[int]) -> None:
    for column in zip(*rounded, strict=True):
        plain = sum(weight * value for weight, value in zip(weights, column, strict=True))
        ring = sum(w * v % 2**plan.ring_bits for w, v in zip(weights, column, strict=True))
        assert centre(ring % 2**plan.ring_bits, plan.ring_bits) == plain
    assert sum(weights) < 2**plan.ring_bits


@given(
    st.integers(2, 200),
    st.integers(1, 1000),
    st.sampled_from(EXTREMES),
    st.sampled_from([None, 12, 16, 20, 24, 32]),
    st.integers(0, 2**32 - 1),
)
def test_no_cohort_overflows_its_ring(
    n_cohort: int, weight_bound: int, kind: str, ring_bits: int | None, luck: int
) -> None:
    """Weights at their bound or random, coordinates rounded away from 0 or by chance."""
    try:
        plan = exact_plan(n_cohort=n_cohort, weight_bound=weight_bound, ring_bits=ring_bits)
    except ConfigError as refusal:
        error = refusal
    else:
        assert_extremes_come_back(plan, kind, luck)
        return
    assert error.code == "E-RING-TOO-SMALL"
    assert 2 * n_cohort * weight_bound * 3 + 1 > 2 ** (ring_bits or 32)


def assert_extremes_come_back(plan: PrivacyPlan, kind: str, luck: int) -> None:
    n_cohort = plan.n_cohort
    rng = np.random.default_rng(luck)
    scaled = extreme_update(kind, DIMENSION) * plan.scale
    outward = (np.copysign(np.ceil(np.abs(scaled)), scaled)).astype(int).tolist()
    rounded = [outward] * n_cohort
    assert_sum_comes_back(plan, rounded, [plan.weight_bound] * n_cohort)
    some = np.floor(scaled + rng.random((n_cohort, DIMENSION))).astype(int).tolist()
    weights = rng.integers(0, plan.weight_bound + 1, n_cohort).tolist()
    assert_sum_comes_back(plan, some, weights)


@given(st.integers(2, 200), st.integers(1, 1000), st.sampled_from([13, 16, 20, 24]))
def test_one_more_unit_would_overflow(n_cohort: int, weight_bound: int, ring_bits: int) -> None:
    """The refusal is no wide guess: the ring is full to one unit and two parts in a million."""
    try:
        plan = exact_plan(n_cohort=n_cohort, weight_bound=weight_bound, ring_bits=ring_bits)
    except ConfigError:
        # The least that a plan needs is a scale above 1, so coordinates up to 3.
        assert 2 * n_cohort * weight_bound * 3 + 1 > 2**ring_bits
        return
    coordinate = math.ceil(plan.scale) + 1
    assert 2 * n_cohort * weight_bound * coordinate + 1 <= 2**ring_bits
    beyond = math.ceil(coordinate * (1 + 2e-6)) + 1
    assert 2 * n_cohort * weight_bound * beyond + 1 > 2**ring_bits


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize(("n_cohort", "weight_bound"), [(2, 1), (16, 1), (200, 1), (200, 50)])
def test_rotated_sums_come_back(n_cohort: int, weight_bound: int, kind: str) -> None:
    """All devices move alike, with many public seeds; 2^-40 leaves no room for a false alarm."""
    plan = exact_plan(n_cohort=n_cohort, weight_bound=weight_bound, rotation=True)
    padded = np.zeros(plan.padded_dimension)
    padded[:DIMENSION] = extreme_update(kind, DIMENSION)
    for number in range(N_SIGNS):
        seed = rotation_seed(hashlib.sha256(number.to_bytes(4, "big")).digest())
        scaled = rotate(padded, plan.rotation_block, seed) * plan.scale
        outward = np.copysign(np.ceil(np.abs(scaled)), scaled)
        total = n_cohort * weight_bound * outward
        assert -(2 ** (plan.ring_bits - 1)) <= total.min()
        assert total.max() < 2 ** (plan.ring_bits - 1)


def test_update_made_for_the_seed_wraps_and_nothing_else() -> None:
    """Devices that know the signs can spoil their round: the bound is about updates that do not.

    What they send keeps the norm bound that the privacy claim is built on.
    """
    plan = exact_plan(n_cohort=200, rotation=True)
    block = plan.rotation_block
    seed = rotation_seed(bytes(32))
    signs = np.random.default_rng(int.from_bytes(seed, "big")).choice([-1.0, 1.0], size=block)
    # H and D are their own inverses up to order: D H e_0, rotated by H D, is e_0 again.
    made_for_it = signs * (linalg.hadamard(block)[0] / math.sqrt(block))
    rotated = rotate(made_for_it, block, seed)
    assert rotated[0] == pytest.approx(1.0)
    rounded = np.copysign(np.ceil(np.abs(rotated * plan.scale) - 1e-9), rotated)
    assert plan.n_cohort * rounded[0] >= 2 ** (plan.ring_bits - 1)
    assert float(np.sum(np.floor(np.abs(rotated * plan.scale)) ** 2)) <= plan.l2_squared_bound
