"""The plan: demo figures, refusals with advice, and the device's own check."""

import math
from dataclasses import replace

import pytest

from edgefl.errors import ConfigError, PrivacyError, RemoteProtocolError
from edgefl.privacy.plan import (
    PrivacyPlan,
    PrivacyPolicy,
    check_privacy_plan,
    make_privacy_plan,
)

DEMO = {
    "clip_norm": 1.0,
    "noise_multiplier": 0.1,
    "n_cohort": 16,
    "survivor_floor": 10,
    "colluders": 1,
    "dimension": 1900,
    "delta": 1e-5,
    "epsilon_budget": 1500.0,
    "rounds": 20,
}
LENIENT = PrivacyPolicy(max_epsilon=1500.0)


def make(**changes: object) -> PrivacyPlan:
    return make_privacy_plan(**{**DEMO, **changes})


def test_demo_plan_takes_sixteen_bits_and_about_1200() -> None:
    plan = make()
    assert plan.ring_bits == 16
    assert plan.n_min == 9
    assert plan.noise_share_variance == pytest.approx((0.1 * plan.scale) ** 2 / 9)
    # Exact zCDP conversion of rho = 20 / (2 * 0.1^2): 1000 + 2 sqrt(1000 ln 1e5) = 1214.6 at most.
    assert 1200 < plan.epsilon_declared < 1216
    # Rounding, too, stays in the background.
    assert 0.01 * math.sqrt(plan.noise_share_variance) >= 0.5


def test_exact_mode_claims_nothing() -> None:
    plan = make(noise_multiplier=0.0, epsilon_budget=math.inf)
    assert plan.noise_share_variance == 0.0
    assert plan.epsilon_declared == math.inf
    assert plan.wrap_probability == 0.0
    check_privacy_plan(plan, PrivacyPolicy(max_epsilon=math.inf))
    with pytest.raises(RemoteProtocolError, match="E-PLAN-POLICY"):
        check_privacy_plan(plan, LENIENT)


def test_noise_is_charged_for_honest_survivors_only() -> None:
    plan = make()
    assert plan.effective_noise_multiplier(10) == pytest.approx(0.1)
    assert plan.effective_noise_multiplier(16) == pytest.approx(0.1)
    assert plan.effective_noise_multiplier(5) == pytest.approx(0.1 * math.sqrt(4 / 9))
    assert plan.rdp_per_round(16) == plan.rdp_per_round()
    assert plan.rdp_per_round(5)[0] > plan.rdp_per_round()[0]
    with pytest.raises(PrivacyError, match="E-NO-HONEST-NOISE"):
        plan.rdp_per_round(1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"clip_norm": 0.0}, "E-CLIP-NORM"),
        ({"clip_norm": math.nan}, "E-CLIP-NORM"),
        ({"clip_norm": "1"}, "E-CLIP-NORM"),
        ({"noise_multiplier": -0.1}, "E-NOISE-MULTIPLIER"),
        ({"noise_multiplier": math.nan}, "E-NOISE-MULTIPLIER"),
        ({"noise_multiplier": math.inf}, "E-NOISE-MULTIPLIER"),
        ({"noise_multiplier": "0.1"}, "E-NOISE-MULTIPLIER"),
        ({"n_cohort": 1}, "E-COHORT"),
        ({"n_cohort": 16.0}, "E-COHORT"),
        ({"survivor_floor": 17}, "E-SURVIVOR-FLOOR"),
        ({"survivor_floor": 1}, "E-SURVIVOR-FLOOR"),
        ({"colluders": 10}, "E-COLLUDERS"),
        ({"colluders": -1}, "E-COLLUDERS"),
        ({"colluders": True}, "E-COLLUDERS"),
        ({"dimension": 0}, "E-DIMENSION"),
        ({"delta": 0.0}, "E-DELTA"),
        ({"delta": 1.0}, "E-DELTA"),
        ({"delta": math.nan}, "E-DELTA"),
        ({"epsilon_budget": 0.0}, "E-EPSILON-BUDGET"),
        ({"epsilon_budget": math.inf}, "E-EPSILON-BUDGET"),
        ({"epsilon_budget": math.nan}, "E-EPSILON-BUDGET"),
        ({"noise_multiplier": 0.0}, "E-EPSILON-BUDGET"),
        ({"rounds": 0}, "E-ROUNDS"),
        ({"beta": 1.0}, "E-BETA"),
        ({"beta": math.nan}, "E-BETA"),
        ({"ring_bits": 7}, "E-RING-BITS"),
        ({"ring_bits": 33}, "E-RING-BITS"),
        ({"ring_bits": 16.0}, "E-RING-BITS"),
        ({"noise_multiplier": 1e-9}, "E-RING-TOO-SMALL"),
        ({"noise_multiplier": 1e300}, "E-RING-TOO-SMALL"),
        ({"clip_norm": 1e300}, "E-RING-TOO-SMALL"),
    ],
)
def test_useless_numbers_are_refused_by_name(changes: dict[str, object], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(**changes)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ring_bits", [8, 9, 10])
def test_small_ring_is_refused_with_the_smallest_that_does(ring_bits: int) -> None:
    with pytest.raises(ConfigError) as caught:
        make(ring_bits=ring_bits)
    assert caught.value.code == "E-NOISE-SHARE-TOO-SMALL"
    assert "smallest admissible ring_bits is 11" in caught.value.advice
    assert make(ring_bits=11).noise_share_variance >= 1


@pytest.mark.parametrize("noise_multiplier", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("n_cohort", [4, 100, 2000])
def test_chosen_ring_leaves_epsilon_near_the_gaussian(
    noise_multiplier: float, n_cohort: int
) -> None:
    plan = make(
        noise_multiplier=noise_multiplier,
        n_cohort=n_cohort,
        survivor_floor=n_cohort * 3 // 4,
        epsilon_budget=1e4,
    )
    huge = make(
        noise_multiplier=noise_multiplier,
        n_cohort=n_cohort,
        survivor_floor=n_cohort * 3 // 4,
        epsilon_budget=1e4,
        ring_bits=plan.ring_bits + 3,
    )
    assert huge.epsilon_declared <= plan.epsilon_declared <= 1.05 * huge.epsilon_declared


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"scale": 4000.0}, "E-RING-TOO-SMALL"),
        ({"scale": 1.0}, "E-SCALE"),
        ({"scale": math.nan}, "E-SCALE"),
        ({"scale": 1e9}, "E-SCALE"),
        ({"scale": 20.0}, "E-NOISE-SHARE-TOO-SMALL"),
        ({"n_cohort": 64}, "E-RING-TOO-SMALL"),
        ({"ring_bits": 15}, "E-RING-TOO-SMALL"),
        ({"epsilon_declared": math.nan}, "E-PLAN-EPSILON"),
        ({"epsilon_declared": -1.0}, "E-PLAN-EPSILON"),
    ],
)
def test_plan_with_a_changed_field_is_refused(changes: dict[str, object], code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(make(), **changes)
    assert caught.value.code == code


def test_device_accepts_a_plan_within_its_policy() -> None:
    plan = make()
    check_privacy_plan(plan, LENIENT)
    check_privacy_plan(plan, replace(LENIENT, dimension=1900, min_survivor_floor=10))


def test_budget_caps_what_a_plan_can_spend() -> None:
    plan = make(epsilon_budget=300.0)
    check_privacy_plan(plan, PrivacyPolicy(max_epsilon=300.0))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (PrivacyPolicy(max_epsilon=8.0), "epsilon"),
        (replace(LENIENT, max_delta=1e-6), "delta"),
        (replace(LENIENT, max_clip_norm=0.5), "clip norm"),
        (replace(LENIENT, min_survivor_floor=11), "survivor floor"),
        (replace(LENIENT, min_colluders=2), "colluders"),
        (replace(LENIENT, dimension=1901), "dimension"),
    ],
)
def test_device_refuses_a_plan_beyond_its_policy(policy: PrivacyPolicy, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match="E-PLAN-POLICY") as caught:
        check_privacy_plan(make(), policy)
    assert words in caught.value.expected


@pytest.mark.parametrize("factor", [0.5, 0.999, 1.001, 0.0])
def test_device_refuses_a_false_epsilon(factor: float) -> None:
    plan = make()
    false_plan = replace(plan, epsilon_declared=plan.epsilon_declared * factor)
    with pytest.raises(RemoteProtocolError, match="E-PLAN-EPSILON"):
        check_privacy_plan(false_plan, LENIENT)


def test_share_follows_the_floor() -> None:
    """A higher floor needs less noise of each device, and the claim stays the same."""
    plan = make()
    raised = replace(plan, survivor_floor=12)
    assert raised.noise_share_variance == pytest.approx(plan.noise_share_variance * 9 / 11)
    assert raised.epsilon_after(20) == pytest.approx(plan.epsilon_declared)
    check_privacy_plan(raised, LENIENT)
