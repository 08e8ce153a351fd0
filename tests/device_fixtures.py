"""What the devices of a hand-played gateway start from: keys, policy, plans, flash."""

import functools
import math
from dataclasses import dataclass

from edgefl.privacy.plan import PrivacyPlan, PrivacyPolicy, make_privacy_plan
from edgefl.protocol.policy import DevicePolicy
from edgefl.protocol.reasons import AdversaryClass
from tests.epoch_harness import DAY, EpochFleet, signing_key

GATEWAY = signing_key("gateway identity")
TODAY = DAY + 100
CURIOUS = AdversaryClass.HONEST_BUT_CURIOUS
LIAR = AdversaryClass.MALICIOUS
POLICY = DevicePolicy(
    adversary_classes=frozenset(AdversaryClass),
    least_survivor_floor=2,
    privacy=PrivacyPolicy(max_epsilon=math.inf, max_clip_norm=10),
)


@functools.cache
def opened_fleet(n_devices: int) -> EpochFleet:
    """Return a fleet whose first key epoch is open; its boards' flash is where devices start."""
    fleet = EpochFleet(n_devices, mask_keys=8)
    fleet.open_epoch()
    return fleet


@functools.cache
def privacy_plan(
    n_cohort: int, survivor_floor: int, dimension: int, noise: float, weight_bound: int
) -> PrivacyPlan:
    """Return a plan with noise, or in exact mode in a ring of 20 bits."""
    return make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=noise,
        n_cohort=n_cohort,
        survivor_floor=survivor_floor,
        colluders=0,
        dimension=dimension,
        delta=1e-5,
        epsilon_budget=1e6 if noise else math.inf,
        rounds=3,
        ring_bits=None if noise else 20,
        weight_bound=weight_bound,
    )


@dataclass
class Flash:
    """What outlives a loss of power."""

    epoch: bytes
    round: bytes | None = None
    spool: bytes | None = None
