"""Graph and committee: the documented bytes, symmetric neighbours, windows and gaps."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgefl.errors import ConfigError
from edgefl.protocol.graph import RingGraph, committee

_VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "v1" / "graph.json").read_text())
_SEED = bytes(range(32))


def _graph(case: dict[str, Any]) -> RingGraph:
    return RingGraph(size=case["size"], degree=case["degree"], seed=bytes.fromhex(case["seed"]))


def _committee(case: dict[str, Any]) -> tuple[int, ...]:
    return committee(case["size"], bytes.fromhex(case["seed"]), case["members"])


_CALLS: dict[str, Callable[[dict[str, Any]], object]] = {"graph": _graph, "committee": _committee}


@pytest.mark.parametrize("case", _VECTORS["cases"], ids=lambda case: f"size-{case['size']}")
def test_vectors(case: dict[str, Any]) -> None:
    graph = _graph(case)
    order = graph.ring_order()
    packed = b"".join(position.to_bytes(2, "big") for position in order)

    assert list(order[: len(case["order"])]) == case["order"]
    assert hashlib.sha256(packed).hexdigest() == case["order_sha256"]
    for position, neighbours in case["neighbours"].items():
        assert list(graph.neighbours(int(position))) == neighbours
    assert list(_committee(case)) == case["committee"]


def test_vectors_reach_the_rejection_of_words() -> None:
    assert sum(case["rejected_words"] for case in _VECTORS["cases"]) > 1_000


@pytest.mark.parametrize("case", _VECTORS["refused"], ids=lambda case: case["why"])
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        _CALLS[case["call"]](case)
    assert caught.value.code == case["code"]


def test_seed_size_and_label_change_everything() -> None:
    def order(size: int, seed: bytes) -> tuple[int, ...]:
        return RingGraph(size=size, degree=4, seed=seed).ring_order()

    other_seed = bytes([1]) + _SEED[1:]
    assert order(50, _SEED) != order(50, other_seed)
    assert order(51, _SEED)[:20] != order(50, _SEED)[:20]
    # The committee is no run of the ring: a cut of the ring would be a cut of the committee.
    assert committee(50, _SEED, 12) != tuple(sorted(order(50, _SEED)[:12]))


def test_degree_does_not_move_the_ring() -> None:
    narrow = RingGraph(size=60, degree=4, seed=_SEED)
    wide = RingGraph(size=60, degree=10, seed=_SEED)

    assert narrow.ring_order() == wide.ring_order()
    assert all(set(narrow.neighbours(p)) < set(wide.neighbours(p)) for p in range(60))


@pytest.mark.parametrize("position", [-1, 10])
def test_positions_outside_the_cohort_are_refused(position: int) -> None:
    graph = RingGraph(size=10, degree=4, seed=_SEED)
    for ask in (
        lambda: graph.neighbours(position),
        lambda: graph.are_neighbours(0, position),
        lambda: graph.are_neighbours(position, 0),
    ):
        with pytest.raises(ConfigError, match="E-GRAPH-POSITION"):
            ask()


def test_lists_of_another_length_are_refused() -> None:
    graph = RingGraph(size=10, degree=4, seed=_SEED)
    with pytest.raises(ConfigError, match="E-GRAPH-ALIVE"):
        graph.windows_hold([True] * 9, 1)
    with pytest.raises(ConfigError, match="E-GRAPH-ALIVE"):
        graph.is_connected([True] * 11)


@pytest.mark.parametrize("least_alive", [-1, 3])
def test_impossible_window_rules_are_refused(least_alive: int) -> None:
    graph = RingGraph(size=10, degree=4, seed=_SEED)
    with pytest.raises(ConfigError, match="E-GRAPH-WINDOW"):
        graph.windows_hold([True] * 10, least_alive)


def test_a_window_over_the_end_of_the_ring_counts() -> None:
    graph = RingGraph(size=10, degree=4, seed=_SEED)
    order = graph.ring_order()
    alive = [True] * 10
    alive[order[9]] = alive[order[0]] = False

    assert not graph.windows_hold(alive, 1)
    assert graph.windows_hold(alive, 0)
    alive[order[0]] = True
    assert graph.windows_hold(alive, 1)
    assert not graph.windows_hold(alive, 2)


def test_two_gaps_cut_the_ring_and_one_does_not() -> None:
    graph = RingGraph(size=12, degree=4, seed=_SEED)
    order = graph.ring_order()
    alive = [True] * 12
    alive[order[11]] = alive[order[0]] = False
    assert graph.is_connected(alive)
    alive[order[5]] = False
    assert graph.is_connected(alive)
    alive[order[6]] = False
    assert not graph.is_connected(alive)


@pytest.mark.parametrize("survivors", [0, 1])
def test_fewer_than_two_survivors_are_not_cut(survivors: int) -> None:
    graph = RingGraph(size=12, degree=4, seed=_SEED)
    assert graph.is_connected([position < survivors for position in range(12)])


def test_survivors_of_a_complete_graph_are_never_cut() -> None:
    graph = RingGraph(size=12, degree=11, seed=_SEED)
    alive = [position in (0, 7) for position in range(12)]
    assert graph.is_connected(alive)
    assert graph.are_neighbours(0, 7)
    assert not graph.are_neighbours(7, 7)


def test_the_largest_cohort_can_be_drawn() -> None:
    graph = RingGraph(size=65_535, degree=2, seed=_SEED)
    assert sorted(graph.ring_order()) == list(range(65_535))
