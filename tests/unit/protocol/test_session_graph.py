"""Who shares with whom in a session: over the cohort, or over the whole key epoch."""

import pytest

from edgefl.protocol.graph import RingGraph, committee
from edgefl.protocol.reasons import AdversaryClass, Phase
from edgefl.protocol.session_graph import SessionGraph
from tests.round_harness import RoundHarness

FRACTIONS = {"corrupt_permille": 50, "drop_permille": 50}


def session(
    adversary: AdversaryClass, n_devices: int, missing: int
) -> tuple[RoundHarness, SessionGraph]:
    """Return the graph of a round that some devices were called to in vain."""
    harness = RoundHarness(n_devices, adversary=adversary, **FRACTIONS)
    names = list(harness.devices)
    for name in names[3 : 3 + missing]:
        harness.silence(harness.devices[name])
        harness.say_offline(name)
    harness.run_until(Phase.SHARE_KEYS)
    plan = harness.aggregator.plan
    assert plan is not None
    assert plan.size == n_devices - missing
    return harness, SessionGraph.of(plan, harness.keys.epoch)


@pytest.mark.parametrize("adversary", list(AdversaryClass))
@pytest.mark.parametrize("missing", [0, 2])
def test_neighbours_are_the_ring_graphs(adversary: AdversaryClass, missing: int) -> None:
    harness, graph = session(adversary, 30, missing)
    plan, epoch = harness.aggregator.plan, harness.keys.epoch
    assert plan is not None
    is_malicious = adversary is AdversaryClass.MALICIOUS
    ring = RingGraph(
        size=30 if is_malicious else plan.size,
        degree=plan.thresholds.degree,
        seed=epoch.graph_seed(plan.key_index),
    )
    assert not ring.is_complete
    for position, member in enumerate(plan.epoch_positions):
        on_ring = ring.neighbours(member if is_malicious else position)
        expected = [plan.position_of(other) for other in on_ring] if is_malicious else on_ring
        assert graph.neighbours(position) == tuple(other for other in expected if other is not None)


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_neighbourhood_is_mutual_and_never_ones_own(adversary: AdversaryClass) -> None:
    _, graph = session(adversary, 30, 2)
    for position in range(28):
        neighbours = graph.neighbours(position)
        assert position not in neighbours
        assert list(neighbours) == sorted(set(neighbours))
        assert all(position in graph.neighbours(other) for other in neighbours)


def test_a_malicious_gateway_does_not_move_the_ring_by_leaving_devices_out() -> None:
    """Who checks in changes no edge between two others; in the weaker classes it may."""
    whole, whole_graph = session(AdversaryClass.MALICIOUS, 30, 0)
    part, part_graph = session(AdversaryClass.MALICIOUS, 30, 2)
    plan = part.aggregator.plan
    assert plan is not None
    for position, member in enumerate(plan.epoch_positions):
        there = {plan.position_of(other) for other in whole_graph.neighbours(member)} - {None}
        assert there == set(part_graph.neighbours(position))
    assert part_graph.committee == whole_graph.committee
    assert whole.keys is part.keys


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_the_committee_is_drawn_over_the_key_epoch(adversary: AdversaryClass) -> None:
    harness, graph = session(adversary, 30, 2)
    plan = harness.aggregator.plan
    assert plan is not None
    if adversary is not AdversaryClass.MALICIOUS:
        assert graph.committee == ()
        return
    assert graph.committee == committee(
        30, harness.keys.epoch.committee_seed(plan.key_index), plan.thresholds.committee
    )


def test_windows_count_the_absent_as_dropped() -> None:
    _, whole = session(AdversaryClass.MALICIOUS, 30, 0)
    assert whole.windows_hold(range(30))
    harness, graph = session(AdversaryClass.MALICIOUS, 30, 2)
    plan = harness.aggregator.plan
    assert plan is not None
    ring = RingGraph(size=30, degree=plan.thresholds.degree, seed=harness.keys.epoch.graph_seed(0))
    assert graph.windows_hold(range(28)) == ring.windows_hold(
        [member in plan.epoch_positions for member in range(30)], plan.thresholds.window
    )
    # An arc of the ring without survivors breaks the rule.
    arc = set(ring.ring_order()[: plan.thresholds.degree // 2])
    kept = [position for position, member in enumerate(plan.epoch_positions) if member not in arc]
    assert not graph.windows_hold(kept)


@pytest.mark.parametrize(
    "adversary", [AdversaryClass.HONEST_BUT_CURIOUS, AdversaryClass.SEMI_MALICIOUS]
)
def test_without_a_window_rule_any_list_holds(adversary: AdversaryClass) -> None:
    _, graph = session(adversary, 30, 0)
    assert graph.windows_hold([])


def test_two_key_indices_draw_two_graphs() -> None:
    harness = RoundHarness(30, **FRACTIONS)
    found = []
    for _ in range(2):
        harness.run_until(Phase.SHARE_KEYS)
        plan = harness.aggregator.plan
        assert plan is not None
        graph = SessionGraph.of(plan, harness.keys.epoch)
        assert graph is SessionGraph.of(plan, harness.keys.epoch), "remembered"
        found.append([graph.neighbours(position) for position in range(30)])
        harness.cancel()
        harness.start_attempt()
    assert found[0] != found[1]
