"""The device's own floors, one by one: at the floor accepted, beyond it refused."""

import dataclasses
import functools
import math
from typing import Any

import pytest

from edgefl.errors import ConfigError, RemoteProtocolError
from edgefl.privacy.plan import PrivacyPolicy
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.policy import DevicePolicy, check_ages, check_floors
from edgefl.protocol.reasons import ALL_PRGS, AdversaryClass, Prg, RoundMode
from edgefl.protocol.roster import Roster, sign_roster
from edgefl.protocol.thresholds import base_size_of
from tests.device_fixtures import CURIOUS, LIAR
from tests.device_harness import Table
from tests.epoch_harness import ENROLMENT, FLEET, entry_of

OPEN = PrivacyPolicy(max_epsilon=math.inf)
SEMI = AdversaryClass.SEMI_MALICIOUS


@functools.cache
def valid_plan(noise: float = 0.4, adversary: AdversaryClass = CURIOUS) -> SessionPlan:
    """Return a plan over 6 devices, in a complete graph."""
    return Table(6, noise=noise, adversary=adversary).plan


@functools.cache
def sparse_plan() -> SessionPlan:
    """Return a plan over 24 devices of degree 10, with 50 corrupt and 100 dropped of 1000."""
    terms = {"corrupt_permille": 50, "drop_permille": 100}
    return Table(24, adversary=LIAR, floor=16, **terms).plan


EPSILON = valid_plan().privacy.epsilon_declared


def check(
    plan: SessionPlan,
    policy: DevicePolicy,
    *,
    own_prgs: int = ALL_PRGS,
    gateway_enrols: bool = False,
) -> None:
    check_floors(
        plan,
        policy,
        base_size=base_size_of(plan),
        own_prgs=own_prgs,
        gateway_enrols=gateway_enrols,
    )


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
    check(valid_plan(), DevicePolicy(least_survivor_floor=5, privacy=privacy))


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
        check(valid_plan(0.0), policy)


AT_AND_BEYOND: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"adversary_classes": frozenset({LIAR})}, {"adversary_classes": frozenset({SEMI, CURIOUS})}),
    ({"adversary_classes": frozenset(AdversaryClass)}, {"adversary_classes": frozenset()}),
    ({"least_survivor_floor": 16}, {"least_survivor_floor": 17}),
    ({"least_degree": 10}, {"least_degree": 11}),
    ({"least_corrupt_permille": 50}, {"least_corrupt_permille": 51}),
    ({"least_drop_permille": 100}, {"least_drop_permille": 101}),
    ({"prgs": frozenset(Prg)}, {"prgs": frozenset({Prg.CHACHA20})}),
]


@pytest.mark.parametrize(("at", "beyond"), AT_AND_BEYOND)
def test_floors_of_the_protocol(at: dict[str, Any], beyond: dict[str, Any]) -> None:
    accepting = DevicePolicy(adversary_classes=frozenset({LIAR}), privacy=OPEN)
    check(sparse_plan(), dataclasses.replace(accepting, **at))
    with pytest.raises(RemoteProtocolError, match="E-PLAN-POLICY"):
        check(sparse_plan(), dataclasses.replace(accepting, **beyond))


def test_a_complete_graph_has_neighbours_enough() -> None:
    check(valid_plan(), DevicePolicy(least_degree=100, privacy=OPEN))


def test_what_a_device_cannot_run_is_no_matter_to_its_owner() -> None:
    policy = DevicePolicy(prgs=frozenset({Prg.CHACHA20}), privacy=OPEN)
    check(valid_plan(), policy, own_prgs=Prg.CHACHA20.bit)
    with pytest.raises(RemoteProtocolError, match="E-PLAN-POLICY"):
        check(valid_plan(), policy, own_prgs=ALL_PRGS)


def test_an_experimental_mode_needs_the_owners_consent() -> None:
    plan = dataclasses.replace(valid_plan(), mode=RoundMode.ONE_UPLOAD)
    check(plan, DevicePolicy(allows_experimental=True, privacy=OPEN))
    with pytest.raises(RemoteProtocolError, match="not experimental"):
        check(plan, DevicePolicy(privacy=OPEN))


def test_the_default_trusts_the_gateway_and_no_more() -> None:
    check(valid_plan(), DevicePolicy(privacy=OPEN))
    with pytest.raises(RemoteProtocolError, match="HONEST_BUT_CURIOUS"):
        check(valid_plan(adversary=SEMI), DevicePolicy(privacy=OPEN))


@pytest.mark.parametrize("adversary", list(AdversaryClass))
def test_who_enrols_its_own_devices_is_trusted_or_refused(adversary: AdversaryClass) -> None:
    policy = DevicePolicy(adversary_classes=frozenset(AdversaryClass), privacy=OPEN)
    plan = valid_plan(adversary=adversary)
    check(plan, policy, gateway_enrols=False)
    if adversary is CURIOUS:
        check(plan, policy, gateway_enrols=True)
    else:
        with pytest.raises(RemoteProtocolError, match="E-PLAN-ENROLMENT"):
            check(plan, policy, gateway_enrols=True)


# ---------------------------------------------------------------- ages


@functools.cache
def roster_of(n_old: int, n_young: int) -> Roster:
    """Return a roster with devices of day 100 and of day 200."""
    entries = [entry_of(f"old{index}", 100) for index in range(n_old)]
    entries += [entry_of(f"new{index}", 200) for index in range(n_young)]
    return sign_roster(None, FLEET, entries, ENROLMENT)


CAPPED = DevicePolicy(young_days=10, most_young_permille=300, privacy=OPEN)


@pytest.mark.parametrize(
    ("n_young", "neighbours", "refused"),
    [
        (3, [100] * 6, None),
        (4, [100] * 6, "roster"),
        (3, [100] * 6 + [200] * 3, None),
        (3, [100] * 5 + [200] * 3, "neighbourhood"),
        (0, [], None),
    ],
)
def test_the_share_of_young_identities(
    n_young: int, neighbours: list[int], refused: str | None
) -> None:
    roster = roster_of(10 - n_young, n_young).epoch
    if refused is None:
        check_ages(CAPPED, roster, neighbours, today=205)
    else:
        with pytest.raises(RemoteProtocolError, match=f"E-PLAN-YOUNG.*{refused}"):
            check_ages(CAPPED, roster, neighbours, today=205)


@pytest.mark.parametrize(("today", "is_young"), [(0, True), (200, True), (209, True), (210, False)])
def test_an_identity_is_young_for_so_many_days(today: int, is_young: bool) -> None:
    if is_young:
        with pytest.raises(RemoteProtocolError, match="E-PLAN-YOUNG"):
            check_ages(CAPPED, roster_of(1, 9).epoch, [200] * 9, today=today)
    else:
        check_ages(CAPPED, roster_of(1, 9).epoch, [200] * 9, today=today)


@pytest.mark.parametrize(
    "policy",
    [
        DevicePolicy(privacy=OPEN),
        DevicePolicy(young_days=10, privacy=OPEN),
        DevicePolicy(most_young_permille=0, privacy=OPEN),
    ],
)
def test_ages_do_not_matter_without_a_cap(policy: DevicePolicy) -> None:
    check_ages(policy, roster_of(1, 9).epoch, [200] * 9, today=200)


# ---------------------------------------------------------------- the policy itself


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"least_survivor_floor": 1}, "E-POLICY-FLOOR"),
        ({"least_survivor_floor": -3}, "E-POLICY-FLOOR"),
        ({"least_degree": 1}, "E-POLICY-FLOOR"),
        ({"prgs": frozenset()}, "E-POLICY-PRGS"),
        ({"prgs": frozenset({Prg.AES_128_CTR})}, "E-POLICY-PRGS"),
        ({"least_corrupt_permille": -1}, "E-POLICY-SHARE"),
        ({"least_drop_permille": 1001}, "E-POLICY-SHARE"),
        ({"most_young_permille": 1001}, "E-POLICY-SHARE"),
        ({"young_days": -1}, "E-POLICY-SHARE"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(ConfigError, match=code):
        DevicePolicy(privacy=OPEN, **changes)
