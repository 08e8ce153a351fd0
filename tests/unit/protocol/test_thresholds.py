"""The degree and the three thresholds: what is computed, and what a device refuses."""

import dataclasses
import functools

import pytest

from edgefl.errors import ConfigError, RemoteProtocolError
from edgefl.protocol.plan import SessionPlan, Thresholds
from edgefl.protocol.reasons import AdversaryClass, Phase
from edgefl.protocol.sizes import neighbourhood_sizes
from edgefl.protocol.thresholds import (
    GRINDING_BITS,
    LEAST_SPARSE_BASE,
    check_thresholds,
    thresholds_for,
)
from tests.round_harness import RoundHarness

CURIOUS, SEMI, MALICIOUS = AdversaryClass
CLASSES = list(AdversaryClass)


def thresholds(adversary: AdversaryClass, size: int, **changes: int) -> Thresholds:
    values = {
        "base_size": size,
        "roster_size": size,
        "corrupt_permille": 50,
        "drop_permille": 50,
        "survivor_floor": size,
    }
    return thresholds_for(adversary=adversary, **(values | changes))


@pytest.mark.parametrize("adversary", CLASSES)
@pytest.mark.parametrize("size", [3, 4, 5, 10, LEAST_SPARSE_BASE - 1])
def test_a_small_cohort_is_complete_with_a_strict_majority(
    adversary: AdversaryClass, size: int
) -> None:
    found = thresholds(adversary, size, corrupt_permille=0)
    assert (found.degree, found.neighbourhood) == (size - 1, size // 2 + 1)
    assert found.window == 0
    is_malicious = adversary is MALICIOUS
    assert found.committee == (size if is_malicious else 0)
    assert found.certificate == (size // 2 + 1 if is_malicious else 0)


@pytest.mark.parametrize("adversary", CLASSES)
def test_corrupt_devices_raise_the_thresholds_of_a_complete_graph(
    adversary: AdversaryClass,
) -> None:
    found = thresholds(adversary, 10, corrupt_permille=400)
    corrupt = 4
    if adversary is CURIOUS:
        assert found.neighbourhood == 6  # The strict majority is above the 4 corrupt.
        assert thresholds(CURIOUS, 11, corrupt_permille=500).neighbourhood == 7
    else:
        assert 2 * found.neighbourhood > found.degree + corrupt
        assert 2 * (found.neighbourhood - 1) <= found.degree + corrupt
    if adversary is MALICIOUS:
        assert 2 * found.certificate > found.committee + corrupt


@pytest.mark.parametrize("adversary", CLASSES)
@pytest.mark.parametrize("size", [LEAST_SPARSE_BASE, 40, 1000])
def test_a_large_cohort_has_the_sparse_graph_of_the_sizes(
    adversary: AdversaryClass, size: int
) -> None:
    found = thresholds(adversary, size)
    grinding_bits = GRINDING_BITS if adversary is MALICIOUS else 0
    corrupt = -(-size * 50 // 1000)
    sizes = neighbourhood_sizes(size, corrupt, size * 50 // 1000, adversary, grinding_bits)
    assert found.degree == sizes.degree < size - 1
    assert found.neighbourhood == sizes.threshold
    if sizes.committee is None or sizes.window is None:
        assert adversary is not MALICIOUS
        assert (found.committee, found.certificate, found.window) == (0, 0, 0)
    else:
        assert (found.committee, found.certificate) == (
            sizes.committee.members,
            sizes.committee.threshold,
        )
        assert found.window == sizes.window.alive


def test_published_sizes_come_out() -> None:
    at_a_thousand = {"corrupt_permille": 100, "drop_permille": 100}
    assert thresholds(CURIOUS, 1000, **at_a_thousand).to_list()[:2] == [48, 27]
    assert thresholds(SEMI, 1000, **at_a_thousand).to_list()[:2] == [96, 67]


def test_corrupt_devices_are_counted_over_the_roster_where_the_gateway_is_malicious() -> None:
    for adversary in CLASSES:
        small = thresholds(adversary, 20, roster_size=20, corrupt_permille=100)
        large = thresholds(adversary, 20, roster_size=100, corrupt_permille=100)
        assert (small != large) == (adversary is MALICIOUS)


def test_no_sparse_graph_stands_or_falls_with_one_device() -> None:
    found = thresholds(CURIOUS, 100, corrupt_permille=0, drop_permille=0)
    assert found == thresholds(CURIOUS, 100, corrupt_permille=10, drop_permille=10)
    assert found.neighbourhood < found.degree


@pytest.mark.parametrize(
    ("adversary", "size", "changes", "code"),
    [
        (CURIOUS, 2, {"survivor_floor": 2}, "E-PLAN-CORRUPT"),
        (SEMI, 5, {"corrupt_permille": 800}, "E-PLAN-CORRUPT"),
        (MALICIOUS, 5, {"corrupt_permille": 100, "roster_size": 100}, "E-PLAN-CORRUPT"),
        (CURIOUS, 7, {"survivor_floor": 4}, "E-FLOOR-THRESHOLD"),
        (CURIOUS, 100, {"survivor_floor": 5}, "E-FLOOR-THRESHOLD"),
        (MALICIOUS, 9, {"corrupt_permille": 300, "survivor_floor": 6}, "E-FLOOR-THRESHOLD"),
    ],
)
def test_impossible_sizes_are_refused(
    adversary: AdversaryClass, size: int, changes: dict[str, int], code: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        thresholds(adversary, size, **changes)
    assert raised.value.code == code


def test_a_floor_at_the_least_is_taken() -> None:
    assert thresholds(CURIOUS, 7, survivor_floor=5).survivor_floor == 5
    least = thresholds(MALICIOUS, 9, corrupt_permille=300)
    floor = max(least.neighbourhood + 1, least.certificate)
    thresholds(MALICIOUS, 9, corrupt_permille=300, survivor_floor=floor)
    with pytest.raises(ConfigError):
        thresholds(MALICIOUS, 9, corrupt_permille=300, survivor_floor=floor - 1)


# ---------------------------------------------------------------- what a device refuses


@functools.cache
def plan_of(adversary: AdversaryClass, n_devices: int) -> SessionPlan:
    harness = RoundHarness(n_devices, adversary=adversary, corrupt_permille=100, drop_permille=100)
    harness.run_until(Phase.SHARE_KEYS)
    plan = harness.aggregator.plan
    assert plan is not None
    return plan


def changed(plan: SessionPlan, **changes: int) -> SessionPlan:
    return dataclasses.replace(plan, thresholds=dataclasses.replace(plan.thresholds, **changes))


@pytest.mark.parametrize("adversary", CLASSES)
@pytest.mark.parametrize("n_devices", [6, 30])
def test_the_aggregators_own_plan_is_accepted(adversary: AdversaryClass, n_devices: int) -> None:
    check_thresholds(plan_of(adversary, n_devices), n_devices)


@pytest.mark.parametrize(
    ("adversary", "n_devices", "name", "change"),
    [
        (CURIOUS, 6, "degree", -1),
        (CURIOUS, 6, "neighbourhood", -1),
        (CURIOUS, 6, "committee", 2),
        (CURIOUS, 30, "degree", -2),
        (CURIOUS, 30, "degree", 2),
        (CURIOUS, 30, "neighbourhood", -1),
        (SEMI, 30, "neighbourhood", -1),
        (SEMI, 30, "degree", 2),
        (MALICIOUS, 6, "certificate", -1),
        (MALICIOUS, 6, "committee", -1),
        (MALICIOUS, 30, "neighbourhood", -1),
        (MALICIOUS, 30, "committee", -1),
        (MALICIOUS, 30, "committee", 1),
        (MALICIOUS, 30, "certificate", -1),
        (MALICIOUS, 30, "window", -1),
        (MALICIOUS, 30, "window", 20),
    ],
)
def test_weaker_thresholds_are_refused(
    adversary: AdversaryClass, n_devices: int, name: str, change: int
) -> None:
    plan = plan_of(adversary, n_devices)
    value = getattr(plan.thresholds, name) + change
    with pytest.raises(RemoteProtocolError) as raised:
        check_thresholds(changed(plan, **{name: value}), n_devices)
    assert raised.value.code == "E-PLAN-THRESHOLDS"


@pytest.mark.parametrize("name", ["neighbourhood", "certificate", "window"])
def test_stricter_thresholds_are_accepted(name: str) -> None:
    plan = plan_of(MALICIOUS, 30)
    check_thresholds(changed(plan, **{name: getattr(plan.thresholds, name) + 1}), 30)


def test_fractions_that_nothing_withstands_are_refused() -> None:
    plan = dataclasses.replace(plan_of(SEMI, 6), corrupt_permille=500)
    with pytest.raises(RemoteProtocolError) as raised:
        check_thresholds(plan, 6)
    assert raised.value.code == "E-PLAN-THRESHOLDS"


def test_a_larger_roster_asks_for_more_where_the_gateway_is_malicious() -> None:
    plan = plan_of(MALICIOUS, 6)
    with pytest.raises(RemoteProtocolError) as raised:
        check_thresholds(plan, 60)
    assert raised.value.code == "E-PLAN-THRESHOLDS"
