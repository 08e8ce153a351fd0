"""The epsilons that are reported for a plan, each against a named observer, never one alone."""

from dataclasses import dataclass

from edgefl.errors import PrivacyError
from edgefl.privacy.accounting import (
    RDP_ORDERS,
    check_sampling_rate,
    epsilon_from_rdp,
    gaussian_rdp,
    poisson_amplified_rdp,
    repeat,
)
from edgefl.privacy.plan import PrivacyPlan

_MAX_COHORT = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonReport:
    """What a task has cost or would cost, at one delta.

    Attributes:
        delta: Delta of all four.
        server: Against the aggregator and anyone who sees who takes part: every round counted.
        release: Against those who see only the released models and know nothing of participation.
        two_devices: As `server`, for a person who owns two devices of the fleet.
        server_published_orders: As `server`, by the published whole-order bound alone.
    """

    delta: float
    server: float
    release: float
    two_devices: float
    server_published_orders: float


def epsilon_report(plan: PrivacyPlan, rounds: int, sampling_rate: float = 1.0) -> EpsilonReport:
    """Compute all epsilons of `rounds` releases at the survivor floor.

    Args:
        plan: The task's plan.
        rounds: Releases, at least 0.
        sampling_rate: Probability of a coin thrown by each device; 1 when every device takes part,
            or when anything but such a coin chose the cohort.

    Returns:
        The report.

    Raises:
        PrivacyError: E-SAMPLING-RATE or E-ROUNDS.
    """
    return EpsilonReport(
        delta=plan.delta,
        server=plan.epsilon_after(rounds),
        release=epsilon_release(plan, rounds, sampling_rate),
        two_devices=epsilon_for_two_devices(plan, rounds),
        server_published_orders=_epsilon_at_whole_orders(plan, rounds),
    )


def epsilon_release(plan: PrivacyPlan, rounds: int, sampling_rate: float) -> float:
    """Return epsilon against those who see only the released models.

    With `sampling_rate` 1 it equals the epsilon against the aggregator. It holds only where each
    device threw its own coin and nobody observes, selects or turns away devices afterwards.

    Raises:
        PrivacyError: E-SAMPLING-RATE or E-ROUNDS.
    """
    check_sampling_rate(sampling_rate)
    curve = poisson_amplified_rdp(sampling_rate, plan.rdp_per_round())
    return epsilon_from_rdp(RDP_ORDERS, repeat(curve, rounds), plan.delta)


def epsilon_for_two_devices(plan: PrivacyPlan, rounds: int) -> float:
    """Return epsilon against the aggregator for a person with two devices in every round.

    Both contributions move together: the L2 and L1 sensitivities double, the divergence grows
    about fourfold.
    """
    curve = plan.rdp_per_round(devices_per_person=2)
    return epsilon_from_rdp(RDP_ORDERS, repeat(curve, rounds), plan.delta)


def cohort_for_epsilon(
    *,
    noise_multiplier: float,
    n_cohort: int,
    rounds: int,
    delta: float,
    target_epsilon: float = 8.0,
) -> int:
    """Return the smallest cohort that reaches an epsilon at an unchanged noise on the mean update.

    Assumptions: the noise std on the mean update stays what it is at `n_cohort` devices, so that
    the model learns as it did, and the noise multiplier grows in proportion to the cohort; rounds
    and delta stay; rounding costs nothing (Gaussian RDP). Whether that many such devices exist, and
    whether their mean update is as good, is not claimed.

    Args:
        noise_multiplier: At `n_cohort`, above 0.
        n_cohort: Devices of the known run.
        rounds: Rounds, every device in each.
        delta: Between 0 and 1.
        target_epsilon: Above 0.

    Returns:
        Number of devices, at least 1.

    Raises:
        PrivacyError: E-COHORT-FOR-EPSILON, no cohort up to 10^12 reaches the target.
    """

    def reaches(devices: int) -> bool:
        curve = repeat(gaussian_rdp(noise_multiplier * devices / n_cohort), rounds)
        return epsilon_from_rdp(RDP_ORDERS, curve, delta) <= target_epsilon

    is_usable = noise_multiplier > 0 and n_cohort > 0 and target_epsilon > 0
    if not is_usable or not reaches(_MAX_COHORT):
        raise PrivacyError(
            "E-COHORT-FOR-EPSILON",
            f"epsilon {target_epsilon:g} within {_MAX_COHORT:g} devices",
            f"noise multiplier {noise_multiplier:g} at {n_cohort} devices",
        )
    low, high = 0, _MAX_COHORT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _epsilon_at_whole_orders(plan: PrivacyPlan, rounds: int) -> float:
    pairs = [
        (order, value)
        for order, value in zip(RDP_ORDERS, plan.rdp_per_round(), strict=True)
        if order.is_integer()
    ]
    orders = [order for order, _ in pairs]
    return epsilon_from_rdp(orders, repeat([value for _, value in pairs], rounds), plan.delta)
