"""Find the ring for a plan: the smallest that is good, or advice when the given one does not do."""

from collections.abc import Callable
from typing import TypeVar

from edgefl.errors import ConfigError
from edgefl.privacy.plan_checks import MAX_RING_BITS, MIN_RING_BITS

Plan = TypeVar("Plan")

_CHOICES = range(MIN_RING_BITS, MAX_RING_BITS + 1)
_NO_RING_ADVICE = (
    f"no ring up to {MAX_RING_BITS} bits suffices: use a smaller cohort or another noise multiplier"
)


def build_in_ring(build: Callable[[int], Plan], ring_bits: int) -> Plan:
    """Build in the given ring, or say which ring would do.

    Args:
        build: Makes a plan for a number of bits or raises ConfigError.
        ring_bits: The number asked for.

    Returns:
        The plan.

    Raises:
        ConfigError: As raised by `build`, with the smallest admissible ring as the advice.
    """
    try:
        return build(ring_bits)
    except ConfigError as error:
        raise ConfigError(error.code, error.expected, error.found, _advice(build)) from error


def choose_ring(build: Callable[[int], Plan], is_good: Callable[[Plan], bool]) -> Plan:
    """Return the plan in the smallest good ring, or in the largest admissible one if none is good.

    Raises:
        ConfigError: E-RING-TOO-SMALL, no ring is admissible.
    """
    admissible = None
    for bits in _CHOICES:
        plan = _try_build(build, bits)
        if plan is not None and is_good(plan):
            return plan
        admissible = plan or admissible
    if admissible is None:
        raise ConfigError(
            "E-RING-TOO-SMALL",
            f"a plan that fits a ring of at most {MAX_RING_BITS} bits",
            "none",
            _NO_RING_ADVICE,
        )
    return admissible


def _advice(build: Callable[[int], Plan]) -> str:
    for bits in _CHOICES:
        if _try_build(build, bits) is not None:
            return f"the smallest admissible ring_bits is {bits}, the largest {MAX_RING_BITS}"
    return _NO_RING_ADVICE


def _try_build(build: Callable[[int], Plan], bits: int) -> Plan | None:
    try:
        return build(bits)
    except ConfigError:
        return None
