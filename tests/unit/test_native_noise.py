"""Rounding and Skellam noise of the core: exact tables, distributions, bounds.

Statistical tests have fixed seeds, so they pass or fail for good; the false-alarm rate stated is
that of a right sampler under a seed drawn at random.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from edgefl import _native
from edgefl._native import Seed

VECTORS = Path(__file__).parents[1] / "vectors"
TABLES = json.loads((VECTORS / "regression_noise.json").read_text())["tables"]
FALSE_ALARM = 1e-6


def seed(number: int) -> Seed:
    return Seed.from_bytes(number.to_bytes(32, "little"))


def skellam(variance: float, count: int, number: int = 1) -> np.ndarray:
    values = np.zeros(count, dtype=np.int64)
    _native.add_skellam_noise(values, variance, seed(number))
    return values


def outward_weights(lambda_units: int, mode_weight: int, least: int) -> dict[int, int]:
    """Run the recurrence of noise.rs with unbounded integers; value -> weight."""
    mode = lambda_units >> 16
    weights = {mode: mode_weight}
    value, weight = mode, mode_weight
    while value > 0 and (weight := weight * (value << 16) // lambda_units) > least:
        value -= 1
        weights[value] = weight
    value, weight = mode, mode_weight
    while (weight := weight * lambda_units // ((value + 1) << 16)) > least:
        value += 1
        weights[value] = weight
    return weights


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table["lambda_units"]))
def test_tables_are_poisson(table: dict[str, Any]) -> None:
    """The stored tables, to which the Rust tests hold the sampler, against SciPy."""
    total, rate = int(table["total"]), table["lambda_units"] / 2**16
    for value, weight in table["weights"].items():
        expected = stats.poisson.pmf(int(value), rate)
        assert int(weight) / total == pytest.approx(expected, rel=1e-6, abs=1e-24)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table["lambda_units"]))
def test_tables_are_within_the_stated_distance(table: dict[str, Any]) -> None:
    """Total variation distance to a table of 2^200 at the mode, whose own error is far smaller."""
    lambda_units = table["lambda_units"]
    drawn = outward_weights(lambda_units, 2**84, 0)
    exact = outward_weights(lambda_units, 2**200, 0)
    assert min(drawn) == table["first"]
    assert len(drawn) == table["entries"]
    drawn_total, exact_total = sum(drawn.values()), sum(exact.values())
    assert drawn_total == int(table["total"])
    difference = sum(
        abs(weight * drawn_total - drawn.get(value, 0) * exact_total)
        for value, weight in exact.items()
    )
    distance = Fraction(difference, 2 * drawn_total * exact_total)
    assert distance < Fraction(1, 2**66)


@pytest.mark.parametrize("variance", [2.0**-15, 0.5, 3.0, 40.0])
def test_noise_follows_the_skellam_distribution(variance: float) -> None:
    """Chi-square over the values with 10 or more expected, the rest in one cell."""
    count = 200_000
    sample = skellam(variance, count, number=2)
    span = np.arange(sample.min() - 1, sample.max() + 2)
    expected = stats.skellam.pmf(span, variance / 2, variance / 2) * count
    observed = np.array([(sample == value).sum() for value in span])
    common = expected >= 10
    cells = np.append(observed[common], count - observed[common].sum())
    hoped = np.append(expected[common], count - expected[common].sum())
    kept = hoped >= 1
    statistic = ((cells[kept] - hoped[kept]) ** 2 / hoped[kept]).sum()
    assert stats.chi2.sf(statistic, max(kept.sum() - 1, 1)) > FALSE_ALARM


@pytest.mark.parametrize("variance", [0.25, 100.0, 1e6, 2.0**25, 2.0**25 + 1.0, 2.0**28])
def test_noise_has_the_stated_moments(variance: float) -> None:
    """Mean 0 and this variance; each off by more than 5 standard errors once in 1.7 million."""
    count = 100_000
    sample = skellam(variance, count, number=3).astype(np.float64)
    deviation = np.sqrt(variance)
    assert abs(sample.mean()) < 5 * deviation / np.sqrt(count)
    kurtosis = 3 + 1 / variance
    assert abs(sample.var() / variance - 1) < 5 * np.sqrt((kurtosis - 1) / count)
    if variance >= 1e6:
        # Nearly normal: the share beyond two deviations; 1e-3 is for the steps of whole numbers.
        share = (np.abs(sample) > 2 * deviation).mean()
        normal_share = 2 * stats.norm.sf(2)
        assert abs(share - normal_share) < 5 * np.sqrt(normal_share / count) + 1e-3


def test_noise_is_added_and_independent_between_coordinates() -> None:
    start = np.arange(1000, dtype=np.int64) * 10**15
    values = start.copy()
    _native.add_skellam_noise(values, 50.0, seed(4))
    assert (values - start == skellam(50.0, 1000, number=4)).all()
    sample = skellam(50.0, 100_000, number=5).astype(np.float64)
    for lag in (1, 2, 7):
        correlation = np.corrcoef(sample[:-lag], sample[lag:])[0, 1]
        assert abs(correlation) < 5 / np.sqrt(len(sample))


def test_noise_of_two_seeds_differs_and_of_one_repeats() -> None:
    assert (skellam(1e4, 100, 6) == skellam(1e4, 100, 6)).all()
    assert (skellam(1e4, 100, 6) != skellam(1e4, 100, 7)).mean() > 0.9


def test_variance_zero_adds_nothing_and_the_smallest_something() -> None:
    assert not skellam(0.0, 1000).any()
    rounded_up = skellam(5e-324, 500_000)
    assert (rounded_up == skellam(2.0**-15, 500_000)).all()
    assert rounded_up.any()


def test_rounding_is_unbiased() -> None:
    """Each mean is off by more than 5 standard errors once in 1.7 million."""
    count = 100_000
    for value in (0.25, -0.25, 0.999, -3.5, 1e-3):
        update = np.full(count, value, dtype=np.float32)
        out = np.empty(count, dtype=np.int64)
        assert _native.quantize(update, out, 1.0, float("inf"), seed(8)) == 1
        exact = float(np.float32(value))
        below = np.floor(exact)
        assert set(np.unique(out)) <= {int(below), int(below) + 1}
        fraction = exact - below
        error = np.sqrt(fraction * (1 - fraction) / count)
        assert abs(out.mean() - exact) < 5 * error


def test_rounding_keeps_whole_numbers() -> None:
    update = np.array([0, 1, -1, 123456, -(2**24)], dtype=np.float32)
    out = np.empty(5, dtype=np.int64)
    _native.quantize(update, out, 1.0, float("inf"), seed(9))
    assert out.tolist() == [0, 1, -1, 123456, -(2**24)]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=30),
    st.floats(0.5, 500),
    st.integers(0, 2**32),
    st.integers(1, 5),
)
def test_rounding_never_crosses_the_bound(
    values: list[float], scale: float, number: int, attempts: int
) -> None:
    update = np.array(values, dtype=np.float32)
    bound = float(((update.astype(np.float64) * scale) ** 2).sum()) * (1 + 1e-12)
    out = np.empty(len(values), dtype=np.int64)
    used = _native.quantize(update, out, scale, bound, seed(number), attempts)
    assert sum(value * value for value in out.tolist()) <= bound
    assert 1 <= used <= attempts + 1
    if used == attempts + 1:
        assert (out == np.trunc(update.astype(np.float64) * scale)).all()
