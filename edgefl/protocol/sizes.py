"""Degree, thresholds, committee and window rule, from cohort, corrupt, dropped and adversary."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count, islice

from edgefl.errors import ConfigError, LocalProtocolError
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.size_limits import LEAST_THRESHOLD, check_counts, require_possible
from edgefl.protocol.tails import upper_quantiles

_SECURITY_BITS = 40
_LIVENESS_BITS = 20
_SCALE_BITS = 384


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeSizes:
    """Who signs a survivor certificate, and how many of them must.

    Attributes:
        members: Devices drawn from the cohort.
        threshold: Signatures that make a certificate.
    """

    members: int
    threshold: int

    def __post_init__(self) -> None:
        """Check that two certificates share a signer and one is possible."""
        if not self.members < 2 * self.threshold <= 2 * self.members:
            raise ConfigError(
                "E-SIZES-COMMITTEE",
                f"a threshold above half of {self.members} members and at most all of them",
                str(self.threshold),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """How many of each run of neighbouring ring positions must be alive in a survivor list.

    Attributes:
        positions: Length of a run: half of the degree.
        alive: Least survivors in every run.
    """

    positions: int
    alive: int

    def __post_init__(self) -> None:
        """Check that the rule can hold."""
        if not 0 < self.alive <= self.positions:
            raise ConfigError(
                "E-SIZES-WINDOW", f"1 to {self.positions} alive of as many", str(self.alive)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSizes:
    """Sizes of a cohort's graph and of what guards it.

    Attributes:
        cohort: Devices in the graph.
        degree: Neighbours of each, itself excluded.
        threshold: Shares of one neighbourhood that open a secret (t_nb).
        committee: Signers of the survivor certificate; None unless the class is MALICIOUS.
        window: Rule for survivor lists; None where the graph is complete, which no list can cut,
            and unless the class is MALICIOUS.
    """

    cohort: int
    degree: int
    threshold: int
    committee: CommitteeSizes | None = None
    window: WindowRule | None = None

    def __post_init__(self) -> None:
        """Check the sizes against each other."""
        if not LEAST_THRESHOLD <= self.threshold <= self.degree < self.cohort:
            raise ConfigError(
                "E-SIZES-ORDER",
                f"{LEAST_THRESHOLD} <= threshold <= degree < cohort",
                f"{self.threshold}, {self.degree}, {self.cohort}",
            )
        if self.degree % 2 and not self.is_complete:
            raise ConfigError(
                "E-SIZES-DEGREE", "an even degree, or a complete graph", str(self.degree)
            )

    @property
    def is_complete(self) -> bool:
        """Tell whether every device is a neighbour of every other."""
        return self.degree == self.cohort - 1


def devices_of(cohort: int, fraction: float | Fraction) -> int:
    """Return how many devices a fraction of a cohort is, rounded down.

    A float stands for the shortest decimal that names it: 0.29 of 100 devices are 29 on every
    machine, although the float 0.29 is a little less.

    Args:
        cohort: Devices.
        fraction: From 0 to below 1.

    Raises:
        ConfigError: E-SIZES-FRACTION.
    """
    return math.floor(cohort * _exact(fraction))


def corrupt_of(cohort: int, fraction: float | Fraction, adversary: AdversaryClass) -> int:
    """Return how many corrupt devices to guard against: `devices_of`, but rounded up if MALICIOUS.

    Rounding down is the published finder's way. It would guard a cohort of nine, a tenth of them
    corrupt, against a gateway that owns no device at all.

    Raises:
        ConfigError: E-SIZES-FRACTION.
    """
    if adversary is AdversaryClass.MALICIOUS:
        return math.ceil(cohort * _exact(fraction))
    return devices_of(cohort, fraction)


def sizes_for_fractions(
    cohort: int,
    corrupt: float | Fraction,
    dropped: float | Fraction,
    adversary: AdversaryClass,
    grinding_bits: int = 0,
) -> GraphSizes:
    """Return `neighbourhood_sizes` for fractions of the cohort: what every device recomputes.

    Args:
        cohort: Devices.
        corrupt: Fraction of them that helps the gateway, counted by `corrupt_of`.
        dropped: Fraction of them that may fail to answer, counted by `devices_of`.
        adversary: What the gateway is assumed to do.
        grinding_bits: As `neighbourhood_sizes`.

    Raises:
        ConfigError: E-SIZES-FRACTION, or as `neighbourhood_sizes`.
    """
    return neighbourhood_sizes(
        cohort,
        corrupt_of(cohort, corrupt, adversary),
        devices_of(cohort, dropped),
        adversary,
        grinding_bits,
    )


@lru_cache(maxsize=64)
def neighbourhood_sizes(
    cohort: int,
    corrupt: int,
    dropped: int,
    adversary: AdversaryClass,
    grinding_bits: int = 0,
) -> GraphSizes:
    """Return the sparsest graph that withstands an adversary class, the complete one at worst.

    The same numbers come out on every machine: nothing but integers is computed with.

    HONEST_BUT_CURIOUS and SEMI_MALICIOUS follow the published finder. The degree is the least
    even one at which

    - the graph without corrupt and dropped devices, both at random, falls apart with a
      probability below 2^-41 (pairs of gaps of half a degree each, union bound);
    - a threshold t exists that a device's neighbours reach with all but 2^-20 / cohort, with
      t > C (honest-but-curious) or 2 t > degree + C (semi-malicious), where more than C
      neighbours of a device are corrupt with at most 2^-41 / cohort.

    One thing differs from the finder: where it raises a threshold to 2, that threshold must be
    reached too (the finder's own value for 10 devices, none corrupt and 3 dropped, is not).

    MALICIOUS asks for the second rule of semi-malicious, with neighbours counted among the other
    cohort - 1 devices, and instead of random gaps for a window rule (`window_alive`) that random
    drops break in some window with at most 2^-20. It adds a committee (`committee_sizes`).

    Security:
        Each bound is a separate one, so that a malicious gateway wins with at most 2^-41
        (neighbourhoods) + 2^-40 (windows) + 2^-40 (committee). Corrupt devices are assumed to be
        spread at random by the beacon's graph; the cohort's corrupt count is an assumption.

    Args:
        cohort: Devices, 3 to 65,535.
        corrupt: Devices that help the gateway.
        dropped: Devices that may fail to answer, at random.
        adversary: What the gateway is assumed to do.
        grinding_bits: For MALICIOUS: the gateway can choose among 2^this beacon values; each
            bound on what helps it is tightened as much. 0 to 64.

    Raises:
        ConfigError: E-SIZES-COHORT, E-SIZES-CORRUPT, E-SIZES-DROPPED, E-SIZES-GRINDING: an
            argument is out of range. E-SIZES-IMPOSSIBLE: not even the complete graph will do.

    Source: google/federated-compute, fcp/secagg/server/graph_parameter_finder.cc, for the first
    two classes; Bell et al. 2020 for the events that are bounded.
    """
    check_counts(cohort, corrupt, dropped, grinding_bits)
    require_possible(cohort, corrupt, dropped, adversary)
    if adversary is AdversaryClass.MALICIOUS:
        found = _sparse_malicious(cohort, corrupt, dropped, grinding_bits)
    else:
        found = _sparse_random(cohort, corrupt, dropped, adversary)
    return found or complete_sizes(cohort, corrupt, dropped, adversary, grinding_bits)


@lru_cache(maxsize=64)
def complete_sizes(
    cohort: int,
    corrupt: int,
    dropped: int,
    adversary: AdversaryClass,
    grinding_bits: int = 0,
) -> GraphSizes:
    """Return the sizes of a complete graph: `neighbourhood_sizes` with exact counts.

    Every corrupt device is everybody's neighbour, and of a survivor's neighbours at most `dropped`
    are lost, so that the threshold holds without exception. No window rule is needed: any two
    survivors are neighbours.

    Raises:
        ConfigError: As `neighbourhood_sizes`.
    """
    check_counts(cohort, corrupt, dropped, grinding_bits)
    require_possible(cohort, corrupt, dropped, adversary)
    degree = cohort - 1
    malicious = adversary is AdversaryClass.MALICIOUS
    return GraphSizes(
        cohort=cohort,
        degree=degree,
        threshold=_least_threshold(degree, corrupt, adversary),
        committee=committee_sizes(cohort, corrupt, dropped, grinding_bits) if malicious else None,
    )


def window_alive(cohort: int, corrupt: int, degree: int, grinding_bits: int = 0) -> int:
    """Return how many of each degree / 2 consecutive ring positions a survivor list must keep.

    Who would cut survivors off from the others has to drop or own every device in two disjoint
    windows of degree / 2 positions, since a shorter run is bridged by an edge. A list with at
    least w alive in every window leaves such a cut only where w or more of one window are corrupt;
    w is the least for which that happens in some window with at most 2^-40. (That a cut takes two
    such windows is not made use of.)

    Args:
        cohort: Devices.
        corrupt: Devices that help the gateway.
        degree: Even.
        grinding_bits: As `neighbourhood_sizes`.

    Raises:
        ConfigError: E-SIZES-DEGREE, or as `neighbourhood_sizes`.
    """
    check_counts(cohort, corrupt, 0, grinding_bits)
    if degree % 2 or not 2 <= degree < cohort:
        raise ConfigError("E-SIZES-DEGREE", f"an even degree from 2 to {cohort - 1}", str(degree))
    return next(islice(_window_corrupt(cohort, corrupt, grinding_bits), degree // 2, None)) + 1


@lru_cache(maxsize=64)
def committee_sizes(
    cohort: int, corrupt: int, dropped: int, grinding_bits: int = 0
) -> CommitteeSizes:
    """Return the smallest committee of which no two survivor lists get a certificate.

    With 2 t > members + C, two lists would need an honest member that signed both; more than C
    members are corrupt with at most 2^-40, fewer than t answer with at most 2^-20.

    Args:
        cohort: Devices, from which the members are drawn at random.
        corrupt: Devices that help the gateway.
        dropped: Devices that may fail to answer, at random.
        grinding_bits: As `neighbourhood_sizes`.

    Raises:
        ConfigError: As `neighbourhood_sizes`.
    """
    check_counts(cohort, corrupt, dropped, grinding_bits)
    require_possible(cohort, corrupt, dropped, AdversaryClass.MALICIOUS)
    corrupts = upper_quantiles(cohort, corrupt, _tail(1, _SECURITY_BITS + grinding_bits))
    drops = upper_quantiles(cohort, dropped, _tail(1, _LIVENESS_BITS))
    for members, most_corrupt, most_dropped in islice(zip(count(), corrupts, drops), 1, None):
        threshold = (members + most_corrupt) // 2 + 1
        if threshold <= members - most_dropped:
            return CommitteeSizes(members=members, threshold=threshold)
    # Some size does: all devices, of which corrupt + 2 dropped are at most cohort - 2.
    raise LocalProtocolError("E-SIZES-SEARCH", "a committee size that does", "none")


def _sparse_random(
    cohort: int, corrupt: int, dropped: int, adversary: AdversaryClass
) -> GraphSizes | None:
    """Find the least degree by the published rule, where drops are random."""
    whole = _even(_stays_whole(cohort, corrupt + dropped))
    corrupts = _even(upper_quantiles(cohort, corrupt, _tail(cohort, _SECURITY_BITS + 1)))
    drops = _even(upper_quantiles(cohort, dropped, _tail(cohort, _LIVENESS_BITS)))
    degrees = range(2, cohort - 1, 2)
    for degree, is_whole, most_corrupt, most_dropped in zip(
        degrees, whole, corrupts, drops, strict=False
    ):
        threshold = _least_threshold(degree, most_corrupt, adversary)
        if is_whole and threshold <= degree - most_dropped:
            return GraphSizes(cohort=cohort, degree=degree, threshold=threshold)
    return None


def _sparse_malicious(
    cohort: int, corrupt: int, dropped: int, grinding_bits: int
) -> GraphSizes | None:
    """Find the least degree at which threshold and window rule hold, whoever is dropped."""
    others = cohort - 1
    secure = _tail(cohort, _SECURITY_BITS + 1 + grinding_bits)
    live = _tail(cohort, _LIVENESS_BITS)
    corrupts = _even(upper_quantiles(others, corrupt, secure))
    drops = _even(upper_quantiles(others, dropped, live))
    window_corrupts = islice(_window_corrupt(cohort, corrupt, grinding_bits), 1, None)
    window_drops = islice(upper_quantiles(cohort, dropped, live), 1, None)
    degrees = range(2, others, 2)
    for degree, most_corrupt, most_dropped, window_corrupt, window_dropped in zip(
        degrees, corrupts, drops, window_corrupts, window_drops, strict=False
    ):
        threshold = _least_threshold(degree, most_corrupt, AdversaryClass.MALICIOUS)
        alive = window_corrupt + 1
        if threshold <= degree - most_dropped and alive <= degree // 2 - window_dropped:
            return GraphSizes(
                cohort=cohort,
                degree=degree,
                threshold=threshold,
                committee=committee_sizes(cohort, corrupt, dropped, grinding_bits),
                window=WindowRule(positions=degree // 2, alive=alive),
            )
    return None


def _least_threshold(degree: int, most_corrupt: int, adversary: AdversaryClass) -> int:
    """Return the least threshold that corrupt neighbours do not reach.

    A gateway that may lie about who dropped out gets one share of either secret from every honest
    neighbour, and both from the corrupt: 2 t > degree + corrupt keeps it from opening both.
    """
    if adversary is AdversaryClass.HONEST_BUT_CURIOUS:
        return max(most_corrupt + 1, LEAST_THRESHOLD)
    return max((degree + most_corrupt) // 2 + 1, LEAST_THRESHOLD)


def _window_corrupt(cohort: int, corrupt: int, grinding_bits: int) -> Iterator[int]:
    """Yield the most corrupt devices in any window of 0, 1, 2... ring positions."""
    return upper_quantiles(cohort, corrupt, _tail(cohort, _SECURITY_BITS + grinding_bits))


def _stays_whole(cohort: int, bad: int) -> Iterator[bool]:
    """Yield, for degrees 0, 1, 2..., whether random bad devices hardly ever cut the graph.

    A cut needs two disjoint runs of half a degree each, all bad. There are
    cohort (cohort - degree - 1) / 2 pairs of runs.
    """
    # In units of 2^-384; the few quotients' errors are nothing against 2^-41 / cohort^2.
    all_bad = 1 << _SCALE_BITS
    for degree in range(cohort):
        pairs_twice = cohort * (cohort - degree - 1)
        yield all_bad * pairs_twice < 2 << (_SCALE_BITS - _SECURITY_BITS - 1)
        all_bad = all_bad * max(bad - degree, 0) // (cohort - degree)


def _even(values: Iterator[int]) -> Iterator[int]:
    """Keep the values for degrees 2, 4, 6..."""
    return islice(values, 2, None, 2)


def _exact(fraction: float | Fraction) -> Fraction:
    """Return the fraction that is meant: a float's shortest decimal.

    Raises:
        ConfigError: E-SIZES-FRACTION.
    """
    if not 0 <= fraction < 1:
        raise ConfigError("E-SIZES-FRACTION", "a fraction from 0 to below 1", str(fraction))
    return fraction if isinstance(fraction, Fraction) else Fraction(repr(float(fraction)))


def _tail(events: int, bits: int) -> Fraction:
    """Return 2^-bits, shared out evenly among events."""
    return Fraction(1, events << bits)
