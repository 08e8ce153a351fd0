"""The device's own floors, one by one: at the floor accepted, beyond it refused."""

import dataclasses
import functools
import math

import pytest

from edgefl.errors import ConfigError, RemoteProtocolError
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy, check_plan
from edgefl.protocol.reasons import Phase
from tests.round_harness import RoundHarness


@functools.cache
def valid_plan(noise: float = 0.4) -> SessionPlan:
    harness = RoundHarness(6, floor=5, noise=noise)
    harness.run_until(Phase.SHARE_KEYS)
    assert harness.aggregator.plan is not None
    return harness.aggregator.plan


def check(plan: SessionPlan, policy: DevicePolicy) -> int:
    return check_plan(plan, policy, valid_plan().members[2], plan.call_id)


OPEN = PrivacyPolicy(max_epsilon=math.inf)
EPSILON = valid_plan().privacy.epsilon_declared


def test_the_position_is_returned() -> None:
    assert check(valid_plan(), DevicePolicy(privacy=OPEN)) == 2


@pytest.mark.parametrize(
    "privacy",
    [
        PrivacyPolicy(max_epsilon=EPSILON),
        PrivacyPolicy(max_epsilon=math.inf, max_delta=1e-5),
        PrivacyPolicy(max_epsilon=math.inf, max_clip_norm=1.0),
        PrivacyPolicy(max_epsilon=math.inf, min_survivor_floor=5),
        PrivacyPolicy(max_epsilon=math.inf, min_colluders=0),
        PrivacyPolicy(max_epsilon=math.inf, dimension=7),
    ],
)
def test_a_plan_at_a_limit_is_accepted(privacy: PrivacyPolicy) -> None:
    assert check(valid_plan(), DevicePolicy(least_survivor_floor=5, privacy=privacy)) == 2


@pytest.mark.parametrize(
    "privacy",
    [
        PrivacyPolicy(max_epsilon=EPSILON * 0.99),
        PrivacyPolicy(max_epsilon=math.inf, max_delta=9e-6),
        PrivacyPolicy(max_epsilon=math.inf, max_clip_norm=0.99),
        PrivacyPolicy(max_epsilon=math.inf, min_survivor_floor=6),
        PrivacyPolicy(max_epsilon=math.inf, min_colluders=1),
        PrivacyPolicy(max_epsilon=math.inf, dimension=8),
    ],
)
def test_a_plan_beyond_a_limit_is_refused(privacy: PrivacyPolicy) -> None:
    with pytest.raises(RemoteProtocolError, match="E-PLAN-POLICY"):
        check(valid_plan(), DevicePolicy(privacy=privacy))


def test_a_plan_without_noise_is_refused_where_epsilon_is_limited() -> None:
    policy = DevicePolicy(privacy=PrivacyPolicy(max_epsilon=1e9))
    with pytest.raises(RemoteProtocolError, match="E-PLAN-POLICY"):
        check_plan(valid_plan(0.0), policy, valid_plan(0.0).members[0], valid_plan(0.0).call_id)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (DevicePolicy(least_survivor_floor=6, privacy=OPEN), "E-PLAN-FLOOR"),
        (DevicePolicy(adversary_classes=frozenset(), privacy=OPEN), "E-PLAN-POLICY"),
        (DevicePolicy(suites=frozenset(), privacy=OPEN), "E-PLAN-POLICY"),
    ],
)
def test_floors_of_the_protocol(policy: DevicePolicy, code: str) -> None:
    with pytest.raises(RemoteProtocolError, match=code):
        check(valid_plan(), policy)


def test_the_threshold_must_be_a_majority() -> None:
    plan = dataclasses.replace(valid_plan(), threshold=3)
    with pytest.raises(RemoteProtocolError, match="E-PLAN-THRESHOLD"):
        check(plan, DevicePolicy(privacy=OPEN))


@pytest.mark.parametrize("floor", [1, 0, -3])
def test_a_policy_that_hides_nothing_is_refused(floor: int) -> None:
    with pytest.raises(ConfigError, match="E-POLICY-FLOOR"):
        DevicePolicy(least_survivor_floor=floor, privacy=OPEN)
