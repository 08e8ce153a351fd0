"""A device's own limits on privacy plans, and the check of a plan against them."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgefl.errors import RemoteProtocolError

if TYPE_CHECKING:
    from edgefl.privacy.plan import PrivacyPlan

EPSILON_TOLERANCE = 1e-6
"""Relative difference accepted between the declared epsilon and the one a device computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPolicy:
    """A device's own floors and caps; a plan beyond any of them is refused.

    Attributes:
        max_epsilon: Largest epsilon that one task may plan to spend.
        max_delta: Largest delta.
        max_clip_norm: Largest clip norm, update units.
        min_survivor_floor: Least survivor floor.
        min_colluders: Least number of devices that must be assumed to collude.
        dimension: Coordinates of the model this device has, or None if it is not known yet.
    """

    max_epsilon: float
    max_delta: float = 1e-5
    max_clip_norm: float = 100.0
    min_survivor_floor: int = 2
    min_colluders: int = 0
    dimension: int | None = None


def check_privacy_plan(plan: "PrivacyPlan", policy: PrivacyPolicy) -> None:
    """Recompute what a plan claims and compare it with a device's own floors.

    Args:
        plan: The aggregator's plan; its constructor has checked that noise, weights, rotation,
            ring and scale fit.
        policy: This device's limits.

    Raises:
        RemoteProtocolError: E-PLAN-EPSILON, the declared epsilon is not what the numbers give;
            E-PLAN-POLICY, the plan is beyond a limit.
    """
    epsilon = plan.epsilon_after(plan.rounds)
    if not math.isclose(epsilon, plan.epsilon_declared, rel_tol=EPSILON_TOLERANCE):
        raise RemoteProtocolError(
            "E-PLAN-EPSILON",
            f"the epsilon that the plan's numbers give, {epsilon:.6g}",
            f"{plan.epsilon_declared:.6g} declared",
        )
    # The ledger stops at the budget, so a task cannot spend more than the smaller of both.
    spend = min(epsilon, plan.epsilon_budget)
    limits = (
        ("epsilon at most", policy.max_epsilon, spend, spend <= policy.max_epsilon),
        ("delta at most", policy.max_delta, plan.delta, plan.delta <= policy.max_delta),
        (
            "clip norm at most",
            policy.max_clip_norm,
            plan.clip_norm,
            plan.clip_norm <= policy.max_clip_norm,
        ),
        (
            "survivor floor at least",
            policy.min_survivor_floor,
            plan.survivor_floor,
            plan.survivor_floor >= policy.min_survivor_floor,
        ),
        (
            "assumed colluders at least",
            policy.min_colluders,
            plan.colluders,
            plan.colluders >= policy.min_colluders,
        ),
        (
            "dimension",
            policy.dimension,
            plan.dimension,
            policy.dimension in {None, plan.dimension},
        ),
    )
    for name, limit, found, is_kept in limits:
        if not is_kept:
            raise RemoteProtocolError("E-PLAN-POLICY", f"{name} {limit:g}", f"{found:g}")
