"""How likely a sum leaves the ring: worst case, Skellam tail, and the tail of rotated vectors.

A sum modulo 2^b is exact always. Leaving the ring means that a coordinate is read back at the wrong
multiple of 2^b; it spoils that round's model step and never weakens privacy.
"""

import math
from dataclasses import dataclass

from edgefl.privacy import bounds
from edgefl.privacy.rotation import padded_dimension

MAX_WRAP_PROBABILITY = 1e-4
"""Largest accepted chance, per round with noise, that any coordinate of the sum leaves the ring."""

MAX_EXACT_WRAP_PROBABILITY = 2.0**-40
"""The same without noise, where only a rotation leaves anything to chance."""

_BISECTION_STEPS = 100
_NEWTON_STEPS = 8
# sinh and cosh overflow shortly after. The bound holds at every rate, so a cap keeps it true.
_LARGEST_RATE = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SumShape:
    """What decides how large a sum of rounded updates can get, the scale apart.

    Attributes:
        n_cohort: Most devices in the sum.
        n_min: Honest survivors who carry the promised noise.
        noise_multiplier: Noise std on the sum divided by the clip norm.
        weight_bound: Largest weight of a device.
        dimension: Coordinates of the update.
        rotation_block: Coordinates of a rotated block, or 0.
        beta: Chance of a repeated rounding that the norm bound is built for.
    """

    n_cohort: int
    n_min: int
    noise_multiplier: float
    weight_bound: int
    dimension: int
    rotation_block: int
    beta: float

    @property
    def accepted_probability(self) -> float:
        """Largest chance of leaving the ring with which a plan is accepted."""
        return MAX_WRAP_PROBABILITY if self.noise_multiplier > 0 else MAX_EXACT_WRAP_PROBABILITY

    @property
    def summed_weight(self) -> int:
        """Largest sum of all weights."""
        return self.n_cohort * self.weight_bound

    @property
    def padded_dimension(self) -> int:
        """Coordinates that are summed."""
        return padded_dimension(self.dimension, self.rotation_block)

    def noise_share_variance(self, integer_norm: float) -> float:
        """Return the variance of one device's noise share, integer units squared."""
        return bounds.noise_share_variance(self.noise_multiplier, integer_norm, 1.0, self.n_min)


def wrap_probability(shape: SumShape, integer_norm: float, ring_bits: int) -> float:
    """Bound the chance that any coordinate of a round's sum leaves the ring.

    Args:
        shape: Devices, weights, noise and layout.
        integer_norm: Scale times clip norm.
        ring_bits: The ring holds integers modulo 2 to this power, centred on 0.

    Returns:
        A probability over the noise and, in a rotated plan, the public signs: it holds for updates
        that were made without looking at the signs.

    Source: docs/privacy.md, "When the sum leaves the ring".
    """
    worst_case = _worst_case(shape, integer_norm, ring_bits)
    if shape.rotation_block == 0:
        return worst_case
    rounding = shape.summed_weight  # each rounded coordinate is off by less than 1
    distance = 2 ** (ring_bits - 1) - rounding
    block_norm = shape.summed_weight * integer_norm
    spread = block_norm * block_norm / shape.rotation_block
    rotated = rotated_tail(
        distance=distance,
        signs_variance=spread,
        noise_variance=shape.n_cohort * shape.noise_share_variance(integer_norm),
        rotation_block=shape.rotation_block,
        n_blocks=shape.padded_dimension // shape.rotation_block,
    )
    return min(worst_case, rotated)


def exact_ring_bits(shape: SumShape, integer_norm: float) -> int:
    """Return the smallest ring that no sum without noise can leave, whatever the updates.

    The sum of `n` coordinates of at most B in magnitude, each times a weight of at most W, needs
    2^b >= 2 n W B + 1.
    """
    coordinate = math.ceil(integer_norm) + 1
    return (2 * shape.summed_weight * coordinate).bit_length()


def skellam_tail(distance: float, variance: float) -> float:
    """Bound the chance that symmetric Skellam noise is at least `distance` away from 0.

    Source: Chernoff bound from the moment generating function exp(variance (cosh(t) - 1)).
    """
    if distance <= 0:
        return 1.0
    if variance == 0:
        return 0.0
    # sqrt(distance^2 + variance^2) - variance, written so that large variances do not cancel.
    excess = distance * distance / (math.hypot(distance, variance) + variance)
    rate = distance * math.asinh(distance / variance) - excess
    return min(1.0, 2 * math.exp(-rate))


def rotated_tail(
    *,
    distance: float,
    signs_variance: float,
    noise_variance: float,
    rotation_block: int,
    n_blocks: int,
) -> float:
    """Bound the chance that any coordinate of a rotated, noised sum is `distance` away from 0.

    With random signs, a coordinate of a block that holds a share v of the squared norm has a moment
    generating function of at most exp(t^2 v signs_variance / 2); noise multiplies it by
    exp(noise_variance (cosh(t) - 1)). The sum over blocks is convex in the shares, which add up to
    at most 1, so it is largest when one block holds all of the norm. The bound holds at every rate
    t; Newton's method finds the best.

    Args:
        distance: From 0 to the edge of the ring.
        signs_variance: Largest squared norm of the sum divided by the coordinates of a block.
        noise_variance: Of the noise of all devices in one coordinate.
        rotation_block: Coordinates of a block.
        n_blocks: Number of blocks.

    Returns:
        A probability.

    Source: docs/privacy.md, "When the sum leaves the ring".
    """
    if distance <= 0:
        return 1.0
    rate = _best_rate(distance, signs_variance, noise_variance)
    # 2 sinh^2(t / 2) is cosh(t) - 1 without cancellation.
    noise = 2 * noise_variance * math.sinh(rate / 2) ** 2
    full_block = rate * rate * signs_variance / 2
    # The other blocks hold noise alone. Relative to the full block, so that nothing overflows.
    blocks = full_block + math.log1p((n_blocks - 1) * math.exp(-full_block))
    log_chance = math.log(2 * rotation_block) + blocks + noise - rate * distance
    return math.exp(min(0.0, log_chance))


def largest_scale(shape: SumShape, clip_norm: float, ring_bits: int) -> float:
    """Return the largest scale whose wrap probability is accepted; 0 where there is none.

    The search runs over the integer norm (scale times clip norm), in which wrapping gets likelier.
    """

    def fits(integer_norm: float) -> bool:
        if shape.noise_share_variance(integer_norm) > bounds.MAX_SHARE_VARIANCE:
            return False
        return wrap_probability(shape, integer_norm, ring_bits) <= shape.accepted_probability

    low, high = 0.0, bounds.MAX_INTEGER_NORM
    if fits(high):
        return high / clip_norm
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    # One part in a million below the edge: the edge itself may round to the wrong side elsewhere.
    return low * (1 - 1e-6) / clip_norm


def _worst_case(shape: SumShape, integer_norm: float, ring_bits: int) -> float:
    """Let every device put its whole norm on one coordinate."""
    if shape.noise_multiplier == 0:
        return float(exact_ring_bits(shape, integer_norm) > ring_bits)
    dimension = shape.padded_dimension
    l2_squared = bounds.rounded_l2_squared(integer_norm, 1.0, dimension, shape.beta)
    coordinate = bounds.coordinate_bound(integer_norm, 1.0, l2_squared)
    headroom = 2 ** (ring_bits - 1) - shape.summed_weight * coordinate
    total_variance = shape.n_cohort * shape.noise_share_variance(integer_norm)
    return min(1.0, dimension * skellam_tail(headroom, total_variance))


def _best_rate(distance: float, signs_variance: float, noise_variance: float) -> float:
    """Solve signs_variance t + noise_variance sinh(t) = distance, from above."""
    by_signs = distance / signs_variance if signs_variance > 0 else math.inf
    by_noise = math.asinh(distance / noise_variance) if noise_variance > 0 else math.inf
    rate = min(by_signs, by_noise, _LARGEST_RATE)
    if noise_variance == 0 or rate == _LARGEST_RATE:
        return rate
    # Each start alone is at or above the root of a convex, growing function: Newton only descends.
    for _ in range(_NEWTON_STEPS):
        excess = signs_variance * rate + noise_variance * math.sinh(rate) - distance
        rate -= excess / (signs_variance + noise_variance * math.cosh(rate))
    return max(rate, 0.0)
