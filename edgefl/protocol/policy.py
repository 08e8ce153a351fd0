"""The device's own floors. A plan below any of them is refused, whatever the gateway says."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgefl.errors import ConfigError, RemoteProtocolError
from edgefl.privacy.plan import PrivacyPolicy, check_privacy_plan
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AdversaryClass, Prg, RoundMode
from edgefl.protocol.roster_epoch import RosterEpoch, young_share

_PERMILLE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePolicy:
    """Least terms under which a device takes part.

    Attributes:
        adversary_classes: Classes that the owner of the device accepts. HONEST_BUT_CURIOUS among
            them means that the owner trusts the gateway to follow the protocol.
        prgs: PRGs that may expand the seeds of this device's masks.
        allows_experimental: Whether modes without a settled security argument are taken part in.
        least_survivor_floor: Least devices that its update must be hidden among.
        least_degree: Least neighbours that it shares with; a complete graph always has enough.
        least_corrupt_permille: Least share of the fleet that must be assumed to collude with the
            gateway, in thousandths.
        least_drop_permille: Least share of the cohort that may drop out, in thousandths.
        young_days: Identities enrolled less than this many days ago are young.
        most_young_permille: Largest share of young identities in the roster and among those that
            it shares with, in thousandths.
        privacy: Floors of the privacy plan.
    """

    adversary_classes: frozenset[AdversaryClass] = frozenset({AdversaryClass.HONEST_BUT_CURIOUS})
    prgs: frozenset[Prg] = frozenset(Prg)
    allows_experimental: bool = False
    least_survivor_floor: int = 3
    least_degree: int = 2
    least_corrupt_permille: int = 0
    least_drop_permille: int = 0
    young_days: int = 0
    most_young_permille: int = _PERMILLE
    privacy: PrivacyPolicy

    def __post_init__(self) -> None:
        """Check the floors themselves."""
        if self.least_survivor_floor < 2 or self.least_degree < 2:
            raise ConfigError(
                "E-POLICY-FLOOR",
                "a least survivor floor and a least degree of 2 or more",
                f"{self.least_survivor_floor}, {self.least_degree}",
            )
        if Prg.CHACHA20 not in self.prgs:
            raise ConfigError(
                "E-POLICY-PRGS", "ChaCha20 among the PRGs, which every pair can use", "others only"
            )
        shares = (self.least_corrupt_permille, self.least_drop_permille, self.most_young_permille)
        if not all(0 <= share <= _PERMILLE for share in shares) or self.young_days < 0:
            raise ConfigError(
                "E-POLICY-SHARE",
                "shares from 0 to 1000 thousandths and an age of 0 days or more",
                f"{shares}, {self.young_days} days",
            )

    @property
    def caps_young(self) -> bool:
        """Tell whether the age of identities matters to the owner."""
        return self.young_days > 0 and self.most_young_permille < _PERMILLE


def check_floors(
    plan: SessionPlan,
    policy: DevicePolicy,
    *,
    base_size: int,
    own_prgs: int,
    gateway_enrols: bool,
) -> None:
    """Check what a plan demands against a device's own floors.

    Args:
        plan: The plan.
        policy: The device's floors.
        base_size: Devices that the graph is drawn over.
        own_prgs: Set of PRGs that this device declares; a pair uses what both of it declare.
        gateway_enrols: The roster is signed by the gateway's own identity key.

    Raises:
        RemoteProtocolError: E-PLAN-ENROLMENT, E-PLAN-POLICY, E-PLAN-EPSILON: the first floor that
            it is below, by name.
    """
    if gateway_enrols and plan.adversary is not AdversaryClass.HONEST_BUT_CURIOUS:
        raise RemoteProtocolError(
            "E-PLAN-ENROLMENT",
            "class HONEST_BUT_CURIOUS where the gateway's own key signs the roster",
            plan.adversary.name,
            "sign the roster with an enrolment key that the gateway does not hold",
        )
    thresholds, degree = plan.thresholds, min(policy.least_degree, base_size - 1)
    names = ", ".join(sorted(accepted.name for accepted in policy.adversary_classes)) or "none"
    floors = (
        (f"an adversary class of {names}", plan.adversary in policy.adversary_classes),
        ("a mode that is not experimental", _accepts_mode(policy, plan.mode)),
        ("PRGs that this device accepts", _accepts_prgs(policy, plan.prgs & own_prgs)),
        (
            f"a survivor floor of at least {policy.least_survivor_floor}",
            thresholds.survivor_floor >= policy.least_survivor_floor,
        ),
        (f"a degree of at least {degree}", thresholds.degree >= degree),
        (
            f"at least {policy.least_corrupt_permille} thousandths corrupt",
            plan.corrupt_permille >= policy.least_corrupt_permille,
        ),
        (
            f"at least {policy.least_drop_permille} thousandths dropped",
            plan.drop_permille >= policy.least_drop_permille,
        ),
    )
    for expected, is_kept in floors:
        if not is_kept:
            raise RemoteProtocolError(
                "E-PLAN-POLICY", expected, _describe(plan), "change the task or the device's policy"
            )
    check_privacy_plan(plan.privacy, policy.privacy)


def check_ages(
    policy: DevicePolicy, roster: RosterEpoch, enrolled_days: Sequence[int], *, today: int
) -> None:
    """Check that neither the roster nor the own neighbourhood holds too many new identities.

    Security: whoever makes up identities can choose a cohort of them. The graph is drawn, so the
    neighbours stand for the cohort; where the graph is complete they are the cohort.

    Args:
        policy: The device's floors.
        roster: The pinned header.
        enrolled_days: Day of each neighbour's enrolment.
        today: Days since 1970-01-01. A clock that is behind makes identities younger.

    Raises:
        RemoteProtocolError: E-PLAN-YOUNG.
    """
    if not policy.caps_young:
        return
    since_day = today - policy.young_days + 1
    young = sum(day >= since_day for day in enrolled_days)
    shares = {
        "roster": young_share(roster, since_day=since_day),
        "neighbourhood": young / (1 + len(enrolled_days)),
    }
    for place, share in shares.items():
        if share * _PERMILLE > policy.most_young_permille:
            raise RemoteProtocolError(
                "E-PLAN-YOUNG",
                f"at most {policy.most_young_permille} thousandths of the {place} enrolled within"
                f" {policy.young_days} days",
                f"{share * _PERMILLE:.0f} thousandths",
                "wait until they are older",
            )


def _accepts_mode(policy: DevicePolicy, mode: RoundMode) -> bool:
    return mode is RoundMode.SECAGG or policy.allows_experimental


def _accepts_prgs(policy: DevicePolicy, prgs: int) -> bool:
    return not prgs & ~sum(prg.bit for prg in policy.prgs)


def _describe(plan: SessionPlan) -> str:
    return (
        f"{plan.adversary.name}, {plan.mode.name}, PRGs {plan.prgs},"
        f" floor {plan.thresholds.survivor_floor}, degree {plan.thresholds.degree},"
        f" {plan.corrupt_permille} corrupt, {plan.drop_permille} dropped"
    )
