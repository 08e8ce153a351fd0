"""Float update to noisy integers in the ring, and the sum back to floats.

Order: clip, scale, conditional stochastic rounding, integer noise, reduce modulo 2^b.

Source: Kairouz, Liu and Steinke 2021, algorithm 1.
"""

import numpy as np

from edgefl._native import Seed, add_skellam_noise, quantize, reduce_to_ring
from edgefl.types import RingVector, Update


def encode_update(
    clipped: Update,
    *,
    scale: float,
    l2_squared_bound: float,
    noise_variance: float,
    ring_bits: int,
    rounding_seed: Seed,
    noise_seed: Seed,
) -> RingVector:
    """Round a clipped update to integers, add a share of the noise, reduce modulo 2^b.

    Args:
        clipped: float32 [d], norm at most the clip norm.
        scale: Integer units per update unit.
        l2_squared_bound: Bound on the squared norm of the rounded vector, in integer units.
        noise_variance: Variance of this device's Skellam share, in integer units; 0 adds nothing.
        ring_bits: b, 8 to 32.
        rounding_seed: Fresh randomness for the rounding; never used again.
        noise_seed: Fresh randomness for the noise; never used again.

    Returns:
        uint32 [d], each below 2^b.
    """
    integers = np.empty(clipped.size, dtype=np.int64)
    quantize(clipped, integers, scale, l2_squared_bound, rounding_seed)
    add_skellam_noise(integers, noise_variance, noise_seed)
    values = np.empty(clipped.size, dtype=np.uint32)
    reduce_to_ring(integers, values, ring_bits)
    return values


def decode_sum(
    total: RingVector, *, scale: float, ring_bits: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Centre a ring sum around zero and undo the scale.

    Args:
        total: uint32 [d], each below 2^b.
        scale: Integer units per update unit.
        ring_bits: b.

    Returns:
        float64 [d], in update units.
    """
    centred = total.astype(np.int64)
    centred[centred >= 1 << (ring_bits - 1)] -= 1 << ring_bits
    return centred.astype(np.float64) / scale
