"""The privacy plan of a task: what each device clips to, rounds to and adds, and what is claimed.

A plan holds only what must be agreed; everything derived is recomputed by each side. Relation: the
sum with and without the contribution of one device. That a device takes part is not hidden.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

from edgefl._native import CHECK_COORDINATES
from edgefl.errors import ConfigError, EdgeflError, PrivacyError, WireError
from edgefl.privacy import bounds, plan_checks
from edgefl.privacy.accounting import RDP_ORDERS, RdpCurve, epsilon_from_rdp, repeat, skellam_rdp
from edgefl.privacy.plan_policy import PrivacyPolicy, check_privacy_plan
from edgefl.privacy.plan_wire import WIRE_FIELDS, read_fields
from edgefl.privacy.ring_choice import blocks_to_try, choose_plan
from edgefl.privacy.rotation import padded_dimension
from edgefl.privacy.wrap import SumShape, largest_scale, wrap_probability

# Callers that make plans and devices that check them find all of it here.
__all__ = [
    "Mechanism",
    "NeighbouringRelation",
    "PrivacyPlan",
    "PrivacyPolicy",
    "PrivacyUnit",
    "check_privacy_plan",
    "make_privacy_plan",
]


class PrivacyUnit(Enum):
    """Whose whole contribution is protected."""

    DEVICE = "device"


class NeighbouringRelation(Enum):
    """Which pairs of inputs must look alike."""

    ADD_OR_REMOVE_ONE_DEVICE = "add-or-remove one device"


class Mechanism(Enum):
    """How the noise is drawn."""

    SKELLAM = "skellam"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPlan:
    """Numbers that aggregator and devices agree on before a round; see `make_privacy_plan`.

    Attributes:
        unit: Whose contribution is protected.
        relation: Neighbouring relation of the claim.
        mechanism: Noise distribution.
        clip_norm: L2 bound of one device's update, update units.
        noise_multiplier: Noise std on the sum divided by `clip_norm`; 0 is the exact mode, without
            any differential privacy.
        n_cohort: Most devices in one sum.
        survivor_floor: Least survivors for which a round is released.
        colluders: Devices whose noise share is not counted, as they may tell it to the aggregator.
        ring_bits: Sums are taken modulo 2 to this power, 8 to 32.
        scale: Integer units per update unit.
        beta: Chance of a repeated rounding that the norm bound is built for, 0 to below 1.
        dimension: Coordinates of the update.
        delta: Delta of the claim.
        epsilon_budget: The ledger stops before this epsilon; infinity only in the exact mode.
        rounds: Rounds the task is planned for.
        epsilon_declared: Epsilon against the aggregator after `rounds`, as the maker computed it.
        rotation_block: Coordinates that are rotated together, a power of two up to 4096; 0 for no
            rotation.
        weight_bound: Largest weight of a device in the sum; 1 for plain sums, and with noise.
    """

    unit: PrivacyUnit = PrivacyUnit.DEVICE
    relation: NeighbouringRelation = NeighbouringRelation.ADD_OR_REMOVE_ONE_DEVICE
    mechanism: Mechanism = Mechanism.SKELLAM
    clip_norm: float
    noise_multiplier: float
    n_cohort: int
    survivor_floor: int
    colluders: int
    ring_bits: int
    scale: float
    beta: float
    dimension: int
    delta: float
    epsilon_budget: float
    rounds: int
    epsilon_declared: float
    rotation_block: int = 0
    weight_bound: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers with which the claim or the sum would not hold."""
        plan_checks.check_choices(
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            n_cohort=self.n_cohort,
            survivor_floor=self.survivor_floor,
            colluders=self.colluders,
            dimension=self.dimension,
            beta=self.beta,
            delta=self.delta,
            epsilon_budget=self.epsilon_budget,
            rounds=self.rounds,
            weight_bound=self.weight_bound,
        )
        plan_checks.check_rotation_block(self.rotation_block)
        plan_checks.check_ring(ring_bits=self.ring_bits, scale=self.scale, clip_norm=self.clip_norm)
        plan_checks.check_noise_share(self.noise_multiplier, self.noise_share_variance)
        plan_checks.check_sum_fits(self._sum_shape, self.scale * self.clip_norm, self.ring_bits)
        if not (plan_checks.is_real(self.epsilon_declared) and self.epsilon_declared >= 0):
            raise ConfigError(
                "E-PLAN-EPSILON", "a declared epsilon of at least 0", repr(self.epsilon_declared)
            )

    @property
    def n_min(self) -> int:
        """Honest survivors whose noise is sure to be in every released sum."""
        return self.survivor_floor - self.colluders

    @property
    def padded_dimension(self) -> int:
        """Coordinates that are rounded and noised: whole rotation blocks."""
        return padded_dimension(self.dimension, self.rotation_block)

    @property
    def vector_length(self) -> int:
        """Ring values of a masked input: coordinates, weight slot if weighted, sum check."""
        weight_slot = 1 if self.weight_bound > 1 else 0
        return self.padded_dimension + weight_slot + CHECK_COORDINATES

    @property
    def l2_squared_bound(self) -> float:
        """Largest squared L2 norm of a device's rounded update, integer units squared.

        Rotated or not: a rotation keeps the norm whatever its signs are.
        """
        return bounds.rounded_l2_squared(
            self.scale, self.clip_norm, self.padded_dimension, self.beta
        )

    @property
    def l1_bound(self) -> float:
        """Largest L1 norm of a device's rounded update, integer units."""
        return bounds.rounded_l1(self.l2_squared_bound, self.padded_dimension)

    @property
    def noise_share_variance(self) -> float:
        """Variance that each device adds to each coordinate, integer units squared."""
        return bounds.noise_share_variance(
            self.noise_multiplier, self.scale, self.clip_norm, self.n_min
        )

    @property
    def wrap_probability(self) -> float:
        """Bound of the chance that a round's sum leaves the ring."""
        return wrap_probability(self._sum_shape, self.scale * self.clip_norm, self.ring_bits)

    @property
    def _sum_shape(self) -> SumShape:
        return SumShape(
            n_cohort=self.n_cohort,
            n_min=self.n_min,
            noise_multiplier=self.noise_multiplier,
            weight_bound=self.weight_bound,
            dimension=self.dimension,
            rotation_block=self.rotation_block,
            beta=self.beta,
        )

    def counted_noise_shares(self, n_survivors: int) -> int:
        """Return how many noise shares a release by `n_survivors` is charged for.

        Never more than `n_min`: noise above the promise is welcome and is not claimed.

        Raises:
            PrivacyError: E-NO-HONEST-NOISE, no honest survivor is left.
        """
        counted = min(n_survivors - self.colluders, self.n_min)
        if counted < 1:
            raise PrivacyError(
                "E-NO-HONEST-NOISE",
                f"more survivors than the {self.colluders} assumed colluders",
                f"{n_survivors} survivors",
                "do not release this round",
            )
        return counted

    def effective_noise_multiplier(self, n_survivors: int) -> float:
        """Return the noise multiplier that a release by `n_survivors` is charged with."""
        counted = self.counted_noise_shares(n_survivors)
        return self.noise_multiplier * math.sqrt(counted / self.n_min)

    def rdp_per_round(
        self, n_survivors: int | None = None, devices_per_person: int = 1
    ) -> RdpCurve:
        """Return the RDP of one released round at `RDP_ORDERS`.

        Args:
            n_survivors: Devices in the sum; the survivor floor if not given.
            devices_per_person: Devices that move together; the sensitivity grows by this factor.

        Returns:
            One divergence per order; infinity in the exact mode.
        """
        survivors = self.survivor_floor if n_survivors is None else n_survivors
        return skellam_rdp(
            self.noise_share_variance * self.counted_noise_shares(survivors),
            self.l2_squared_bound * devices_per_person**2,
            self.l1_bound * devices_per_person,
            self.padded_dimension,
        )

    def epsilon_after(self, rounds: int) -> float:
        """Return epsilon at `delta` against the aggregator after `rounds` releases."""
        return epsilon_from_rdp(RDP_ORDERS, repeat(self.rdp_per_round(), rounds), self.delta)

    def to_wire(self) -> dict[int, int | float | str]:
        """Return the plan as integer keys with plain values, in key order."""
        wire: dict[int, int | float | str] = {}
        for key, (name, kind) in WIRE_FIELDS.items():
            value = getattr(self, name)
            wire[key] = value.value if isinstance(value, Enum) else kind(value)
        return wire

    @classmethod
    def from_wire(cls, wire: object) -> "PrivacyPlan":
        """Build a plan from a peer's data.

        Args:
            wire: Decoded data of any shape.

        Returns:
            The plan, with every check of the constructor passed.

        Raises:
            WireError: E-PRIVACY-PLAN.
        """
        names, numbers = read_fields(wire)
        try:
            return cls(
                unit=PrivacyUnit(names["unit"]),
                relation=NeighbouringRelation(names["relation"]),
                mechanism=Mechanism(names["mechanism"]),
                **numbers,
            )
        except EdgeflError as error:
            raise WireError("E-PRIVACY-PLAN", error.expected, error.found) from error
        except (ValueError, ArithmeticError) as error:
            raise WireError("E-PRIVACY-PLAN", "known names and usable numbers", "others") from error


def make_privacy_plan(
    *,
    clip_norm: float,
    noise_multiplier: float,
    n_cohort: int,
    survivor_floor: int,
    colluders: int,
    dimension: int,
    delta: float,
    epsilon_budget: float,
    rounds: int,
    ring_bits: int | None = None,
    beta: float = bounds.ROUNDING_FAILURE,
    rotation: bool | None = False,
    weight_bound: int = 1,
) -> PrivacyPlan:
    """Choose scale, ring and rotation, compute what is claimed, and refuse what cannot hold.

    Args:
        clip_norm: L2 bound of one device's update, update units, above 0.
        noise_multiplier: Noise std on the sum divided by `clip_norm`, at least 0.
        n_cohort: Most devices in one sum, at least 2.
        survivor_floor: Least survivors of a released round, 2 to `n_cohort`.
        colluders: Devices whose noise is not counted, 0 to `survivor_floor` - 1.
        dimension: Coordinates of the update.
        delta: Between 0 and 1.
        epsilon_budget: Above 0; infinity only with `noise_multiplier` 0.
        rounds: Rounds planned.
        ring_bits: 8 to 32; the smallest ring in which rounding does not matter if not given.
        beta: Chance of a repeated rounding that the norm bound is built for.
        rotation: Whether updates are rotated; None: where that makes the masked input smaller.
        weight_bound: Largest weight of a device; above 1 only with `noise_multiplier` 0.

    Returns:
        The plan, with `epsilon_declared` computed.

    Raises:
        ConfigError: Any number out of range; E-RING-TOO-SMALL and E-NOISE-SHARE-TOO-SMALL name the
            smallest admissible ring.
    """
    plan_checks.check_choices(
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        n_cohort=n_cohort,
        survivor_floor=survivor_floor,
        colluders=colluders,
        dimension=dimension,
        beta=beta,
        delta=delta,
        epsilon_budget=epsilon_budget,
        rounds=rounds,
        weight_bound=weight_bound,
    )
    if ring_bits is not None:
        plan_checks.check_ring_bits(ring_bits)

    def build(bits: int, rotation_block: int) -> PrivacyPlan:
        shape = SumShape(
            n_cohort=n_cohort,
            n_min=survivor_floor - colluders,
            noise_multiplier=float(noise_multiplier),
            weight_bound=weight_bound,
            dimension=dimension,
            rotation_block=rotation_block,
            beta=float(beta),
        )
        scale = largest_scale(shape, float(clip_norm), bits)
        plan_checks.check_scale_found(scale, bits)
        plan = PrivacyPlan(
            clip_norm=float(clip_norm),
            noise_multiplier=float(noise_multiplier),
            n_cohort=n_cohort,
            survivor_floor=survivor_floor,
            colluders=colluders,
            ring_bits=bits,
            scale=scale,
            beta=float(beta),
            dimension=dimension,
            delta=delta,
            epsilon_budget=float(epsilon_budget),
            rounds=rounds,
            epsilon_declared=0.0,
            rotation_block=rotation_block,
            weight_bound=weight_bound,
        )
        return replace(plan, epsilon_declared=plan.epsilon_after(rounds))

    return choose_plan(
        build, ring_bits=ring_bits, blocks=blocks_to_try(dimension, rotation=rotation)
    )
