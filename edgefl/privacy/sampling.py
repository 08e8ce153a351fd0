"""Cohorts by a coin of each device: how it is sized, and when it may be claimed.

Each device throws its own coin, and nobody selects afterwards. That amplifies privacy against those
who see the released models and nothing else, as long as the cohort is a plain Poisson sample. It is
none where a round is thrown away because too few or too many came, so the chance of both is kept
small, and is part of delta; where it cannot be, no amplification is claimed.
"""

import math
from dataclasses import dataclass
from typing import Final

from edgefl.errors import PrivacyError

COIN_SIDES: Final = 1 << 16
"""A coin is a whole number of 1 to this; a device takes part if its draw of 0 up is below it."""

ALWAYS: Final = COIN_SIDES
"""The coin with which every device takes part."""

_LOG_OVERFLOW: Final = math.log(1e-10)
"""Of the chance that more devices come than a round has room for."""

DELTA_SHARE: Final = 0.01
"""Share of delta that rounds thrown away may cost, over all of a task."""


def coin_for(members: int, most: int) -> int:
    """Return the largest coin with which hardly ever more than `most` of `members` devices come.

    Args:
        members: Devices that throw, at least 1.
        most: Devices that one round has room for, at least 1.

    Returns:
        1 to `ALWAYS`; `ALWAYS` where all have room.

    Source: Chernoff's bound on the upper tail of independent trials.
    """
    if members <= most:
        return ALWAYS
    low, high = 0.0, float(most)
    while high - low > 1e-6 * most:
        mean = (low + high) / 2
        low, high = (mean, high) if _log_tail(mean, most + 1) <= _LOG_OVERFLOW else (low, mean)
    return max(1, min(ALWAYS - 1, int(COIN_SIDES * low / members)))


def likeliest_coin(members: int, survivor_floor: int, most: int) -> int:
    """Return the coin with which most rounds have at least the floor and at most `most` devices.

    For small fleets, where nothing can be claimed and rounds that are thrown away are not rare.

    Args:
        members: Devices that throw, at least the floor.
        survivor_floor: Least devices of a round, 1 to `most`.
        most: Devices that one round has room for.
    """
    if members <= most:
        return ALWAYS
    # The chance of a count from a to b is greatest where those of a and of b + 1 grow alike:
    # q / (1 - q) to the power b + 1 - a equals C(members - 1, a - 1) / C(members - 1, b).
    log_odds = (_log_choose(members - 1, survivor_floor - 1) - _log_choose(members - 1, most)) / (
        most + 1 - survivor_floor
    )
    return max(1, min(ALWAYS - 1, round(COIN_SIDES / (1 + math.exp(-log_odds)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class CoinRounds:
    """What the coin of a task's rounds is worth.

    Attributes:
        coin: Of every device, of `COIN_SIDES`.
        members: Devices that throw it.
        survivor_floor: Fewer devices make no release.
        most: More devices make none either.
        attempts: Rounds, thrown away or not, over which delta is shared out.

    Raises:
        PrivacyError: E-COIN, a value is out of range.
    """

    coin: int
    members: int
    survivor_floor: int
    most: int
    attempts: int

    def __post_init__(self) -> None:
        """Check the values."""
        if not 1 <= self.coin <= ALWAYS or min(self.members, self.most, self.attempts) < 1:
            raise PrivacyError("E-COIN", f"a coin of 1 to {ALWAYS}, and counts of 1 or more", "not")

    @property
    def probability(self) -> float:
        """With which a device takes part."""
        return self.coin / COIN_SIDES

    @property
    def success(self) -> float:
        """Chance of a round with at least the floor and at most as many as there is room for."""
        counts = range(self.survivor_floor, min(self.most, self.members) + 1)
        return sum(binomial(self.members, self.probability, count) for count in counts)

    @property
    def lost_delta(self) -> float:
        """What rounds that are thrown away can add to delta, over all attempts.

        A device changes whether a round is thrown away where, with the others, exactly one is
        missing from the floor, or the last place is taken.
        """
        at_floor = binomial(self.members - 1, self.probability, self.survivor_floor - 1)
        at_most = binomial(self.members - 1, self.probability, self.most)
        return self.attempts * self.probability * (at_floor + at_most)

    def claimable_rate(self, delta: float) -> float:
        """Return the sampling rate that may be used in accounts, 1 where none may be claimed.

        Args:
            delta: Of the claim, of which `DELTA_SHARE` is set aside.
        """
        is_small = self.lost_delta <= DELTA_SHARE * delta
        return self.probability if is_small else 1.0


def _log_tail(mean: float, count: int) -> float:
    """Return a bound on the logarithm of the chance of `count` or more, above the mean."""
    return count - mean + count * math.log(mean / count)


def binomial(trials: int, probability: float, successes: int) -> float:
    """Return the chance of exactly so many successes.

    Args:
        trials: 0 or more.
        probability: Of one success, 0 to 1.
        successes: Any number; 0 comes back for an impossible one.
    """
    if not 0 <= successes <= trials:
        return 0.0
    if probability in (0.0, 1.0):
        return float(successes == trials * probability)
    log = (
        _log_choose(trials, successes)
        + successes * math.log(probability)
        + (trials - successes) * math.log1p(-probability)
    )
    return math.exp(log)


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
