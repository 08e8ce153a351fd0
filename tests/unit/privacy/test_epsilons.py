"""The reported epsilons, their observers, and the cohort for epsilon 8."""

import math

import pytest

from edgefl.errors import PrivacyError
from edgefl.privacy.accounting import RDP_ORDERS, epsilon_from_rdp, gaussian_rdp, repeat
from edgefl.privacy.epsilons import (
    cohort_for_epsilon,
    epsilon_for_two_devices,
    epsilon_release,
    epsilon_report,
)
from edgefl.privacy.plan import PrivacyPlan, make_privacy_plan


def make(noise_multiplier: float = 2.0, **changes: object) -> PrivacyPlan:
    choices = {
        "clip_norm": 1.0,
        "noise_multiplier": noise_multiplier,
        "n_cohort": 16,
        "survivor_floor": 10,
        "colluders": 1,
        "dimension": 1900,
        "delta": 1e-5,
        "epsilon_budget": 2000.0,
        "rounds": 20,
    }
    return make_privacy_plan(**{**choices, **changes})


def gaussian_epsilon(noise_multiplier: float, rounds: int) -> float:
    return epsilon_from_rdp(RDP_ORDERS, repeat(gaussian_rdp(noise_multiplier), rounds), 1e-5)


def test_full_participation_gives_equal_epsilons() -> None:
    report = epsilon_report(make(), 20)
    assert report.release == report.server == make().epsilon_after(20)


def test_a_device_coin_helps_against_outsiders_only() -> None:
    report = epsilon_report(make(), 20, sampling_rate=0.1)
    assert report.release < report.server / 2
    assert report.server == make().epsilon_after(20)
    rates = [epsilon_release(make(), 20, rate) for rate in (0.0, 0.01, 0.1, 0.5, 1.0)]
    assert rates == sorted(rates)
    assert rates[0] == 0.0


@pytest.mark.parametrize("noise_multiplier", [0.1, 1.0, 4.0])
def test_two_devices_are_half_the_noise_multiplier(noise_multiplier: float) -> None:
    plan = make(noise_multiplier, ring_bits=24)
    found = epsilon_for_two_devices(plan, 20)
    assert found == pytest.approx(gaussian_epsilon(noise_multiplier / 2, 20), rel=0.01)
    assert found > 2 * plan.epsilon_after(20)


def test_published_orders_alone_cost_more_at_little_noise() -> None:
    demo = epsilon_report(make(0.1), 20)
    assert 1200 < demo.server < 1216
    # Order 2 is the lowest whole order: 2 * 1000 + ln(1/2) - ln(2e-5) and a little rounding.
    assert 2010 < demo.server_published_orders < 2020
    ample = epsilon_report(make(4.0), 20)
    assert ample.server_published_orders == pytest.approx(ample.server, rel=0.02)


def test_cohort_for_eight_is_the_smallest_one() -> None:
    found = cohort_for_epsilon(noise_multiplier=0.1, n_cohort=16, rounds=20, delta=1e-5)
    assert (
        gaussian_epsilon(0.1 * found / 16, 20) <= 8 < gaussian_epsilon(0.1 * (found - 1) / 16, 20)
    )


def test_cohort_for_a_target_already_met_is_not_larger() -> None:
    found = cohort_for_epsilon(noise_multiplier=50.0, n_cohort=16, rounds=1, delta=1e-5)
    assert found < 16


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, 1e-12])
def test_cohort_that_no_fleet_has_is_refused(noise_multiplier: float) -> None:
    with pytest.raises(PrivacyError, match="E-COHORT-FOR-EPSILON"):
        cohort_for_epsilon(noise_multiplier=noise_multiplier, n_cohort=16, rounds=20, delta=1e-5)


@pytest.mark.parametrize("target", [math.nan, 0.0, -1.0])
def test_useless_target_is_refused(target: float) -> None:
    with pytest.raises(PrivacyError, match="E-COHORT-FOR-EPSILON"):
        cohort_for_epsilon(
            noise_multiplier=0.1, n_cohort=16, rounds=20, delta=1e-5, target_epsilon=target
        )
