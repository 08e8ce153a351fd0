"""Plans that can be made hold their inequalities; plans from a peer are read or refused."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgefl.errors import ConfigError, RemoteProtocolError, WireError
from edgefl.privacy import bounds, wrap
from edgefl.privacy.plan import (
    PrivacyPlan,
    PrivacyPolicy,
    check_privacy_plan,
    make_privacy_plan,
)

N_FIELDS = 18


def demo_wire() -> dict[int, int | float | str]:
    return make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=0.1,
        n_cohort=16,
        survivor_floor=10,
        colluders=1,
        dimension=1900,
        delta=1e-5,
        epsilon_budget=1500.0,
        rounds=20,
        ring_bits=16,
    ).to_wire()


DEMO_WIRE = demo_wire()


@st.composite
def choices(draw: st.DrawFn) -> dict[str, object]:
    n_cohort = draw(st.integers(2, 3000))
    survivor_floor = draw(st.integers(2, n_cohort))
    return {
        "clip_norm": draw(st.floats(1e-3, 1e3)),
        "noise_multiplier": draw(st.floats(0.02, 20.0)),
        "n_cohort": n_cohort,
        "survivor_floor": survivor_floor,
        "colluders": draw(st.integers(0, survivor_floor - 1)),
        "dimension": draw(st.integers(1, 10**7)),
        "delta": draw(st.floats(1e-12, 1e-3)),
        "epsilon_budget": 10.0,
        "rounds": draw(st.integers(1, 500)),
        "ring_bits": draw(st.integers(8, 32)),
        "rotation": draw(st.sampled_from([None, True, False])),
    }


@given(choices())
def test_every_plan_that_is_made_holds(wanted: dict[str, object]) -> None:
    try:
        plan = make_privacy_plan(**wanted)
    except ConfigError as refusal:
        error = refusal
    else:
        assert_plan_holds(plan)
        return
    assert error.code in {"E-RING-TOO-SMALL", "E-NOISE-SHARE-TOO-SMALL", "E-SCALE"}
    assert error.advice


def assert_plan_holds(plan: PrivacyPlan) -> None:
    assert 1 <= plan.noise_share_variance <= bounds.MAX_SHARE_VARIANCE
    assert plan.scale > 1
    assert plan.wrap_probability <= wrap.MAX_WRAP_PROBABILITY
    promised = (plan.noise_multiplier * plan.scale * plan.clip_norm) ** 2
    assert plan.noise_share_variance * plan.n_min == pytest.approx(promised)
    # No less than the noise-to-norm ratio that was asked for, which rounding can only worsen.
    assert plan.l2_squared_bound >= (plan.scale * plan.clip_norm) ** 2
    assert plan.dimension <= plan.padded_dimension < plan.dimension + max(1, plan.rotation_block)
    assert plan.vector_length == plan.padded_dimension + 4
    assert PrivacyPlan.from_wire(plan.to_wire()) == plan
    check_privacy_plan(plan, PrivacyPolicy(max_epsilon=10.0, max_delta=1.0, max_clip_norm=1e3))


def test_wire_form_is_plain() -> None:
    assert list(DEMO_WIRE) == list(range(1, N_FIELDS + 1))
    assert {type(value) for value in DEMO_WIRE.values()} <= {int, float, str}


@pytest.mark.parametrize("key", range(1, N_FIELDS + 1))
@pytest.mark.parametrize(
    "value",
    [None, True, b"", "", -1, -1.0, math.nan, [], {}, pytest.param(2**20_000, id="huge")],
)
def test_bad_value_of_any_field_is_a_wire_error(key: int, value: object) -> None:
    with pytest.raises(WireError, match="E-PRIVACY-PLAN"):
        PrivacyPlan.from_wire({**DEMO_WIRE, key: value})


@pytest.mark.parametrize("key", range(1, N_FIELDS + 1))
def test_missing_field_is_a_wire_error(key: int) -> None:
    with pytest.raises(WireError):
        PrivacyPlan.from_wire({k: v for k, v in DEMO_WIRE.items() if k != key})


@pytest.mark.parametrize("wire", [None, [], 5, "plan", {}, {**DEMO_WIRE, 19: 0}])
def test_other_shapes_are_wire_errors(wire: object) -> None:
    with pytest.raises(WireError):
        PrivacyPlan.from_wire(wire)


def test_key_true_does_not_pass_for_one() -> None:
    wire = {True: DEMO_WIRE[1], **{k: v for k, v in DEMO_WIRE.items() if k != 1}}
    with pytest.raises(WireError):
        PrivacyPlan.from_wire(wire)


PEER_VALUES = st.one_of(
    st.integers(), st.floats(), st.text(max_size=4), st.booleans(), st.none(), st.binary(max_size=4)
)


@given(
    st.dictionaries(st.integers(1, N_FIELDS), PEER_VALUES, max_size=4)
    | st.dictionaries(st.integers(4, N_FIELDS), st.floats() | st.integers(-3, 40), max_size=4)
)
def test_no_peer_data_raises_anything_else(changes: dict[int, object]) -> None:
    try:
        plan = PrivacyPlan.from_wire({**DEMO_WIRE, **changes})
        check_privacy_plan(plan, PrivacyPolicy(max_epsilon=1500.0))
    except (WireError, RemoteProtocolError):
        return
    # What passes has not weakened the claim.
    assert min(plan.epsilon_declared, plan.epsilon_budget) <= 1500.0


@given(st.floats(min_value=0.02, max_value=10.0), st.integers(2, 10))
def test_lowered_noise_is_always_noticed(noise_multiplier: float, floor: int) -> None:
    """A gateway that keeps the declared epsilon and changes the noise is refused."""
    assume(not math.isclose(noise_multiplier, 0.1, rel_tol=1e-5))
    try:
        plan = PrivacyPlan.from_wire({**DEMO_WIRE, 5: noise_multiplier, 7: floor})
    except WireError:
        return
    with pytest.raises(RemoteProtocolError, match="E-PLAN-EPSILON"):
        check_privacy_plan(plan, PrivacyPolicy(max_epsilon=math.inf))
