"""The device's own floors. A plan below any of them is refused, whatever the gateway says."""

from dataclasses import dataclass

from edgefl.errors import ConfigError, RemoteProtocolError
from edgefl.privacy.plan import PrivacyPolicy, check_privacy_plan
from edgefl.protocol.messages import KeyAdvert
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AdversaryClass, Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePolicy:
    """Least terms under which a device takes part.

    Attributes:
        adversary_classes: Classes that the owner of the device accepts.
        suites: Suites that the device accepts.
        least_survivor_floor: Least devices that its update must be hidden among.
        privacy: Floors of the privacy plan.
    """

    adversary_classes: frozenset[AdversaryClass] = frozenset({AdversaryClass.HONEST_BUT_CURIOUS})
    suites: frozenset[Suite] = frozenset({Suite.CHACHA20_X25519})
    least_survivor_floor: int = 3
    privacy: PrivacyPolicy

    def __post_init__(self) -> None:
        """Check the floor itself."""
        if self.least_survivor_floor < 2:
            raise ConfigError(
                "E-POLICY-FLOOR",
                "a least survivor floor of 2 or more",
                str(self.least_survivor_floor),
            )


def check_plan(plan: SessionPlan, policy: DevicePolicy, own: KeyAdvert, call_id: bytes) -> int:
    """Check a plan against the device's own keys and floors.

    Returns:
        The device's position in the plan.

    Raises:
        RemoteProtocolError: The plan is for another call, lacks or changes this device's keys,
            holds a swapped advert, or lies below a floor.
    """
    if plan.call_id != call_id:
        raise RemoteProtocolError(
            "E-PLAN-CALL", "a plan for the call that this device answered", "another call"
        )
    position = plan.position_of(own.device)
    if position is None or plan.members[position] != own:
        raise RemoteProtocolError(
            "E-PLAN-SELF", "this device's own advert in the plan", "none or another one"
        )
    plan.require_signed_adverts()
    if plan.adversary not in policy.adversary_classes or plan.suite not in policy.suites:
        raise RemoteProtocolError(
            "E-PLAN-POLICY",
            "an adversary class and a suite that this device accepts",
            f"{plan.adversary.name}",
        )
    if plan.survivor_floor < policy.least_survivor_floor:
        raise RemoteProtocolError(
            "E-PLAN-FLOOR",
            f"a survivor floor of at least {policy.least_survivor_floor}",
            str(plan.survivor_floor),
        )
    if 2 * plan.threshold <= len(plan.members):
        # With no more than half of the shares, two halves of the cohort could be told
        # different lists.
        raise RemoteProtocolError(
            "E-PLAN-THRESHOLD", f"more than half of {len(plan.members)} shares", str(plan.threshold)
        )
    check_privacy_plan(plan.privacy, policy.privacy)
    return position
