"""Quantiles of draws without replacement, in integer arithmetic alike on every machine."""

from collections.abc import Iterator
from fractions import Fraction

from edgefl.errors import ConfigError

_SCALE_BITS = 384
"""Bits after the point of a probability."""


def upper_quantiles(population: int, marked: int, tail: Fraction) -> Iterator[int]:
    """Yield, for 0, 1, 2... draws, the least count of marked ones that is hardly ever exceeded.

    The count c for k draws is the least with P[X > c] <= tail, where X is the number of marked
    ones among k that are drawn without replacement (hypergeometric). One step costs a few
    multiplications, because neither value that is kept is ever summed up anew:

    - P[X > c] grows, by one more draw, by P[X = c] times the chance that this draw is marked;
    - P[X = c] changes by a ratio of small integers, in k and in c.

    Both are integers in units of 2^-384, rounded down at each step, so that every machine finds
    the same counts. The walk stays where P[X = c] is not much smaller than the tail; for
    populations up to 65,535 and tails down to 2^-121 its relative error is below 2^-100, that is,
    a count can differ from the exact one only if the exact probability is that close to the tail.

    Args:
        population: How many there are.
        marked: How many of them are marked, from 0 to `population` - 1.
        tail: Bound on the probability, above 0 and below 1 / `population`.

    Yields:
        `population` + 1 counts; each is at least the one before, and at most one more.

    Raises:
        ConfigError: E-TAILS, an argument is out of range.

    Source: the recurrences follow from the binomials in the distribution's definition.
    """
    if not (0 <= marked < population and 0 < tail * population < 1):
        raise ConfigError(
            "E-TAILS",
            "fewer marked than there are, and a tail between 0 and 1 / population",
            f"{marked} of {population}, tail {float(tail):.3g}",
        )
    one = 1 << _SCALE_BITS
    bound = one * tail.numerator // tail.denominator
    count, equal, above = 0, one, 0
    yield count
    for drawn in range(population):
        marked_left = marked - count
        # Never 0 at the division below: while c is the quantile and a draw is left, all unmarked
        # ones are drawn with a probability of at most 1 - 1 / population, below 1 - tail.
        unmarked_left = population - marked - (drawn - count)
        others = drawn + 1 - count
        above += equal * marked_left // (population - drawn)
        equal = equal * (unmarked_left * (drawn + 1)) // (others * (population - drawn))
        if above > bound:
            # One step suffices: P[X > c + 1] after a draw is at most P[X > c] before it.
            equal = equal * (marked_left * others) // ((count + 1) * unmarked_left)
            count += 1
            above -= equal
        yield count
