"""Refuse privacy numbers with which the claim or the sum would not hold."""

import math

from edgefl.errors import ConfigError
from edgefl.privacy import bounds
from edgefl.privacy.clipping import check_clip_norm

MIN_RING_BITS = 8
MAX_RING_BITS = 32

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
) -> None:
    """Check all that is chosen rather than computed.

    Raises:
        ConfigError: See `check_counts` and `check_real_numbers`.
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


def check_ring(*, ring_bits: int, scale: float, clip_norm: float) -> None:
    """Check ring and scale on their own.

    Raises:
        ConfigError: E-RING-BITS or E-SCALE.
    """
    _check_whole("E-RING-BITS", "ring_bits", ring_bits, MIN_RING_BITS, MAX_RING_BITS)
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


def check_wrap(wrap_probability: float) -> None:
    """Refuse a ring that the sum may leave.

    Raises:
        ConfigError: E-RING-TOO-SMALL.
    """
    # The tolerance covers the last digit of another machine's logarithm.
    if wrap_probability > bounds.MAX_WRAP_PROBABILITY * (1 + 1e-6):
        raise ConfigError(
            "E-RING-TOO-SMALL",
            f"sums that leave the ring with probability at most {bounds.MAX_WRAP_PROBABILITY:g}",
            f"{wrap_probability:.3g}",
            "use a larger ring",
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
