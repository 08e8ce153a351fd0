"""No list of drops isolates a victim where floors, window rule and certificates are respected.

The gateway's devices are random, it sees the graph, and names whom it likes as dropped. Each guard
is also switched off, and the same gateway must then win. Thousands of graphs, some minutes:

    pytest -m long tests/simulation/test_isolation.py
"""

import random
from itertools import chain, combinations

import pytest
from scipy.stats import binom, hypergeom

from edgefl.protocol.graph import RingGraph
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.sizes import GraphSizes, sizes_for_fractions
from tests.isolation import Attack, Guards

_FALSE_ALARM = 1e-6
_NO_GUARDS = Guards(survivor_floor=0, window_alive=0, signatures=0)

# Cohort, fraction corrupt, fraction dropped.
_LARGE = [(1000, 0.05, 0.05), (1000, 0.1, 0.1), (1000, 0.2, 0.2), (1000, 0.1, 0.3)]
_SMALL = [(60, 0.1, 0.1), (100, 0.05, 0.3), (100, 0.2, 0.2), (300, 0.1, 0.1)]


def _sizes(case: tuple[int, float, float], grinding_bits: int = 0) -> GraphSizes:
    return sizes_for_fractions(*case, AdversaryClass.MALICIOUS, grinding_bits)


def _guards(sizes: GraphSizes) -> Guards:
    """Return the guards of a plan, with half of the cohort as survivor floor."""
    assert sizes.window is not None
    assert sizes.committee is not None
    return Guards(
        survivor_floor=sizes.cohort // 2,
        window_alive=sizes.window.alive,
        signatures=sizes.committee.threshold,
    )


def _attack(
    sizes: GraphSizes, corrupt: int, guards: Guards, draw: random.Random, tries: int = 1
) -> Attack:
    """Draw corrupt devices, then the beacon: the gateway's favourite among some tries."""
    owned = draw.sample(range(sizes.cohort), corrupt)
    assert sizes.committee is not None
    drawn = [
        Attack(
            RingGraph(size=sizes.cohort, degree=sizes.degree, seed=draw.randbytes(32)),
            owned,
            guards,
            sizes.committee.members,
        )
        for _ in range(tries)
    ]
    return max(drawn, key=Attack.most_corrupt_in_a_window)


def _count_cuts(case: tuple[int, float, float], guards: Guards, graphs: int, seed: int) -> int:
    """Return in how many of some graphs the gateway gets a cut certified."""
    sizes, draw = _sizes(case), random.Random(seed)
    corrupt = round(case[0] * case[1])
    return sum(any(_attack(sizes, corrupt, guards, draw).cuts()) for _ in range(graphs))


def _check_guarded(case: tuple[int, float, float], graphs: int, seed: int) -> None:
    sizes, draw = _sizes(case), random.Random(seed)
    guards = _guards(sizes)
    for _ in range(graphs):
        attack = _attack(sizes, round(case[0] * case[1]), guards, draw)
        assert not any(attack.cuts())
        # Stronger than what was tried: no list at all can pass and cut, since it would leave
        # nothing but corrupt devices alive in some window.
        assert attack.most_corrupt_in_a_window() < guards.window_alive
        assert not attack.can_certify_two_lists()
        assert not attack.opens_both_secrets_of_any(sizes.threshold)


@pytest.mark.parametrize("case", _LARGE + _SMALL)
def test_guarded_survivors_are_not_cut_off(case: tuple[int, float, float]) -> None:
    _check_guarded(case, graphs=8, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", _LARGE + _SMALL)
def test_guarded_survivors_are_not_cut_off_in_thousands_of_graphs(
    case: tuple[int, float, float],
) -> None:
    _check_guarded(case, graphs=2_000, seed=2)


@pytest.mark.parametrize("case", _LARGE)
def test_without_the_window_rule_the_same_gateway_wins(case: tuple[int, float, float]) -> None:
    guards = _guards(_sizes(case))
    off = Guards(survivor_floor=guards.survivor_floor, window_alive=0, signatures=guards.signatures)
    assert _count_cuts(case, off, graphs=5, seed=3) >= 4


@pytest.mark.parametrize("case", _LARGE)
def test_a_window_rule_that_is_too_weak_does_not_help(case: tuple[int, float, float]) -> None:
    # Two windows with a quarter of the corrupt devices that the rule allows for are easily found.
    guards = _guards(_sizes(case))
    weak = Guards(
        survivor_floor=guards.survivor_floor,
        window_alive=guards.window_alive // 4,
        signatures=guards.signatures,
    )
    assert _count_cuts(case, weak, graphs=5, seed=4) >= 4


def test_the_survivor_floor_alone_stops_greedy_lists() -> None:
    case = (1000, 0.2, 0.2)
    guards = _guards(_sizes(case))
    floor = Guards(survivor_floor=800, window_alive=0, signatures=guards.signatures)
    assert _count_cuts(case, floor, graphs=5, seed=5) == 0


@pytest.mark.parametrize("case", _LARGE)
def test_fewer_signatures_would_certify_two_lists(case: tuple[int, float, float]) -> None:
    sizes, draw = _sizes(case), random.Random(6)
    assert sizes.committee is not None
    majority = Guards(survivor_floor=0, window_alive=0, signatures=sizes.committee.members // 2 + 1)
    attacks = [_attack(sizes, round(case[0] * case[1]), majority, draw) for _ in range(10)]
    assert sum(attack.can_certify_two_lists() for attack in attacks) >= 5


@pytest.mark.parametrize("case", _LARGE)
def test_a_curious_threshold_would_open_both_secrets(case: tuple[int, float, float]) -> None:
    sizes = sizes_for_fractions(*case, AdversaryClass.HONEST_BUT_CURIOUS)
    draw = random.Random(7)
    owned = draw.sample(range(case[0]), round(case[0] * case[1]))
    graph = RingGraph(size=case[0], degree=sizes.degree, seed=draw.randbytes(32))
    attack = Attack(graph, owned, _NO_GUARDS, members=1)
    assert attack.opens_both_secrets_of_any(sizes.threshold)


def test_a_gateway_that_picks_its_beacon_fails_against_sizes_for_that() -> None:
    case = (1000, 0.1, 0.1)
    sizes, draw = _sizes(case, grinding_bits=8), random.Random(8)
    attack = _attack(sizes, 100, _guards(sizes), draw, tries=32)
    assert not any(attack.cuts())
    assert attack.most_corrupt_in_a_window() < attack.guards.window_alive


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_gateway_that_picks_among_256_beacons_fails() -> None:
    case = (1000, 0.1, 0.1)
    sizes, draw = _sizes(case, grinding_bits=8), random.Random(9)
    for _ in range(15):
        attack = _attack(sizes, 100, _guards(sizes), draw, tries=256)
        assert not any(attack.cuts())
        assert attack.most_corrupt_in_a_window() < attack.guards.window_alive


def _check_all_lists(graphs: int, seed: int) -> None:
    """Compare the argument behind the window rule with all lists there are, in small cohorts."""
    draw = random.Random(seed)
    found = set()
    for _ in range(graphs):
        owned = draw.sample(range(13), draw.randint(2, 6))
        graph = RingGraph(size=13, degree=draw.choice([4, 6]), seed=draw.randbytes(32))
        attack = Attack(graph, owned, _NO_GUARDS, members=1)
        honest = sorted(set(range(13)) - set(owned))
        lists = chain.from_iterable(combinations(honest, n) for n in range(len(honest)))
        cutting = [dropped for dropped in map(frozenset, lists) if attack.is_cut(dropped)]
        passed = [
            least
            for dropped in cutting
            for least in range(graph.degree // 2 + 1)
            if graph.windows_hold([p not in dropped for p in range(13)], least)
        ]
        best = max(passed, default=-1)
        assert best == attack.best_cut_leaves()
        assert best <= attack.most_corrupt_in_a_window()
        found.add(best)
    assert {0, 1, 2} <= found


def test_no_list_of_small_cohorts_escapes_the_argument() -> None:
    _check_all_lists(graphs=40, seed=10)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_list_of_many_small_cohorts_escapes_the_argument() -> None:
    _check_all_lists(graphs=1_500, seed=11)


def _check_bound(graphs: int, seed: int) -> None:
    """Measure how often a window fills with corrupt devices, where that is not rare.

    Each graph has its own corrupt devices, so that the count is binomial; its chance is at most
    the union bound by which window rules are chosen.
    """
    cohort, corrupt, degree, alive = 200, 40, 20, 7
    bound = cohort * float(hypergeom(cohort, corrupt, degree // 2).sf(alive - 1))
    assert 0.05 < bound < 0.2
    draw = random.Random(seed)
    full = 0
    for _ in range(graphs):
        owned = draw.sample(range(cohort), corrupt)
        graph = RingGraph(size=cohort, degree=degree, seed=draw.randbytes(32))
        attack = Attack(graph, owned, _NO_GUARDS, members=1)
        full += attack.most_corrupt_in_a_window() >= alive
    assert binom(graphs, bound).sf(full - 1) > _FALSE_ALARM
    # Neighbouring windows overlap, so that they fill together; but not more than that.
    assert binom(graphs, bound / 10).sf(full - 1) < 0.5


def test_windows_fill_as_seldom_as_computed() -> None:
    _check_bound(graphs=1_000, seed=12)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_windows_fill_as_seldom_as_computed_in_many_graphs() -> None:
    _check_bound(graphs=30_000, seed=13)
