"""A session plan is refused as soon as its parts contradict each other."""

import dataclasses
import functools

import pytest

from edgefl.errors import EdgeflError, WireError
from edgefl.protocol import wire
from edgefl.protocol.plan import SessionPlan, Thresholds, TrainingPlan, session_id_of
from edgefl.protocol.reasons import AdversaryClass, Phase, Prg, RoundMode
from tests.round_boards import privacy_plan
from tests.round_harness import RoundHarness

N_FIELDS = 21


@functools.cache
def valid_plan() -> SessionPlan:
    """Five of six members of the key epoch; three shares open a secret, four must survive."""
    harness = RoundHarness(6, absent=frozenset({"d02"}))
    harness.run_until(Phase.SHARE_KEYS)
    assert harness.aggregator.plan is not None
    return harness.aggregator.plan


def changed_thresholds(**changes: int) -> Thresholds:
    return dataclasses.replace(valid_plan().thresholds, **changes)


def with_field(key: int, value: wire.WireValue) -> bytes:
    return wire.encode(dict(wire.as_body(wire.decode(valid_plan().to_bytes()))) | {key: value})


def test_the_session_id_is_the_hash_of_every_field() -> None:
    plan = valid_plan()
    assert plan.session_id == session_id_of(plan.to_bytes())
    changes: list[dict[str, object]] = [
        {"fleet": "other"},
        {"task": "other"},
        {"round_number": plan.round_number + 1},
        {"attempt": plan.attempt + 1},
        {"call_id": bytes(32)},
        {"mode": RoundMode.ONE_UPLOAD},
        {"adversary": AdversaryClass.MALICIOUS},
        {"prgs": Prg.CHACHA20.bit},
        {"key_epoch": plan.key_epoch + 1},
        {"record_sha256": bytes(32)},
        {"key_index": plan.key_index + 1},
        {"epoch_size": 7},
        {"cohort": wire.encode_bitmap([True] * 5 + [False])},
        {"thresholds": changed_thresholds(degree=5)},
        {"thresholds": changed_thresholds(neighbourhood=2)},
        {"thresholds": changed_thresholds(committee=2)},
        {"thresholds": changed_thresholds(committee=2, certificate=2)},
        {"thresholds": changed_thresholds(window=1)},
        {"corrupt_permille": 1},
        {"drop_permille": 1},
        {"bundle_sha256": b"\x01" * 32},
        {"parameters_sha256": b"\x01" * 32},
        {"training": dataclasses.replace(plan.training, batch_size=5)},
        {"privacy": privacy_plan(6, plan.thresholds.survivor_floor, plan.dimension, 0.0)},
        {"ledger_head": bytes(32)},
    ]
    ids = {dataclasses.replace(plan, **change).session_id for change in changes}
    assert len(ids | {plan.session_id}) == len(changes) + 1


def test_positions_are_ranks_in_the_cohort() -> None:
    plan = valid_plan()
    assert plan.size == 5
    assert plan.epoch_positions == (0, 1, 3, 4, 5)
    assert [plan.position_of(member) for member in range(7)] == [0, 1, None, 2, 3, 4, None]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cohort": b""}, "E-WIRE-BITMAP"),
        ({"cohort": bytes(2)}, "E-WIRE-BITMAP"),
        ({"cohort": bytes([0b01111011])}, "E-WIRE-BITMAP"),
        ({"cohort": bytes(1)}, "E-PLAN-COHORT"),
        ({"cohort": bytes([0b00000111])}, "E-PLAN-COHORT"),
        ({"thresholds": changed_thresholds(survivor_floor=6)}, "E-PLAN-COHORT"),
        ({"thresholds": changed_thresholds(survivor_floor=5)}, "E-PLAN-PRIVACY"),
        ({"prgs": 0}, "E-PLAN-PRGS"),
        ({"prgs": Prg.AES_128_CTR.bit}, "E-PLAN-PRGS"),
        ({"prgs": Prg.CHACHA20.bit | 4}, "E-PLAN-PRGS"),
        ({"dimension": 8}, "E-PLAN-PRIVACY"),
        ({"privacy": privacy_plan(4, 4, 7, 0.0)}, "E-PLAN-PRIVACY"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], code: str) -> None:
    with pytest.raises(WireError) as caught:
        dataclasses.replace(valid_plan(), **changes)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "changes",
    [
        {"neighbourhood": 1},
        {"neighbourhood": 5},
        {"degree": 2},
        {"degree": 20_000},
        {"certificate": 1},
        {"committee": 2, "certificate": 3},
        {"survivor_floor": 1},
    ],
)
def test_thresholds_that_contradict_each_other_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(WireError, match="E-PLAN-THRESHOLDS"):
        changed_thresholds(**changes)


@pytest.mark.parametrize("key", range(N_FIELDS))
def test_a_plan_without_a_field_is_refused(key: int) -> None:
    body = dict(wire.as_body(wire.decode(valid_plan().to_bytes())))
    del body[key]
    with pytest.raises(WireError):
        SessionPlan.from_bytes(wire.encode(body))


def test_a_plan_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(WireError, match="E-PLAN-FIELDS"):
        SessionPlan.from_bytes(with_field(N_FIELDS, 0))


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        (5, 9, "E-PLAN-CHOICE"),
        (6, 0, "E-PLAN-CHOICE"),
        (6, 4, "E-PLAN-CHOICE"),
        (7, 8, "E-PLAN-PRGS"),
        (8, 0, "E-WIRE-INT"),
        (10, 1024, "E-WIRE-INT"),
        (11, [6], "E-PLAN-COHORT"),
        (11, [1, b"\x01"], "E-WIRE-INT"),
        (11, [16_385, b"\x01"], "E-WIRE-INT"),
        (12, [4, 3, 0, 0, 0], "E-PLAN-THRESHOLDS"),
        (12, [4, 3, 0, 0, -1, 4], "E-WIRE-INT"),
        (13, 501, "E-WIRE-INT"),
        (14, 1001, "E-WIRE-INT"),
    ],
)
def test_unknown_choices_and_numbers_out_of_range_are_refused(
    key: int, value: wire.WireValue, code: str
) -> None:
    with pytest.raises(WireError) as caught:
        SessionPlan.from_bytes(with_field(key, value))
    assert caught.value.code == code


@pytest.mark.parametrize(
    "fields",
    [(0, 4, 0.1), (1, 0, 0.1), (1, 4, 0.0), (1, 4, -1.0), (1, 4, float("nan")), (1, 4, 1e3)],
)
def test_unusable_training_is_refused(fields: tuple[int, int, float]) -> None:
    epochs, batch_size, learning_rate = fields
    with pytest.raises(WireError, match="E-TRAINING-PLAN"):
        TrainingPlan(local_epochs=epochs, batch_size=batch_size, learning_rate=learning_rate)


@pytest.mark.parametrize("name", ["prox_mu", "max_gradient_norm", "example_clip"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), 1e6])
def test_unusable_bounds_of_training_are_refused(name: str, value: float) -> None:
    with pytest.raises(WireError, match="E-TRAINING-PLAN"):
        TrainingPlan(local_epochs=1, batch_size=4, learning_rate=0.1, **{name: value})


def test_all_terms_of_training_come_back_from_the_wire() -> None:
    terms = TrainingPlan(
        local_epochs=2,
        batch_size=4,
        learning_rate=0.1,
        prox_mu=0.5,
        max_gradient_norm=2.0,
        example_clip=1.5,
    )
    assert TrainingPlan.from_value(terms.to_list()) == terms


# ---------------------------------------------------------------- the gateway's decisions


@pytest.mark.parametrize("adversary", list(AdversaryClass))
@pytest.mark.parametrize("n_devices", [3, 4, 5, 8, 9])
def test_a_floor_that_cannot_be_unmasked_is_refused_before_the_call(
    n_devices: int, adversary: AdversaryClass
) -> None:
    majority = n_devices // 2 + 1
    with pytest.raises(EdgeflError, match="E-FLOOR-THRESHOLD"):
        RoundHarness(n_devices, floor=majority, adversary=adversary)
    harness = RoundHarness(n_devices, floor=majority + 1, adversary=adversary)
    assert harness.aggregator.phase is Phase.CHECK_IN


def test_a_floor_must_suit_every_cohort_that_can_come_of_the_call() -> None:
    """Thirty devices share sparsely; of twenty-three that check in, each shares with all."""
    with pytest.raises(EdgeflError, match="E-FLOOR-THRESHOLD"):
        RoundHarness(30, floor=12)
    harness = RoundHarness(30, floor=13)
    for name in list(harness.devices)[23:]:
        harness.say_offline(name)
        harness.silence(harness.devices[name])
    assert harness.run_to_end().report.outcome is Phase.COMMITTED


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"privacy": privacy_plan(4, 4, 7, 0.0)}, "E-COHORT-SIZE"),
        ({"population": frozenset({"d00", "stranger"})}, "E-SETUP-POPULATION"),
    ],
)
def test_a_setup_that_cannot_be_right_is_refused(changes: dict[str, object], code: str) -> None:
    setup = RoundHarness(5).setup()
    with pytest.raises(EdgeflError, match=code):
        dataclasses.replace(setup, **changes)
    later = dataclasses.replace(setup.call, key_epoch=setup.call.key_epoch + 1)
    with pytest.raises(EdgeflError, match="E-SETUP-EPOCH"):
        dataclasses.replace(setup, call=later)
