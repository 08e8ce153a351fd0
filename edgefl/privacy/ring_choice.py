"""Find ring and rotation for a plan: the fewest bytes that are good, or advice where nothing is."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgefl.errors import ConfigError
from edgefl.privacy.accounting import RDP_ORDERS, epsilon_from_rdp, gaussian_rdp, repeat
from edgefl.privacy.plan_checks import MAX_RING_BITS, MIN_RING_BITS
from edgefl.privacy.rotation import largest_block, useful_blocks

if TYPE_CHECKING:
    from edgefl.privacy.plan import PrivacyPlan

# A ring that is chosen, not given, keeps the rounding this far below the noise (below the cohort's
# summed norm where there is no noise), and epsilon this close to that of unrounded Gaussian noise.
_ROUNDING_SHARE = 0.01
_EPSILON_INFLATION = 1.05

_CHOICES = range(MIN_RING_BITS, MAX_RING_BITS + 1)
_NO_RING_ADVICE = (
    f"no ring up to {MAX_RING_BITS} bits suffices: use a smaller cohort or another noise multiplier"
)

Build = Callable[[int, int], "PrivacyPlan"]
"""Makes a plan for a number of bits and a rotation block, or raises ConfigError."""


def blocks_to_try(dimension: int, *, rotation: bool | None) -> tuple[int, ...]:
    """Return the rotation blocks to choose from.

    Args:
        dimension: Coordinates of the update.
        rotation: False for none, True for the largest block, None for whatever saves bytes.
    """
    if rotation is None:
        return (0, *useful_blocks(dimension))
    return (largest_block(dimension),) if rotation else (0,)


def choose_plan(build: Build, *, ring_bits: int | None, blocks: Sequence[int]) -> "PrivacyPlan":
    """Return the plan with the smallest masked input in which rounding does not matter.

    Where rounding matters in every plan, the one with the finest scale is returned.

    Args:
        build: Makes one plan.
        ring_bits: The ring asked for, or None: the smallest good one is chosen.
        blocks: Rotation blocks to choose from; the first of equals wins.

    Raises:
        ConfigError: As raised by `build` in the ring asked for, with the smallest admissible ring
            as the advice; E-RING-TOO-SMALL where no ring is admissible.
    """
    rings = _CHOICES if ring_bits is None else (ring_bits,)
    plans = [plan for block in blocks if (plan := _first_good(build, rings, block)) is not None]
    if plans:
        return min(plans, key=_rank)
    if ring_bits is None:
        raise ConfigError(
            "E-RING-TOO-SMALL",
            f"a plan that fits a ring of at most {MAX_RING_BITS} bits",
            "none",
            _NO_RING_ADVICE,
        )
    return _build_or_advise(build, ring_bits, blocks)


def rounding_is_negligible(plan: "PrivacyPlan") -> bool:
    """Compare rounding with the noise, or with the cohort's summed norm where there is no noise."""
    rounding_std_per_device = 0.5
    if plan.noise_multiplier == 0:
        rounding_norm = rounding_std_per_device * math.sqrt(plan.n_cohort * plan.padded_dimension)
        return rounding_norm <= _ROUNDING_SHARE * plan.n_cohort * plan.scale * plan.clip_norm
    if rounding_std_per_device > _ROUNDING_SHARE * math.sqrt(plan.noise_share_variance):
        return False
    gaussian = repeat(gaussian_rdp(plan.noise_multiplier), plan.rounds)
    without_rounding = epsilon_from_rdp(RDP_ORDERS, gaussian, plan.delta)
    return plan.epsilon_declared <= _EPSILON_INFLATION * without_rounding


def _rank(plan: "PrivacyPlan") -> tuple[bool, float]:
    if rounding_is_negligible(plan):
        return (False, plan.ring_bits * plan.vector_length)
    return (True, -plan.scale)


def _first_good(build: Build, rings: Sequence[int], block: int) -> "PrivacyPlan | None":
    """Return the plan in the smallest good ring, else in the largest admissible one, else None."""
    admissible = None
    for bits in rings:
        plan = _try_build(build, bits, block)
        if plan is not None and rounding_is_negligible(plan):
            return plan
        admissible = plan or admissible
    return admissible


def _build_or_advise(build: Build, ring_bits: int, blocks: Sequence[int]) -> "PrivacyPlan":
    try:
        return build(ring_bits, blocks[0])
    except ConfigError as error:
        raise ConfigError(
            error.code, error.expected, error.found, _advice(build, blocks)
        ) from error


def _advice(build: Build, blocks: Sequence[int]) -> str:
    for bits in _CHOICES:
        if any(_try_build(build, bits, block) is not None for block in blocks):
            return f"the smallest admissible ring_bits is {bits}, the largest {MAX_RING_BITS}"
    return _NO_RING_ADVICE


def _try_build(build: Build, bits: int, block: int) -> "PrivacyPlan | None":
    try:
        return build(bits, block)
    except ConfigError:
        return None
