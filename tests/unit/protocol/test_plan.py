"""A session plan is refused as soon as its parts contradict each other."""

import dataclasses
import functools

import pytest

from edgefl.errors import EdgeflError, WireError
from edgefl.protocol import wire
from edgefl.protocol.aggregator import AggregatorRound
from edgefl.protocol.plan import SessionPlan, TrainingPlan, session_id_of
from edgefl.protocol.reasons import Phase
from edgefl.protocol.round_setup import threshold_for
from tests.round_harness import RoundHarness, privacy_plan


@functools.cache
def valid_plan() -> SessionPlan:
    harness = RoundHarness(5)
    harness.run_until(Phase.SHARE_KEYS)
    assert harness.aggregator.plan is not None
    return harness.aggregator.plan


def test_the_session_id_is_the_hash_of_every_field() -> None:
    plan = valid_plan()
    assert plan.session_id == session_id_of(plan.to_bytes())
    changes: list[dict[str, object]] = [
        {"fleet": "other"},
        {"task": "other"},
        {"round_number": plan.round_number + 1},
        {"attempt": plan.attempt + 1},
        {"call_id": bytes(32)},
        {"members": plan.members[:4], "threshold": 2},
        {"threshold": 2},
        {"bundle_sha256": b"\x01" * 32},
        {"parameters_sha256": b"\x01" * 32},
        {"training": dataclasses.replace(plan.training, batch_size=5)},
        {"privacy": privacy_plan(6, plan.survivor_floor, plan.dimension, 0.0)},
        {"ledger_head": bytes(32)},
    ]
    ids = {dataclasses.replace(plan, **change).session_id for change in changes}
    assert len(ids | {plan.session_id}) == len(changes) + 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"members": ()}, "E-PLAN-MEMBERS"),
        ({"members": valid_plan().members[:1]}, "E-PLAN-MEMBERS"),
        ({"members": valid_plan().members[::-1]}, "E-PLAN-MEMBERS"),
        ({"members": (*valid_plan().members[:1], *valid_plan().members)}, "E-PLAN-MEMBERS"),
        ({"members": valid_plan().members[:3], "threshold": 3}, "E-PLAN-THRESHOLDS"),
        ({"threshold": 1}, "E-PLAN-THRESHOLDS"),
        ({"threshold": 4}, "E-PLAN-THRESHOLDS"),
        ({"survivor_floor": 6}, "E-PLAN-THRESHOLDS"),
        ({"survivor_floor": 5}, "E-PLAN-PRIVACY"),
        ({"dimension": 8}, "E-PLAN-PRIVACY"),
        ({"privacy": privacy_plan(4, 4, 7, 0.0)}, "E-PLAN-PRIVACY"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], code: str) -> None:
    with pytest.raises(WireError) as caught:
        dataclasses.replace(valid_plan(), **changes)
    assert caught.value.code == code


@pytest.mark.parametrize("field", ["identity_key", "share_key", "mask_key"])
def test_one_key_for_two_members_is_refused(field: str) -> None:
    first, second, *others = valid_plan().members
    twin = dataclasses.replace(second, **{field: getattr(first, field)})
    with pytest.raises(WireError, match="E-PLAN-KEYS"):
        dataclasses.replace(valid_plan(), members=(first, twin, *others))


def test_a_mask_key_that_is_another_members_share_key_is_refused() -> None:
    first, second, *others = valid_plan().members
    twin = dataclasses.replace(second, mask_key=first.share_key)
    with pytest.raises(WireError, match="E-PLAN-KEYS"):
        dataclasses.replace(valid_plan(), members=(first, twin, *others))


@pytest.mark.parametrize("key", range(16))
def test_a_plan_without_a_field_is_refused(key: int) -> None:
    body = dict(wire.as_body(wire.decode(valid_plan().to_bytes())))
    del body[key]
    with pytest.raises(WireError):
        SessionPlan.from_bytes(wire.encode(body))


def test_a_plan_with_an_unknown_field_is_refused() -> None:
    body = dict(wire.as_body(wire.decode(valid_plan().to_bytes()))) | {16: 0}
    with pytest.raises(WireError, match="E-PLAN-FIELDS"):
        SessionPlan.from_bytes(wire.encode(body))


@pytest.mark.parametrize(
    ("key", "number", "code"), [(5, 2, "E-PLAN-ADVERSARY"), (6, 9, "E-PLAN-SUITE")]
)
def test_unknown_classes_and_suites_are_refused(key: int, number: int, code: str) -> None:
    body = dict(wire.as_body(wire.decode(valid_plan().to_bytes()))) | {key: number}
    with pytest.raises(WireError, match=code):
        SessionPlan.from_bytes(wire.encode(body))


@pytest.mark.parametrize(
    "fields",
    [(0, 4, 0.1), (1, 0, 0.1), (1, 4, 0.0), (1, 4, -1.0), (1, 4, float("nan")), (1, 4, 1e3)],
)
def test_unusable_training_is_refused(fields: tuple[int, int, float]) -> None:
    epochs, batch_size, learning_rate = fields
    with pytest.raises(WireError, match="E-TRAINING-PLAN"):
        TrainingPlan(local_epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)


@pytest.mark.parametrize("n_devices", range(2, 60))
def test_no_two_lists_can_both_be_answered(n_devices: int) -> None:
    """Every device answers one list; both would need `threshold` answers about one owner."""
    assert 2 * threshold_for(n_devices) > n_devices - 1


@pytest.mark.parametrize("n_devices", [3, 4, 5, 8, 9])
def test_a_floor_that_cannot_be_unmasked_is_refused_before_the_call(n_devices: int) -> None:
    floor = threshold_for(n_devices)
    with pytest.raises(EdgeflError, match="E-FLOOR-THRESHOLD"):
        RoundHarness(n_devices, floor=floor)
    assert RoundHarness(n_devices, floor=floor + 1).aggregator.phase is Phase.CHECK_IN


def test_a_population_above_the_planned_cohort_is_refused() -> None:
    setup = RoundHarness(5).aggregator._setup
    setup = dataclasses.replace(setup, privacy=privacy_plan(4, 4, 7, 0.0))
    with pytest.raises(EdgeflError, match="E-COHORT-SIZE"):
        AggregatorRound(setup=setup, offline=frozenset(), now_s=0)
