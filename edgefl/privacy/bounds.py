"""Bounds of a device's integer vector, and the variance of its noise share."""

import math

MAX_SHARE_VARIANCE = 2.0**37
"""Largest variance that the noise sampler draws (`edgefl._native.add_skellam_noise`)."""

ROUNDING_FAILURE = math.exp(-0.5)
"""Beta: largest chance that one stochastic rounding exceeds the L2 bound and is drawn again."""

MAX_INTEGER_NORM = float(2**22)
"""Largest scale times clip norm: a float32 update carries 24 bits, more would resolve nothing."""


def rounded_l2_squared(scale: float, clip_norm: float, dimension: int, beta: float) -> float:
    """Bound the squared L2 norm of a clipped update after conditional stochastic rounding.

    Args:
        scale: Integer units per update unit, above 0.
        clip_norm: L2 bound of the update.
        dimension: Number of coordinates that are rounded, padding included.
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
