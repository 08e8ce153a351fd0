"""Cohorts by coin: their size against scipy's binomial, and what may be claimed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from edgefl.errors import PrivacyError
from edgefl.privacy.sampling import (
    ALWAYS,
    COIN_SIDES,
    CoinRounds,
    binomial,
    coin_for,
    likeliest_coin,
)


def test_everybody_takes_part_where_all_have_room() -> None:
    assert coin_for(10, 10) == ALWAYS
    assert coin_for(3, 100) == ALWAYS


@given(members=st.integers(2, 60_000), most=st.integers(1, 4_096))
def test_the_largest_cohort_is_hardly_ever_exceeded(members: int, most: int) -> None:
    coin = coin_for(members, most)
    assert 1 <= coin <= ALWAYS
    if 1 < coin < ALWAYS:  # A coin has no finer steps than 1 in 65,536.
        assert binom.sf(most, members, coin / COIN_SIDES) < 1e-10


def test_the_cohort_is_not_needlessly_small() -> None:
    assert 45 <= 1_000 * coin_for(1_000, 100) / COIN_SIDES <= 62
    assert 780 <= 50_000 * coin_for(50_000, 1_000) / COIN_SIDES <= 900


@given(
    trials=st.integers(0, 5_000),
    probability=st.sampled_from([0.0, 1.0]) | st.floats(1e-9, 1 - 1e-9),
    successes=st.integers(-1, 5_001),
)
def test_binomial_is_scipys(trials: int, probability: float, successes: int) -> None:
    expected = float(binom.pmf(successes, trials, probability))
    assert binomial(trials, probability, successes) == pytest.approx(expected, rel=1e-6, abs=1e-30)


@pytest.mark.parametrize(("members", "floor", "most"), [(20, 7, 10), (50, 5, 8), (12, 3, 10)])
def test_the_likeliest_coin_is_the_best_of_all(members: int, floor: int, most: int) -> None:
    def chance(coin: int) -> float:
        q = coin / COIN_SIDES
        return float(binom.cdf(most, members, q) - binom.cdf(floor - 1, members, q))

    best = max(chance(coin) for coin in range(256, COIN_SIDES, 256))
    assert chance(likeliest_coin(members, floor, most)) >= best - 1e-9


def _rounds(coin: int, *, floor: int, most: int) -> CoinRounds:
    return CoinRounds(coin=coin, members=10_000, survivor_floor=floor, most=most, attempts=100)


def test_the_chance_of_a_round_is_scipys() -> None:
    rounds = _rounds(coin_for(10_000, 500), floor=370, most=500)
    expected = binom.cdf(500, 10_000, rounds.probability) - binom.cdf(
        369, 10_000, rounds.probability
    )
    assert rounds.success == pytest.approx(float(expected), rel=1e-9)


def test_a_floor_far_below_the_mean_lets_the_rate_be_claimed() -> None:
    coin = coin_for(10_000, 500)
    rounds = _rounds(coin, floor=200, most=500)
    assert rounds.claimable_rate(1e-5) == rounds.probability < 0.05


def test_a_floor_near_the_mean_costs_too_much_to_claim_anything() -> None:
    coin = coin_for(10_000, 500)
    assert _rounds(coin, floor=370, most=500).claimable_rate(1e-5) == 1.0


def test_a_small_largest_cohort_costs_too_much_as_well() -> None:
    assert _rounds(COIN_SIDES // 20, floor=100, most=510).claimable_rate(1e-5) == 1.0


def test_a_coin_that_always_falls_heads_claims_nothing() -> None:
    assert _rounds(ALWAYS, floor=100, most=10_000).claimable_rate(1e-5) == 1.0


def test_an_impossible_coin_is_refused() -> None:
    with pytest.raises(PrivacyError, match="E-COIN"):
        _rounds(0, floor=1, most=1)
