"""Quantiles of draws without replacement, against binomials summed up as they are defined."""

from fractions import Fraction
from itertools import islice
from math import comb

import pytest

from edgefl.errors import ConfigError
from edgefl.protocol.tails import upper_quantiles


def _exact_quantile(population: int, marked: int, drawn: int, tail: Fraction) -> int:
    """Sum binomials as they are defined."""
    count, above, whole = min(marked, drawn), 0, comb(population, drawn)
    while count:
        above += comb(marked, count) * comb(population - marked, drawn - count)
        if above * tail.denominator > tail.numerator * whole:
            break
        count -= 1
    return count


@pytest.mark.parametrize("tail", [Fraction(1, 31), Fraction(7, 10_009), Fraction(1, 2**60 + 1)])
def test_quantiles_are_exact_for_all_small_populations(tail: Fraction) -> None:
    for population in range(1, 31):
        for marked in range(population):
            assert list(upper_quantiles(population, marked, tail)) == [
                _exact_quantile(population, marked, drawn, tail) for drawn in range(population + 1)
            ]


@pytest.mark.parametrize("bits", [20, 41, 105])
@pytest.mark.parametrize(("population", "marked"), [(1000, 100), (2500, 830), (3000, 900)])
def test_quantiles_are_exact_for_large_populations(population: int, marked: int, bits: int) -> None:
    tail = Fraction(1, population << bits)
    step = population // 4
    found = list(islice(upper_quantiles(population, marked, tail), step, None, step))
    assert found == [
        _exact_quantile(population, marked, drawn, tail)
        for drawn in range(step, population + 1, step)
    ]


@pytest.mark.parametrize(
    ("population", "marked", "tail"),
    [
        (10, 10, Fraction(1, 100)),
        (10, -1, Fraction(1, 100)),
        (10, 5, Fraction(1, 10)),
        (10, 5, Fraction(0)),
    ],
)
def test_quantiles_refuse_what_they_cannot_walk(
    population: int, marked: int, tail: Fraction
) -> None:
    with pytest.raises(ConfigError, match="E-TAILS"):
        list(upper_quantiles(population, marked, tail))
