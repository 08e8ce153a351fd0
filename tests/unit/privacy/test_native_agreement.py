"""The Rust core does what the plan's numbers promise: norm bound and noise of the survivors."""

import math

import numpy as np
import pytest

from edgefl import _native
from edgefl.privacy.clipping import clip_update
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan

N_REPEATS = 10


@pytest.fixture(scope="module")
def plan() -> PrivacyPlan:
    """Return the demo's plan."""
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


def test_quantized_update_is_within_the_sensitivity(plan: PrivacyPlan) -> None:
    rng = np.random.default_rng(3)
    for number in range(N_REPEATS):
        update = rng.normal(size=plan.dimension).astype(np.float32) * 5
        clipped, _ = clip_update(update, plan.clip_norm)
        rounded = np.zeros(plan.dimension, dtype=np.int64)
        seed = _native.Seed.from_bytes(bytes([number]) * 32)
        _native.quantize(clipped, rounded, plan.scale, plan.l2_squared_bound, seed)
        assert float(np.sum(rounded * rounded)) <= plan.l2_squared_bound
        assert float(np.abs(rounded).sum()) <= plan.l1_bound
        error = rounded / plan.scale - clipped
        assert np.abs(error).max() <= 1 / plan.scale


def test_shares_of_honest_survivors_add_up(plan: PrivacyPlan) -> None:
    """The variance over N draws is within 5 of its standard errors; false alarm below 1e-6."""
    total = np.zeros((N_REPEATS, plan.dimension), dtype=np.int64)
    for number in range(N_REPEATS):
        for device in range(plan.n_min):
            share = np.zeros(plan.dimension, dtype=np.int64)
            seed = _native.Seed.from_bytes(bytes([number, device]) * 16)
            _native.add_skellam_noise(share, plan.noise_share_variance, seed)
            total[number] += share
    promised = (plan.noise_multiplier * plan.scale * plan.clip_norm) ** 2
    found = float(np.mean(total.astype(np.float64) ** 2))
    assert found == pytest.approx(promised, rel=5 * math.sqrt(2 / total.size))
