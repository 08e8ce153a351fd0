"""Refuse privacy numbers with which the claim or the sum would not hold."""

import math

from edgefl.errors import ConfigError
from edgefl.privacy import bounds
from edgefl.privacy.clipping import check_clip_norm
from edgefl.privacy.rotation import LARGEST_ROTATION_BLOCK, ROTATION_BLOCKS
from edgefl.privacy.wrap import SumShape, wrap_probability

MIN_RING_BITS = 8
MAX_RING_BITS = 32

MAX_WEIGHT = 2**20
"""Largest weight of a device: times an integer norm of 2^22 it stays far inside 64 bits."""

_MAX_COHORT = 2**16
_MAX_DIMENSION = 2**32
_MAX_ROUNDS = 10**6


def check_choices(
    *,
    clip_norm: float,
    noise_multiplier: float,
    n_cohort: int,
    survivor_floor: int,
    colluders: int,
    dimension: int,
    beta: float,
    delta: float,
    epsilon_budget: float,
    rounds: int,
    weight_bound: int,
) -> None:
    """Check all that is chosen rather than computed.

    Raises:
        ConfigError: See `check_counts`, `check_real_numbers` and `check_weight_bound`.
    """
    check_counts(
        n_cohort=n_cohort,
        survivor_floor=survivor_floor,
        colluders=colluders,
        dimension=dimension,
        rounds=rounds,
    )
    check_real_numbers(
        clip_norm=clip_norm,
        noise_multiplier=noise_multiplier,
        beta=beta,
        delta=delta,
        epsilon_budget=epsilon_budget,
    )
    check_weight_bound(weight_bound=weight_bound, noise_multiplier=noise_multiplier)


def check_counts(
    *, n_cohort: int, survivor_floor: int, colluders: int, dimension: int, rounds: int
) -> None:
    """Check the whole numbers of a plan.

    Raises:
        ConfigError: E-COHORT, E-SURVIVOR-FLOOR, E-COLLUDERS, E-DIMENSION or E-ROUNDS.
    """
    _check_whole("E-COHORT", "n_cohort", n_cohort, 2, _MAX_COHORT)
    _check_whole("E-SURVIVOR-FLOOR", "survivor_floor", survivor_floor, 2, n_cohort)
    # Below the floor, so that n_min = survivor_floor - colluders is at least 1.
    _check_whole("E-COLLUDERS", "colluders", colluders, 0, survivor_floor - 1)
    _check_whole("E-DIMENSION", "dimension", dimension, 1, _MAX_DIMENSION)
    _check_whole("E-ROUNDS", "rounds", rounds, 1, _MAX_ROUNDS)


def check_real_numbers(
    *, clip_norm: float, noise_multiplier: float, beta: float, delta: float, epsilon_budget: float
) -> None:
    """Check the real numbers of a plan.

    Raises:
        ConfigError: E-CLIP-NORM, E-NOISE-MULTIPLIER, E-BETA, E-DELTA or E-EPSILON-BUDGET.
    """
    check_clip_norm(clip_norm)
    if not (is_real(noise_multiplier) and 0 <= noise_multiplier < math.inf):
        raise ConfigError(
            "E-NOISE-MULTIPLIER", "a finite noise multiplier of at least 0", repr(noise_multiplier)
        )
    if not (is_real(beta) and 0 <= beta < 1):
        raise ConfigError("E-BETA", "beta from 0 to below 1", repr(beta))
    if not (is_real(delta) and 0 < delta < 1):
        raise ConfigError("E-DELTA", "a delta between 0 and 1", repr(delta), "use 1e-5 or less")
    if not (is_real(epsilon_budget) and epsilon_budget > 0):
        raise ConfigError("E-EPSILON-BUDGET", "an epsilon budget above 0", repr(epsilon_budget))
    if math.isinf(epsilon_budget) and noise_multiplier > 0:
        raise ConfigError(
            "E-EPSILON-BUDGET",
            "a finite epsilon budget with noise",
            "infinity",
            "write down the epsilon at which the task must stop",
        )
    if math.isfinite(epsilon_budget) and noise_multiplier == 0:
        raise ConfigError(
            "E-EPSILON-BUDGET",
            "an infinite budget without noise (every release costs infinity)",
            repr(epsilon_budget),
            "set noise_multiplier above 0, or epsilon_budget to infinity",
        )


def check_ring_bits(ring_bits: int) -> None:
    """Check the size of a ring.

    Raises:
        ConfigError: E-RING-BITS.
    """
    _check_whole("E-RING-BITS", "ring_bits", ring_bits, MIN_RING_BITS, MAX_RING_BITS)


def check_ring(*, ring_bits: int, scale: float, clip_norm: float) -> None:
    """Check ring and scale on their own.

    Raises:
        ConfigError: E-RING-BITS or E-SCALE.
    """
    check_ring_bits(ring_bits)
    if not (is_real(scale) and 1 < scale < math.inf):
        raise ConfigError(
            "E-SCALE", "a quantization scale above 1", repr(scale), "use a larger ring"
        )
    if scale * clip_norm > bounds.MAX_INTEGER_NORM:
        raise ConfigError(
            "E-SCALE",
            f"an integer norm up to {bounds.MAX_INTEGER_NORM:g}",
            f"{scale * clip_norm:g}",
        )


def check_scale_found(scale: float, ring_bits: int) -> None:
    """Refuse a ring in which no scale above 1 holds the sum.

    Raises:
        ConfigError: E-RING-TOO-SMALL.
    """
    if scale <= 1:
        raise ConfigError(
            "E-RING-TOO-SMALL",
            "a ring that holds the sum at more than 1 integer unit per update unit",
            f"at most {scale:.3g} in {ring_bits} bits",
            "use a larger ring",
        )


def check_noise_share(noise_multiplier: float, share_variance: float) -> None:
    """Refuse a noise share that is too coarse in integers, or beyond the sampler.

    Raises:
        ConfigError: E-NOISE-SHARE-TOO-SMALL or E-NOISE-SHARE-TOO-LARGE.
    """
    if share_variance > bounds.MAX_SHARE_VARIANCE:
        raise ConfigError(
            "E-NOISE-SHARE-TOO-LARGE",
            f"a noise share with a variance up to {bounds.MAX_SHARE_VARIANCE:g}",
            f"{share_variance:.3g}",
            "use a smaller ring",
        )
    if noise_multiplier > 0 and share_variance < 1:
        raise ConfigError(
            "E-NOISE-SHARE-TOO-SMALL",
            "a noise share with a variance of at least 1 in integer units",
            f"{share_variance:.3g}",
            "use a larger ring, more noise or a lower survivor floor",
        )


def check_rotation_block(rotation_block: int) -> None:
    """Refuse a block that no Hadamard matrix of ours fits.

    Raises:
        ConfigError: E-ROTATION-BLOCK.
    """
    # `type`, as True would pass for 1 and 64.0 for 64.
    if type(rotation_block) is not int or rotation_block not in {0, *ROTATION_BLOCKS}:
        raise ConfigError(
            "E-ROTATION-BLOCK",
            f"0 for no rotation, or a power of two from 2 to {LARGEST_ROTATION_BLOCK}",
            repr(rotation_block)[:40],
        )


def check_weight_bound(*, weight_bound: int, noise_multiplier: float) -> None:
    """Refuse weights where the privacy claim would not hold.

    Raises:
        ConfigError: E-WEIGHT-BOUND or E-WEIGHT-WITH-NOISE.
    """
    _check_whole("E-WEIGHT-BOUND", "weight_bound", weight_bound, 1, MAX_WEIGHT)
    if weight_bound > 1 and noise_multiplier > 0:
        raise ConfigError(
            "E-WEIGHT-WITH-NOISE",
            "weights of 1 with noise: a weight multiplies what one device can move in the sum, and "
            "the noise is sized for the clip norm alone",
            f"weight_bound {weight_bound} with noise_multiplier {noise_multiplier:g}",
            "leave the weights out, or set noise_multiplier to 0",
        )


def check_sum_fits(shape: SumShape, integer_norm: float, ring_bits: int) -> None:
    """Refuse a ring that the sum, or the sum of the weights, may leave.

    Raises:
        ConfigError: E-RING-TOO-SMALL, with the bits that this scale needs.
    """
    # The tolerance covers the last digit of another machine's logarithm.
    accepted = shape.accepted_probability * (1 + 1e-6)

    def fits(bits: int) -> bool:
        holds_weights = shape.summed_weight < 2**bits
        return holds_weights and wrap_probability(shape, integer_norm, bits) <= accepted

    if fits(ring_bits):
        return
    needed = next((bits for bits in range(ring_bits, MAX_RING_BITS + 1) if fits(bits)), None)
    chance = wrap_probability(shape, integer_norm, ring_bits)
    raise ConfigError(
        "E-RING-TOO-SMALL",
        f"sums that leave the ring with probability at most {shape.accepted_probability:.3g}",
        f"up to {chance:.3g} in {ring_bits} bits",
        f"use ring_bits of {needed} or more, or a smaller scale"
        if needed
        else f"use a smaller scale: no ring up to {MAX_RING_BITS} bits holds the sum",
    )


def is_real(value: object) -> bool:
    """Say whether a value is an int or float other than NaN and bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not math.isnan(value)


def _check_whole(code: str, name: str, value: int, least: int, most: int) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise ConfigError(code, f"{name} from {least} to {most}", repr(value)[:40])
