"""Graph properties against brute force, uniform draws, and sizes that grow with the adversary."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import factorial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from edgefl.errors import ConfigError
from edgefl.protocol.graph import RingGraph, committee
from edgefl.protocol.reasons import AdversaryClass
from edgefl.protocol.sizes import GraphSizes, committee_sizes, neighbourhood_sizes, window_alive

_FALSE_ALARM = 1e-6
"""Chance of each smoke test's seeds, fixed when it was written, to fail a perfect shuffle."""

_seeds = st.binary(min_size=32, max_size=32)


@st.composite
def _graphs(draw: st.DrawFn, most: int = 40) -> RingGraph:
    size = draw(st.integers(2, most))
    degrees = [*range(2, size - 1, 2), size - 1]
    return RingGraph(size=size, degree=draw(st.sampled_from(degrees)), seed=draw(_seeds))


@st.composite
def _graphs_and_survivors(draw: st.DrawFn) -> tuple[RingGraph, list[bool]]:
    graph = draw(_graphs(most=16))
    return graph, draw(st.lists(st.booleans(), min_size=graph.size, max_size=graph.size))


@given(_graphs())
def test_neighbourhoods_are_symmetric_and_regular(graph: RingGraph) -> None:
    everyone = range(graph.size)
    neighbours = [graph.neighbours(position) for position in everyone]

    for position in everyone:
        assert len(set(neighbours[position])) == graph.degree
        assert list(neighbours[position]) == sorted(neighbours[position])
        assert position not in neighbours[position]
        for other in everyone:
            is_neighbour = other in neighbours[position]
            assert is_neighbour == (position in neighbours[other])
            assert is_neighbour == graph.are_neighbours(position, other)
    assert sorted(graph.ring_order()) == list(everyone)


@given(_graphs_and_survivors())
def test_survivors_hang_together_as_a_search_finds(case: tuple[RingGraph, list[bool]]) -> None:
    graph, alive = case
    survivors = {position for position, lives in enumerate(alive) if lives}
    reached = set[int]()
    waiting = [min(survivors)] if survivors else []
    while waiting:
        position = waiting.pop()
        if position not in reached:
            reached.add(position)
            waiting += [other for other in graph.neighbours(position) if alive[other]]
    assert graph.is_connected(alive) == (reached == survivors)


@given(_graphs_and_survivors(), st.data())
def test_windows_hold_as_all_windows_counted(
    case: tuple[RingGraph, list[bool]], data: st.DataObject
) -> None:
    graph, alive = case
    length = graph.degree // 2
    least = data.draw(st.integers(0, length))
    order = graph.ring_order()
    windows = [
        sum(alive[order[(start + step) % graph.size]] for step in range(length))
        for start in range(graph.size)
    ]
    assert graph.windows_hold(alive, least) == (min(windows) >= least)


@given(_graphs_and_survivors())
def test_a_list_that_keeps_one_of_each_window_cuts_nobody_off(
    case: tuple[RingGraph, list[bool]],
) -> None:
    graph, alive = case
    assume(graph.degree >= 2)
    assert not graph.windows_hold(alive, 1) or graph.is_connected(alive)


@given(st.integers(2, 60), _seeds, st.data())
def test_committees_are_drawn_without_repetition_and_nest(
    size: int, seed: bytes, data: st.DataObject
) -> None:
    members = data.draw(st.integers(1, size))
    drawn = committee(size, seed, members)
    assert len(set(drawn)) == members
    assert set(drawn) <= set(range(size))
    assert set(committee(size, seed, max(members - 1, 1))) <= set(drawn)


def _seed(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _is_uniform(counts: Iterable[int], cells: int) -> bool:
    counts = list(counts)
    expected = sum(counts) / cells
    missing = cells - len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts) + missing * expected
    return bool(chi2.sf(statistic, cells - 1) > _FALSE_ALARM)


def test_all_orders_of_five_are_alike() -> None:
    orders = Counter(
        RingGraph(size=5, degree=2, seed=_seed(number)).ring_order() for number in range(6_000)
    )
    assert _is_uniform(orders.values(), factorial(5))


def test_all_committees_of_three_in_seven_are_alike() -> None:
    committees = Counter(committee(7, _seed(number), 3) for number in range(4_000))
    assert _is_uniform(committees.values(), 35)


def test_large_cohorts_are_drawn_from_without_a_bias() -> None:
    # 65,536 mod 49,152 = 16,384: without rejection, half would come from below, not a third.
    draws = 200
    low = sum(committee(49_152, _seed(number), 1)[0] < 16_384 for number in range(draws))
    perfect = binom(draws, 1 / 3)
    assert min(perfect.cdf(low), perfect.sf(low - 1)) > _FALSE_ALARM / 2


@pytest.mark.parametrize("adversary", AdversaryClass)
@given(data=st.data(), grinding_bits=st.integers(0, 64))
def test_sizes_grow_with_the_corrupt(
    adversary: AdversaryClass, data: st.DataObject, grinding_bits: int
) -> None:
    cohort = data.draw(st.integers(3, 300))
    dropped = data.draw(st.integers(0, cohort // 3))
    corrupt = sorted(data.draw(st.lists(st.integers(0, cohort - 2), min_size=2, max_size=2)))
    try:
        fewer, more = (
            neighbourhood_sizes(cohort, count, dropped, adversary, grinding_bits)
            for count in corrupt
        )
    except ConfigError as error:
        assert error.code == "E-SIZES-IMPOSSIBLE"  # noqa: PT017 - most draws do not raise
        return
    assert _all_at_most(_scale(fewer), _scale(more))


@given(st.integers(3, 300), st.data(), st.integers(0, 32), st.integers(0, 32))
def test_windows_and_committees_grow_with_grinding(
    cohort: int, data: st.DataObject, bits: int, more_bits: int
) -> None:
    degree = 2 * data.draw(st.integers(1, (cohort - 1) // 2))
    corrupt = data.draw(st.integers(0, cohort // 3))
    dropped = data.draw(st.integers(0, max((cohort - 2 - corrupt) // 2, 0)))
    assert window_alive(cohort, corrupt, degree, bits) <= window_alive(
        cohort, corrupt, degree, bits + more_bits
    )
    plain = committee_sizes(cohort, corrupt, dropped, bits)
    ground = committee_sizes(cohort, corrupt, dropped, bits + more_bits)
    assert plain.members <= ground.members


def _scale(sizes: GraphSizes) -> tuple[int, ...]:
    drawn = sizes.committee
    return (sizes.degree, sizes.threshold, *((drawn.members, drawn.threshold) if drawn else ()))


def _all_at_most(first: Sequence[int], second: Sequence[int]) -> bool:
    return all(a <= b for a, b in zip(first, second, strict=True))
