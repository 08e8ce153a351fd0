"""Sizes: every published figure, scipy as an oracle, refusals that say what would do.

`_PUBLISHED` are the feasible cases of google/federated-compute's
fcp/secagg/server/graph_parameter_finder_test.cc up to 10,000 devices (figures only).
"""

import re
import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import hypergeom

from edgefl.errors import ConfigError
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.sizes import (
    CommitteeSizes,
    GraphSizes,
    WindowRule,
    committee_sizes,
    complete_sizes,
    devices_of,
    neighbourhood_sizes,
    sizes_for_fractions,
    window_alive,
)

_CURIOUS = AdversaryClass.HONEST_BUT_CURIOUS
_SEMI = AdversaryClass.SEMI_MALICIOUS
_MALICIOUS = AdversaryClass.MALICIOUS

# By cohort; each row has the fractions corrupt and dropped, then degree and threshold.
_PUBLISHED = {
    _CURIOUS: {
        10: [
            (0.33, 0.33, 8, 4),
            (0.33, 0.05, 4, 4),
            (0.05, 0.05, 2, 2),
            (0.33, 0.0, 4, 4),
            (0.0, 0.0, 2, 2),
        ],
        100: [
            (0.45, 0.45, 92, 46),
            (0.33, 0.33, 68, 34),
            (0.05, 0.33, 28, 6),
            (0.33, 0.05, 34, 29),
            (0.05, 0.05, 12, 6),
            (0.33, 0.0, 26, 25),
            (0.0, 0.33, 26, 2),
            (0.0, 0.0, 2, 2),
        ],
        1000: [
            (0.45, 0.45, 822, 417),
            (0.33, 0.33, 286, 150),
            (0.05, 0.33, 72, 24),
            (0.33, 0.05, 78, 60),
            (0.05, 0.05, 30, 17),
            (0.33, 0.0, 38, 36),
            (0.0, 0.33, 38, 2),
            (0.0, 0.0, 2, 2),
        ],
        10_000: [
            (0.45, 0.45, 3494, 1771),
            (0.33, 0.33, 422, 221),
            (0.05, 0.33, 86, 29),
            (0.33, 0.05, 92, 70),
            (0.05, 0.05, 34, 20),
            (0.33, 0.0, 42, 40),
            (0.0, 0.33, 42, 2),
            (0.0, 0.0, 2, 2),
        ],
    },
    _SEMI: {
        10: [
            (0.05, 0.33, 8, 5),
            (0.33, 0.05, 4, 4),
            (0.05, 0.05, 2, 2),
            (0.33, 0.0, 4, 4),
            (0.0, 0.33, 8, 5),
            (0.0, 0.0, 2, 2),
        ],
        100: [
            (0.3, 0.3, 92, 62),
            (0.05, 0.33, 72, 39),
            (0.33, 0.05, 42, 37),
            (0.05, 0.05, 16, 11),
            (0.33, 0.0, 26, 26),
            (0.0, 0.33, 68, 35),
            (0.0, 0.0, 2, 2),
        ],
        1000: [
            (0.3, 0.3, 872, 584),
            (0.05, 0.33, 398, 223),
            (0.33, 0.05, 132, 109),
            (0.05, 0.05, 52, 37),
            (0.33, 0.0, 38, 37),
            (0.0, 0.33, 228, 115),
            (0.0, 0.0, 2, 2),
        ],
        10_000: [
            (0.3, 0.3, 4822, 3230),
            (0.05, 0.33, 746, 420),
            (0.33, 0.05, 178, 146),
            (0.05, 0.05, 62, 44),
            (0.33, 0.0, 42, 41),
            (0.0, 0.33, 326, 164),
            (0.0, 0.0, 2, 2),
        ],
    },
}

# The design's table. cohort: (fraction corrupt and dropped): honest-but-curious, semi-malicious
_DESIGN = {
    100: {
        (0.05, 0.05): ((12, 6), (16, 11)),
        (0.1, 0.1): ((22, 11), (32, 22)),
        (0.1, 0.3): ((34, 11), (72, 42)),
        (0.2, 0.2): ((40, 21), (62, 42)),
    },
    1000: {
        (0.05, 0.05): ((30, 17), (52, 37)),
        (0.1, 0.1): ((48, 27), (96, 67)),
        (0.1, 0.3): ((88, 36), (414, 247)),
        (0.2, 0.2): ((98, 54), (302, 206)),
    },
    10_000: {
        (0.05, 0.05): ((34, 20), (62, 44)),
        (0.1, 0.1): ((54, 31), (122, 85)),
        (0.1, 0.3): ((108, 44), (778, 465)),
        (0.2, 0.2): ((122, 67), (482, 328)),
    },
}


def _cases() -> Iterator[tuple[AdversaryClass, int, float, float, int, int]]:
    for adversary, cohorts in _PUBLISHED.items():
        for cohort, rows in cohorts.items():
            for corrupt, dropped, degree, threshold in rows:
                yield adversary, cohort, corrupt, dropped, degree, threshold
    for cohort, columns in _DESIGN.items():
        for (corrupt, dropped), pairs in columns.items():
            for adversary, pair in zip((_CURIOUS, _SEMI), pairs, strict=True):
                yield adversary, cohort, corrupt, dropped, *pair


@pytest.mark.parametrize(
    ("adversary", "cohort", "corrupt", "dropped", "degree", "threshold"), list(_cases())
)
def test_published_sizes(
    adversary: AdversaryClass,
    cohort: int,
    corrupt: float,
    dropped: float,
    degree: int,
    threshold: int,
) -> None:
    sizes = sizes_for_fractions(cohort, corrupt, dropped, adversary)

    assert (sizes.degree, sizes.threshold) == (degree, threshold)
    assert sizes.committee is None
    assert sizes.window is None


@pytest.mark.parametrize("corrupt", [0.0, 0.05])
def test_the_one_published_threshold_that_cannot_be_reached(corrupt: float) -> None:
    # Published: degree 4, threshold 2. With 3 of 10 dropped, fewer than 2 of 4 neighbours are left
    # in one neighbourhood of thirty, so this is the one place where the finder is not followed.
    assert hypergeom(10, 7, 4).cdf(1) > 1 / 31
    sizes = sizes_for_fractions(10, corrupt, 0.33, _CURIOUS)
    assert (sizes.degree, sizes.threshold) == (6, 2)


@pytest.mark.parametrize(
    ("corrupt", "degree", "alive"), [(50, 52, 16), (100, 96, 27), (200, 302, 70), (100, 414, 55)]
)
def test_windows_of_the_design(corrupt: int, degree: int, alive: int) -> None:
    assert window_alive(1000, corrupt, degree) == alive


@pytest.mark.parametrize(
    ("corrupt", "dropped", "members", "threshold"),
    [(50, 50, 36, 26), (50, 100, 53, 36), (100, 100, 69, 49), (50, 300, 238, 137)],
)
def test_committees_of_the_design(corrupt: int, dropped: int, members: int, threshold: int) -> None:
    found = committee_sizes(1000, corrupt, dropped)
    assert (found.members, found.threshold) == (members, threshold)


@pytest.mark.parametrize(
    ("corrupt", "dropped", "degree", "threshold", "window"),
    [
        (0.1, 0.1, 96, 67, (27, 48)),
        (0.2, 0.2, 302, 206, (70, 151)),
        (0.1, 0.3, 414, 247, (55, 207)),
        # At degree 52 a random 5 % of drops would break a window of 26 in more than 2^-20.
        (0.05, 0.05, 58, 40, (17, 29)),
    ],
)
def test_malicious_sizes(
    corrupt: float, dropped: float, degree: int, threshold: int, window: tuple[int, int]
) -> None:
    sizes = sizes_for_fractions(1000, corrupt, dropped, _MALICIOUS)

    assert (sizes.degree, sizes.threshold) == (degree, threshold)
    assert sizes.window == WindowRule(alive=window[0], positions=window[1])
    assert sizes.committee == committee_sizes(1000, round(1000 * corrupt), round(1000 * dropped))


@pytest.mark.parametrize("grinding_bits", [0, 8, 20])
@pytest.mark.parametrize(
    ("cohort", "corrupt", "dropped"),
    [(40, 4, 4), (100, 5, 30), (100, 20, 20), (1000, 50, 50), (1000, 100, 300), (3000, 300, 300)],
)
def test_malicious_sizes_keep_their_promises_by_an_oracle(
    cohort: int, corrupt: int, dropped: int, grinding_bits: int
) -> None:
    sizes = neighbourhood_sizes(cohort, corrupt, dropped, _MALICIOUS, grinding_bits)
    security = 2.0**-40 / 2**grinding_bits
    liveness = 2.0**-20
    assert sizes.window is not None
    assert sizes.committee is not None

    neighbours_corrupt = hypergeom(cohort - 1, corrupt, sizes.degree)
    neighbours_alive = hypergeom(cohort - 1, cohort - 1 - dropped, sizes.degree)
    both_secrets_from = 2 * sizes.threshold - sizes.degree
    assert neighbours_corrupt.sf(both_secrets_from - 1) * cohort <= security / 2
    assert neighbours_alive.cdf(sizes.threshold - 1) * cohort <= liveness

    rule = sizes.window
    assert rule.positions == sizes.degree // 2
    assert hypergeom(cohort, corrupt, rule.positions).sf(rule.alive - 1) * cohort <= security
    alive = hypergeom(cohort, cohort - dropped, rule.positions)
    assert alive.cdf(rule.alive - 1) * cohort <= liveness

    members, signatures = sizes.committee.members, sizes.committee.threshold
    assert hypergeom(cohort, corrupt, members).sf(2 * signatures - members - 1) <= security
    assert hypergeom(cohort, cohort - dropped, members).cdf(signatures - 1) <= liveness


def test_malicious_degree_is_the_least() -> None:
    cohort, corrupt, dropped = 1000, 50, 50
    found = neighbourhood_sizes(cohort, corrupt, dropped, _MALICIOUS)
    feasible = []
    for degree in range(2, found.degree + 1, 2):
        tails = hypergeom(cohort - 1, corrupt, degree).sf(np.arange(degree + 1))
        excess = int(np.argmax(tails * cohort <= 2.0**-41))
        threshold = (degree + excess) // 2 + 1
        survivors = hypergeom(cohort - 1, cohort - 1 - dropped, degree)
        window = hypergeom(cohort, cohort - dropped, degree // 2)
        if (
            survivors.cdf(threshold - 1) * cohort <= 2.0**-20
            and window.cdf(window_alive(cohort, corrupt, degree) - 1) * cohort <= 2.0**-20
        ):
            feasible.append(degree)
    assert feasible == [found.degree]


def test_grinding_makes_sizes_larger() -> None:
    plain = neighbourhood_sizes(1000, 100, 100, _MALICIOUS)
    ground = neighbourhood_sizes(1000, 100, 100, _MALICIOUS, 8)
    assert ground.degree > plain.degree
    assert ground.committee is not None
    assert plain.committee is not None
    assert ground.committee.members > plain.committee.members
    assert window_alive(1000, 100, 96, 8) > window_alive(1000, 100, 96)


def test_small_cohorts_get_the_complete_graph() -> None:
    sizes = neighbourhood_sizes(10, 1, 3, _MALICIOUS)
    assert sizes == complete_sizes(10, 1, 3, _MALICIOUS)
    assert sizes.is_complete
    assert (sizes.degree, sizes.threshold, sizes.window) == (9, 6, None)
    assert sizes.committee == CommitteeSizes(members=8, threshold=5)


def test_the_corrupt_of_a_malicious_gateway_are_rounded_up() -> None:
    # A tenth of 15 devices is one and a half: two, and not one, are guarded against.
    malicious = sizes_for_fractions(15, 0.1, 0.1, _MALICIOUS)
    assert malicious == neighbourhood_sizes(15, 2, 1, _MALICIOUS)
    assert malicious != neighbourhood_sizes(15, 1, 1, _MALICIOUS)
    assert sizes_for_fractions(15, 0.1, 0.1, _SEMI) == neighbourhood_sizes(15, 1, 1, _SEMI)


@pytest.mark.parametrize("adversary", AdversaryClass)
def test_what_is_possible_is_said_exactly(adversary: AdversaryClass) -> None:
    """For all small cohorts: refused if and only if no threshold of the complete graph does."""
    for cohort in range(3, 16):
        for corrupt in range(cohort - 1):
            for dropped in range(cohort - 1):
                within_reach = [
                    threshold
                    for threshold in range(2, cohort - dropped)
                    if (
                        threshold > corrupt
                        if adversary is _CURIOUS
                        else 2 * threshold > cohort - 1 + corrupt
                    )
                ]
                if within_reach:
                    sizes = complete_sizes(cohort, corrupt, dropped, adversary)
                    assert sizes.threshold == within_reach[0]
                    neighbourhood_sizes(cohort, corrupt, dropped, adversary)
                else:
                    with pytest.raises(ConfigError, match="E-SIZES-IMPOSSIBLE"):
                        neighbourhood_sizes(cohort, corrupt, dropped, adversary)


@pytest.mark.parametrize("adversary", AdversaryClass)
@pytest.mark.parametrize(("cohort", "corrupt", "dropped"), [(100, 60, 45), (10, 0, 8), (3, 1, 1)])
def test_advice_does_and_is_tight(
    adversary: AdversaryClass, cohort: int, corrupt: int, dropped: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        neighbourhood_sizes(cohort, corrupt, dropped, adversary)
    advice = caught.value.advice
    assert caught.value.code == "E-SIZES-IMPOSSIBLE"

    def number(words: str) -> int | None:
        found = re.search(words.replace("#", r"(\d+)"), advice)
        return int(found.group(1)) if found else None

    tried = [
        (cohort, number("at most # corrupt"), dropped, "corrupt"),
        (cohort, corrupt, number("at most # dropped"), "dropped"),
        (number("at least # devices"), corrupt, dropped, "devices"),
    ]
    assert tried[2][0] is not None
    for n, c, d, changed in tried:
        if n is None or c is None or d is None:
            continue
        neighbourhood_sizes(n, c, d, adversary)
        worse = {
            "corrupt": (n, c + 1, d),
            "dropped": (n, c, d + 1),
            "devices": (n - 1, c, d),
        }[changed]
        with pytest.raises(ConfigError, match="E-SIZES"):
            neighbourhood_sizes(*worse, adversary)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((2, 0, 0), "E-SIZES-COHORT"),
        ((65_536, 0, 0), "E-SIZES-COHORT"),
        ((100, -1, 0), "E-SIZES-CORRUPT"),
        ((100, 99, 0), "E-SIZES-CORRUPT"),
        ((100, 0, -1), "E-SIZES-DROPPED"),
        ((100, 0, 99), "E-SIZES-DROPPED"),
    ],
)
def test_counts_out_of_range(arguments: tuple[int, int, int], code: str) -> None:
    for call in (neighbourhood_sizes, complete_sizes):
        with pytest.raises(ConfigError) as caught:
            call(*arguments, _MALICIOUS)
        assert caught.value.code == code


@pytest.mark.parametrize("bits", [-1, 65])
def test_grinding_out_of_range(bits: int) -> None:
    with pytest.raises(ConfigError, match="E-SIZES-GRINDING"):
        committee_sizes(100, 5, 5, bits)


@pytest.mark.parametrize("degree", [0, 3, 100, -2])
def test_windows_of_impossible_degrees(degree: int) -> None:
    with pytest.raises(ConfigError, match="E-SIZES-DEGREE"):
        window_alive(100, 5, degree)


@pytest.mark.parametrize("fraction", [-0.01, 1.0, float("nan"), float("inf")])
def test_fractions_out_of_range(fraction: float) -> None:
    with pytest.raises(ConfigError, match="E-SIZES-FRACTION"):
        devices_of(100, fraction)
    with pytest.raises(ConfigError, match="E-SIZES-FRACTION"):
        sizes_for_fractions(100, 0.1, fraction, _CURIOUS)


def test_a_fraction_means_its_decimal() -> None:
    assert int(100 * 0.29) == 28
    assert devices_of(100, 0.29) == 29
    assert devices_of(3, Fraction(1, 3)) == 1
    assert devices_of(3, 1 / 3) == 0
    assert devices_of(1000, 1e-3) == 1
    assert devices_of(1000, 0) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"cohort": 10, "degree": 5, "threshold": 3},
        {"cohort": 10, "degree": 4, "threshold": 5},
        {"cohort": 10, "degree": 4, "threshold": 1},
        {"cohort": 10, "degree": 10, "threshold": 6},
    ],
)
def test_sizes_that_contradict_each_other(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="E-SIZES"):
        GraphSizes(**wrong)


@pytest.mark.parametrize(("members", "threshold"), [(4, 2), (4, 5), (0, 0)])
def test_committees_that_certify_two_lists_or_none(members: int, threshold: int) -> None:
    with pytest.raises(ConfigError, match="E-SIZES-COMMITTEE"):
        CommitteeSizes(members=members, threshold=threshold)


@pytest.mark.parametrize(("positions", "alive"), [(4, 0), (4, 5)])
def test_window_rules_that_always_or_never_hold(positions: int, alive: int) -> None:
    with pytest.raises(ConfigError, match="E-SIZES-WINDOW"):
        WindowRule(positions=positions, alive=alive)


@pytest.mark.parametrize("adversary", AdversaryClass)
def test_ten_thousand_devices_take_less_than_a_second(adversary: AdversaryClass) -> None:
    neighbourhood_sizes.cache_clear()
    started_s = time.process_time()
    neighbourhood_sizes(10_000, 3000, 3000, adversary)
    assert time.process_time() - started_s < 1
