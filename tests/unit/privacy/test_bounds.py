"""Bounds against what they bound: real rounding and the noise of real survivors."""

import math

import numpy as np
import pytest

from edgefl.privacy import bounds
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan

N_TRIALS = 4000


def demo_plan() -> PrivacyPlan:
    return make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=0.1,
        n_cohort=16,
        survivor_floor=10,
        colluders=1,
        dimension=1900,
        delta=1e-5,
        epsilon_budget=1500.0,
        rounds=20,
    )


def skellam(rng: np.random.Generator, variance: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.poisson(variance / 2, shape) - rng.poisson(variance / 2, shape)


def assert_survivors_carry_the_promised_noise(plan: PrivacyPlan, share_variance: float) -> None:
    """Draw the noise of n_min devices; false alarm below 1e-6 (variance of N draws, 5 sigma)."""
    rng = np.random.default_rng(20240501)
    total = skellam(rng, share_variance, (plan.n_min, N_TRIALS)).sum(axis=0)
    promised = (plan.noise_multiplier * plan.scale * plan.clip_norm) ** 2
    assert np.mean(total.astype(float) ** 2) >= promised * (1 - 5 * math.sqrt(2 / N_TRIALS))


def test_honest_survivors_carry_the_promised_noise() -> None:
    plan = demo_plan()
    assert_survivors_carry_the_promised_noise(plan, plan.noise_share_variance)


@pytest.mark.parametrize("wrong_count", ["cohort", "tenth of the noise"])
def test_planted_share_bugs_are_caught(wrong_count: str) -> None:
    plan = demo_plan()
    promised = plan.noise_share_variance * plan.n_min
    planted = promised / plan.n_cohort if wrong_count == "cohort" else promised / plan.n_min / 100
    with pytest.raises(AssertionError):
        assert_survivors_carry_the_promised_noise(plan, planted)


@pytest.mark.parametrize("dimension", [1, 10, 1900])
@pytest.mark.parametrize("shape", ["spread", "one coordinate"])
def test_rounding_stays_in_the_bound_as_often_as_beta_says(dimension: int, shape: str) -> None:
    """At most beta of the draws may exceed the bound; false alarm below 1e-6 (5 sigma)."""
    rng = np.random.default_rng(7)
    scale, beta, draws = 50.0, bounds.ROUNDING_FAILURE, 2000
    update = np.zeros(dimension)
    update[:] = 1 / math.sqrt(dimension) if shape == "spread" else 0.0
    update[0] = update[0] if shape == "spread" else 1.0
    scaled = update * scale
    rounded = np.floor(scaled + rng.random((draws, dimension)))
    squared = np.sum(np.square(rounded), axis=1)
    bound = bounds.rounded_l2_squared(scale, 1.0, dimension, beta)
    sure_bound = bounds.rounded_l2_squared(scale, 1.0, dimension, 0.0)
    assert np.mean(squared > bound) <= beta + 5 * math.sqrt(beta * (1 - beta) / draws)
    assert (squared <= sure_bound).all()
    assert bound <= sure_bound
    kept = rounded[squared <= bound]
    assert (np.abs(kept).sum(axis=1) <= bounds.rounded_l1(bound, dimension) * (1 + 1e-12)).all()
    assert np.abs(kept).max() <= bounds.coordinate_bound(scale, 1.0, bound)
