"""Accounting against dp_accounting, published figures and exact divergences."""

import json
import math
from pathlib import Path

import pytest
from dp_accounting.rdp import rdp_privacy_accountant as oracle
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from edgefl.errors import PrivacyError
from edgefl.privacy.accounting import (
    RDP_ORDERS,
    compose,
    epsilon_from_rdp,
    gaussian_rdp,
    poisson_amplified_rdp,
    poisson_gaussian_rdp,
    repeat,
    skellam_rdp,
    skellam_rdp_any_order,
)
from edgefl.privacy.bounds import noise_share_variance, rounded_l1, rounded_l2_squared

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "dp_reference.json").read_text())
# The default orders of dp_accounting 0.6, with which the reference figures were made.
REFERENCE_ORDERS = (
    *(1 + step / 10 for step in range(1, 100)),
    *map(float, range(11, 64)),
    128.0,
    256.0,
    512.0,
    1024.0,
)


def rows(name: str) -> list[dict[str, float]]:
    found = VECTORS[name]["rows"]
    assert found
    return found


def exact_skellam_divergence(variance: float, shift: int, order: float) -> float:
    """Sum the Renyi divergence of one coordinate over all integers of noticeable mass."""
    reach = int(40 * math.sqrt(variance) + 60 + shift * order)
    total = -math.inf
    for k in range(-reach, reach + 1):
        moved, still = special.ive(abs(k - shift), variance), special.ive(abs(k), variance)
        if moved > 0 and still > 0:
            term = order * math.log(moved) - (order - 1) * math.log(still)
            total = max(total, term) + math.log1p(math.exp(-abs(total - term)))
    return total / (order - 1)


@pytest.mark.parametrize("row", rows("gaussian_no_sampling"))
def test_gaussian_composition_matches_the_reference(row: dict[str, float]) -> None:
    curve = repeat(gaussian_rdp(row["z"], REFERENCE_ORDERS), int(row["k"]))
    epsilon = epsilon_from_rdp(REFERENCE_ORDERS, curve, row["delta"])
    assert epsilon == pytest.approx(row["eps_rdp"], rel=1e-6)
    assert epsilon >= row["eps_exact"]


@pytest.mark.parametrize("row", rows("gaussian_no_sampling"))
def test_ledger_orders_never_undercut_the_exact_epsilon(row: dict[str, float]) -> None:
    curve = repeat(gaussian_rdp(row["z"]), int(row["k"]))
    epsilon = epsilon_from_rdp(RDP_ORDERS, curve, row["delta"])
    assert row["eps_exact"] <= epsilon <= row["eps_rdp"] * 1.01


@pytest.mark.parametrize("row", rows("gaussian_poisson"))
def test_poisson_sampled_gaussian_matches_the_reference(row: dict[str, float]) -> None:
    curve = repeat(poisson_gaussian_rdp(row["q"], row["z"], REFERENCE_ORDERS), int(row["T"]))
    epsilon = epsilon_from_rdp(REFERENCE_ORDERS, curve, row["delta"])
    assert epsilon == pytest.approx(row["eps_rdp"], rel=1e-6)


@pytest.mark.parametrize("row", rows("skellam_rdp_1d"))
def test_skellam_bound_matches_the_reference(row: dict[str, float]) -> None:
    shift = row["shift"]
    (bound,) = skellam_rdp(row["mu"], shift**2, shift, 1, [float(row["alpha"])])
    assert bound == pytest.approx(row["rdp_bound"], rel=1e-6)
    assert bound >= row["rdp_exact"]


@pytest.mark.parametrize("row", rows("distributed_dp"))
def test_distributed_plan_figures_match_the_reference(row: dict[str, float]) -> None:
    n, dimension, scale = int(row["n"]), int(row["dim"]), row["scale"]
    l2_squared = rounded_l2_squared(scale, 1.0, dimension, row["beta"])
    l1 = rounded_l1(l2_squared, dimension)
    share = noise_share_variance(row["z"], scale, 1.0, n)
    assert math.sqrt(l2_squared) == pytest.approx(row["l2_int"], rel=1e-9)
    assert l1 == pytest.approx(row["l1_int"], rel=1e-9)
    assert math.sqrt(share) == pytest.approx(row["local_sd_int"], rel=1e-9)
    assert n * share == pytest.approx(row["mu_int"], rel=1e-9)
    orders = [float(order) for order in range(2, 257)]
    curve = skellam_rdp(n * share, l2_squared, l1, dimension, orders)
    epsilon = epsilon_from_rdp(orders, curve, row["delta"])
    assert epsilon == pytest.approx(row["eps_skellam"], rel=1e-6)


@pytest.mark.parametrize("variance", [1.0, 4.0, 30.0, 1000.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("order", [1.02, 1.11, 1.5, 1.95, 2.0, 2.7, 8.0])
def test_bound_at_any_order_covers_the_exact_divergence(
    variance: float, shift: int, order: float
) -> None:
    bound = skellam_rdp_any_order(variance, shift**2, shift, 1, order)
    assert bound >= exact_skellam_divergence(variance, shift, order)


def test_bound_at_any_order_is_close_for_large_noise() -> None:
    variance, shift, order = 1000.0, 40, 1.5
    bound = skellam_rdp_any_order(variance, shift**2, shift, 1, order)
    assert bound <= exact_skellam_divergence(variance, shift, order) * 1.02


@pytest.mark.parametrize("variance", [1e-3, 0.1, 1.0, 10.0, 1e3, 1e6])
def test_curvature_of_skellam_noise_is_largest_at_zero(variance: float) -> None:
    """The two steps of the proof in docs/privacy.md, checked on Bessel values."""
    values = [special.ive(k, variance) for k in range(12)]
    curvatures = [
        2 * math.log(values[k]) - math.log(values[abs(k - 1)]) - math.log(values[k + 1])
        for k in range(11)
        if values[k + 1] > 1e-280
    ]
    # The differences of logarithms carry an error of about 1e-15 of their terms.
    assert max(curvatures) <= curvatures[0] + 1e-12
    assert curvatures[0] <= 2 * math.log((0.5 + math.hypot(variance, 1.5)) / variance) + 1e-12


def test_planted_curvature_bug_is_caught() -> None:
    """Half the curvature, as if the share were twice as wide, falls below the exact divergence."""
    planted = skellam_rdp_any_order(60.0, 9.0, 3.0, 1, 4.0)
    assert planted < exact_skellam_divergence(30.0, 3, 4.0)


CURVES = st.lists(
    st.floats(min_value=0, max_value=1e4),
    min_size=len(REFERENCE_ORDERS),
    max_size=len(REFERENCE_ORDERS),
)


@given(CURVES, st.floats(min_value=1e-15, max_value=0.4))
def test_conversion_matches_dp_accounting(curve: list[float], delta: float) -> None:
    expected, _ = oracle.compute_epsilon(REFERENCE_ORDERS, curve, delta)
    found = epsilon_from_rdp(REFERENCE_ORDERS, curve, delta)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.5, 0.97])
@pytest.mark.parametrize("noise_multiplier", [0.7, 2.0, 20.0])
def test_generic_amplification_covers_the_gaussian_one(
    rate: float, noise_multiplier: float
) -> None:
    plain = gaussian_rdp(noise_multiplier)
    generic = poisson_amplified_rdp(rate, plain)
    exact = poisson_gaussian_rdp(rate, noise_multiplier)
    for order, bound, value, without in zip(RDP_ORDERS, generic, exact, plain, strict=True):
        assert bound <= without
        # Between whole orders the signed series is itself summed as an upper bound.
        assert not order.is_integer() or value * (1 - 1e-9) <= bound
    assert generic[RDP_ORDERS.index(2.0)] < plain[RDP_ORDERS.index(2.0)]


def test_amplification_at_the_ends() -> None:
    plain = gaussian_rdp(1.0)
    assert poisson_amplified_rdp(1.0, plain) == plain
    assert set(poisson_amplified_rdp(0.0, plain)) == {0.0}
    assert poisson_gaussian_rdp(1.0, 1.0) == plain
    assert set(poisson_gaussian_rdp(0.0, 1.0)) == {0.0}


def test_small_fractional_orders_survive_far_tails() -> None:
    """At this noise the erfc terms underflow a double; the series must still converge."""
    found = poisson_gaussian_rdp(0.01, 0.3, [1.5, 2.5])
    expected = oracle._compute_rdp_poisson_subsampled_gaussian(0.01, 0.3, [1.5, 2.5])
    assert found == pytest.approx(list(expected), rel=1e-9)


def test_composition_is_a_sum_in_any_sequence() -> None:
    first, second, third = gaussian_rdp(1.0), gaussian_rdp(0.01), gaussian_rdp(1e6)
    assert compose([first, second, third]) == compose([third, first, second])
    assert repeat(first, 3) == pytest.approx(compose([first, first, first]))
    assert set(repeat((math.inf,), 0)) == {0.0}


def test_no_noise_costs_infinity() -> None:
    for curve in (gaussian_rdp(0.0), skellam_rdp(0.0, 1.0, 1.0, 1), gaussian_rdp(1e-200)):
        assert epsilon_from_rdp(RDP_ORDERS, curve, 1e-5) == math.inf


def test_replace_one_trap_needs_half_the_multiplier() -> None:
    by_multiplier = {row["z"]: row for row in rows("dp_accounting_replace_one_trap")}
    doubled = repeat(gaussian_rdp(2.0 / 2, REFERENCE_ORDERS), 10)
    epsilon = epsilon_from_rdp(REFERENCE_ORDERS, doubled, 1e-5)
    assert epsilon == pytest.approx(by_multiplier[1.0]["rdp"], rel=1e-6)
    assert epsilon > 2 * by_multiplier[2.0]["rdp"]


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: gaussian_rdp(-1.0), "E-NOISE-MULTIPLIER"),
        (lambda: gaussian_rdp(math.nan), "E-NOISE-MULTIPLIER"),
        (lambda: gaussian_rdp(1.0, [1.0]), "E-RDP-ORDER"),
        (lambda: gaussian_rdp(1.0, [math.inf]), "E-RDP-ORDER"),
        (lambda: skellam_rdp(-1.0, 1.0, 1.0, 1), "E-NOISE-VARIANCE"),
        (lambda: epsilon_from_rdp([2.0], [1.0], 0.0), "E-DELTA"),
        (lambda: epsilon_from_rdp([2.0], [1.0], math.nan), "E-DELTA"),
        (lambda: epsilon_from_rdp([2.0], [], 0.1), "E-RDP-LENGTH"),
        (lambda: epsilon_from_rdp([], [], 0.1), "E-RDP-LENGTH"),
        (lambda: epsilon_from_rdp([2.0], [-1.0], 0.1), "E-RDP-VALUE"),
        (lambda: epsilon_from_rdp([2.0], [math.nan], 0.1), "E-RDP-VALUE"),
        (lambda: poisson_gaussian_rdp(1.1, 1.0), "E-SAMPLING-RATE"),
        (lambda: poisson_amplified_rdp(math.nan, gaussian_rdp(1.0)), "E-SAMPLING-RATE"),
        (lambda: poisson_amplified_rdp(0.5, [1.0]), "E-RDP-LENGTH"),
        (lambda: compose([]), "E-RDP-LENGTH"),
        (lambda: compose([[1.0], [1.0, 2.0]]), "E-RDP-LENGTH"),
        (lambda: repeat([1.0], -1), "E-ROUNDS"),
    ],
)
def test_useless_input_is_refused(call, code: str) -> None:
    with pytest.raises(PrivacyError, match=code):
        call()


@pytest.mark.parametrize(
    ("dimension", "l1", "order", "expected"),
    [
        # order * 25, plus changed coordinates / (4 (order - 1)) between whole orders.
        (3, 11.0, 1.5, 37.5 + 3 / 2),
        (1000, 11.0, 1.5, 37.5 + 11 / 2),
        (1000, 100.0, 1.5, 37.5 + 25 / 2),
        (1000, 11.0, 2.0, 50.0),
    ],
)
def test_bound_between_whole_orders_pays_for_the_lattice(
    dimension: int, l1: float, order: float, expected: float
) -> None:
    """The proof needs this term though no exact divergence comes near it; see docs/privacy.md."""
    half_curvature = math.log((0.5 + math.hypot(100.0, 1.5)) / 100.0)
    bound = skellam_rdp_any_order(100.0, 25.0, l1, dimension, order)
    assert bound == pytest.approx(half_curvature * expected, rel=1e-12)


def test_generic_amplification_at_order_three_by_hand() -> None:
    """The factor 3 covers mechanisms whose odd moments are not those of a Gaussian."""
    rate, at_two, at_three = 0.3, 0.5, 0.8
    moment = 0.7**2 * (1 + 2 * rate)
    moment += 3 * rate**2 * 0.7 * math.exp(at_two) + 3 * rate**3 * math.exp(2 * at_three)
    found = poisson_amplified_rdp(rate, [at_two, 10.0], [2.0, 3.0])[1]
    assert found > math.log(moment) / 2
    assert poisson_amplified_rdp(rate, [at_two, at_three], [2.0, 3.0])[1] == pytest.approx(
        min(at_three, math.log(moment) / 2)
    )
    assert math.log(moment) / 2 < at_three
