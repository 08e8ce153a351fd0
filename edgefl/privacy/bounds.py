"""Bounds of a device's integer vector, of its noise share, and of the sum in the ring."""

import math

MAX_WRAP_PROBABILITY = 1e-4
"""Largest accepted chance, per round, that any coordinate of the sum leaves the ring."""

MAX_SHARE_VARIANCE = 2.0**37
"""Largest variance that the noise sampler draws (`edgefl._native.add_skellam_noise`)."""

ROUNDING_FAILURE = math.exp(-0.5)
"""Beta: largest chance that one stochastic rounding exceeds the L2 bound and is drawn again."""

MAX_INTEGER_NORM = float(2**22)
"""Largest scale times clip norm: a float32 update carries 24 bits, more would resolve nothing."""

_BISECTION_STEPS = 100


def rounded_l2_squared(scale: float, clip_norm: float, dimension: int, beta: float) -> float:
    """Bound the squared L2 norm of a clipped update after conditional stochastic rounding.

    Args:
        scale: Integer units per update unit, above 0.
        clip_norm: L2 bound of the update.
        dimension: Number of coordinates.
        beta: Chance of a repeated draw that the bound is built for; 0: rounding is never repeated.

    Returns:
        The squared norm in integer units.

    Source: Kairouz, Liu, Steinke 2021 (arXiv:2102.06387), theorem 1.
    """
    norm = scale * clip_norm
    always = (norm + math.sqrt(dimension)) ** 2
    if beta == 0:
        return always
    spread = math.sqrt(2 * math.log(1 / beta))
    usually = norm**2 + dimension / 4 + spread * (norm + math.sqrt(dimension) / 2)
    return min(always, usually)


def rounded_l1(l2_squared: float, dimension: int) -> float:
    """Bound the L1 norm of an integer vector by its L2 bound; a nonzero entry is at least 1."""
    l2 = math.sqrt(l2_squared)
    return l2 * min(math.sqrt(dimension), l2)


def coordinate_bound(scale: float, clip_norm: float, l2_squared: float) -> float:
    """Bound one coordinate of a device's integer vector when it may carry the whole norm."""
    return min(scale * clip_norm + 1, math.sqrt(l2_squared))


def noise_share_variance(
    noise_multiplier: float, scale: float, clip_norm: float, n_min: int
) -> float:
    """Return the variance of one device's noise share, integer units squared.

    The shares of the `n_min` honest survivors that are sure to exist add up to the promised noise.
    """
    std = noise_multiplier * scale * clip_norm
    # A product, as `**` raises on overflow where infinity is the useful answer.
    return std * std / n_min


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


def wrap_probability(
    ring_bits: int, n_cohort: int, coordinate: float, total_variance: float, dimension: int
) -> float:
    """Bound the chance that any coordinate of the sum leaves the ring in one round.

    Args:
        ring_bits: The ring holds integers modulo 2 to this power, centred on 0.
        n_cohort: Most devices in the sum.
        coordinate: Largest magnitude of one coordinate of one device before noise.
        total_variance: Variance of the noise of all `n_cohort` devices in one coordinate.
        dimension: Number of coordinates (union bound).

    Returns:
        A probability. Leaving the ring spoils the sum; it does not weaken privacy.
    """
    headroom = 2 ** (ring_bits - 1) - n_cohort * coordinate
    return min(1.0, dimension * skellam_tail(headroom, total_variance))


def largest_scale(
    *,
    ring_bits: int,
    n_cohort: int,
    n_min: int,
    clip_norm: float,
    noise_multiplier: float,
    dimension: int,
    beta: float,
) -> float:
    """Return the largest scale whose wrap probability is accepted; 0 where there is none.

    The search runs over the integer norm (scale times clip norm), in which wrapping gets likelier.
    """

    def fits(norm: float) -> bool:
        scale = norm / clip_norm
        l2_squared = rounded_l2_squared(scale, clip_norm, dimension, beta)
        share = noise_share_variance(noise_multiplier, scale, clip_norm, n_min)
        if share > MAX_SHARE_VARIANCE:
            return False
        bound = coordinate_bound(scale, clip_norm, l2_squared)
        chance = wrap_probability(ring_bits, n_cohort, bound, n_cohort * share, dimension)
        return chance <= MAX_WRAP_PROBABILITY

    low, high = 0.0, MAX_INTEGER_NORM
    if fits(high):
        return high / clip_norm
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    # One part in a million below the edge: the edge itself may round to the wrong side elsewhere.
    return low * (1 - 1e-6) / clip_norm
