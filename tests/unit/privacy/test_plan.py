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


def test_rotation_saves_the_demo_three_bits() -> None:
    plan = make(dimension=1907, rotation=None)
    assert plan.rotation_block == plan.padded_dimension == 2048
    assert plan.vector_length == 2052
    assert plan.ring_bits == make(dimension=1907).ring_bits - 3 == 13
    assert plan.epsilon_declared < 1216
    check_privacy_plan(plan, LENIENT)


def test_rotation_saves_bits_without_noise_too() -> None:
    exact = {"noise_multiplier": 0.0, "epsilon_budget": math.inf}
    plan = make(**exact, rotation=None)
    assert plan.rotation_block == 2048
    assert plan.ring_bits == make(**exact).ring_bits - 3
    assert 0 < plan.wrap_probability <= 2.0**-40


@pytest.mark.parametrize("dimension", [3, 30, 1900, 5000, 40_000])
@pytest.mark.parametrize("n_cohort", [4, 16, 500])
def test_automatic_rotation_never_sends_more(dimension: int, n_cohort: int) -> None:
    fleet = {"dimension": dimension, "n_cohort": n_cohort, "survivor_floor": n_cohort * 3 // 4}
    sizes_bits = {
        rotation: plan.ring_bits * plan.vector_length
        for rotation in (None, True, False)
        for plan in [make(**fleet, rotation=rotation)]
    }
    assert sizes_bits[None] <= min(sizes_bits[True], sizes_bits[False])


def test_rotation_is_not_chosen_where_it_saves_nothing() -> None:
    assert make(dimension=30, rotation=None) == make(dimension=30)
    assert make(ring_bits=16, rotation=None) == make(ring_bits=16)


def test_rotation_makes_room_in_a_ring_that_was_too_small() -> None:
    with pytest.raises(ConfigError, match="E-NOISE-SHARE-TOO-SMALL"):
        make(ring_bits=10)
    assert make(ring_bits=10, rotation=None).rotation_block == 2048


def test_claim_of_a_rotated_plan_is_that_of_the_padded_update() -> None:
    """The signs are public, so nothing in the accounting may rest on them."""
    turned = make(rotation=True)
    plain = replace(turned, rotation_block=0, dimension=2048, ring_bits=32)
    assert turned.rdp_per_round() == plain.rdp_per_round()
    assert turned.noise_share_variance == plain.noise_share_variance
    assert turned.l2_squared_bound == plain.l2_squared_bound
    assert turned.l1_bound == plain.l1_bound


def test_weights_take_a_slot_and_bits() -> None:
    exact = {"noise_multiplier": 0.0, "epsilon_budget": math.inf}
    plan = make(**exact, weight_bound=256)
    assert plan.vector_length == 1900 + 1 + 4
    assert plan.ring_bits == make(**exact).ring_bits + 8
    assert 2 * 16 * 256 * (math.ceil(plan.scale) + 1) + 1 <= 2**plan.ring_bits


def test_weights_with_noise_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="a weight multiplies what one device can move") as caught:
        make(weight_bound=2)
    assert caught.value.code == "E-WEIGHT-WITH-NOISE"


@pytest.mark.parametrize(
    ("changes", "least_bits"),
    [
        ({"ring_bits": 8, "n_cohort": 200}, 11),
        ({"ring_bits": 16, "weight_bound": 2**12}, 19),
        ({"ring_bits": 8, "n_cohort": 200, "rotation": True}, 9),
    ],
)
def test_overflow_is_refused_with_the_bits_that_would_do(
    changes: dict[str, object], least_bits: int
) -> None:
    exact = {"noise_multiplier": 0.0, "epsilon_budget": math.inf, **changes}
    with pytest.raises(ConfigError, match="E-RING-TOO-SMALL") as caught:
        make(**exact)
    assert f"smallest admissible ring_bits is {least_bits}," in caught.value.advice
    assert make(**{**exact, "ring_bits": least_bits}).scale > 1
    with pytest.raises(ConfigError, match="E-RING-TOO-SMALL"):
        make(**{**exact, "ring_bits": least_bits - 1})


def test_plan_of_a_fixed_scale_names_the_bits_it_needs() -> None:
    """16 devices of weight 1000 with coordinates up to 2001: 2 * 16 * 1000 * 2001 + 1 values."""
    plan = make(noise_multiplier=0.0, epsilon_budget=math.inf, ring_bits=32)
    needed = (2 * 16 * 1000 * 2001).bit_length()
    with pytest.raises(ConfigError, match="E-RING-TOO-SMALL") as caught:
        replace(plan, scale=2000.0, weight_bound=1000, ring_bits=needed - 1)
    assert f"ring_bits of {needed} or more" in caught.value.advice
    assert replace(plan, scale=2000.0, weight_bound=1000, ring_bits=needed).wrap_probability == 0


def test_impossible_sum_says_so() -> None:
    plan = make(noise_multiplier=0.0, epsilon_budget=math.inf, ring_bits=32)
    with pytest.raises(ConfigError, match="no ring up to 32 bits holds the sum"):
        replace(plan, weight_bound=2**20)


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
        ({"weight_bound": 0}, "E-WEIGHT-BOUND"),
        ({"weight_bound": 2.0}, "E-WEIGHT-BOUND"),
        ({"weight_bound": True}, "E-WEIGHT-BOUND"),
        ({"weight_bound": 2**21}, "E-WEIGHT-BOUND"),
        ({"ring_bits": 7}, "E-RING-BITS"),
        ({"ring_bits": 10**9}, "E-RING-BITS"),
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
        ({"rotation_block": 1}, "E-ROTATION-BLOCK"),
        ({"rotation_block": 100}, "E-ROTATION-BLOCK"),
        ({"rotation_block": 8192}, "E-ROTATION-BLOCK"),
        ({"rotation_block": True}, "E-ROTATION-BLOCK"),
        ({"rotation_block": 64.0}, "E-ROTATION-BLOCK"),
        ({"weight_bound": 2}, "E-WEIGHT-WITH-NOISE"),
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
