"""Which cohorts can be protected at all, and what would do where one cannot."""

from edgefl.errors import ConfigError
from edgefl.protocol.reasons import AdversaryClass

MAX_COHORT = 65_535
"""A share's point is 1 + position and has 16 bits."""

MAX_GRINDING_BITS = 64

LEAST_THRESHOLD = 2
"""One share must not open a secret."""

_LEAST_COHORT = 3


def check_counts(cohort: int, corrupt: int, dropped: int, grinding_bits: int) -> None:
    """Check that the counts are counts of a cohort's devices.

    Raises:
        ConfigError: E-SIZES-COHORT, E-SIZES-CORRUPT, E-SIZES-DROPPED, E-SIZES-GRINDING.
    """
    _check_range("E-SIZES-COHORT", "devices in a cohort", cohort, _LEAST_COHORT, MAX_COHORT)
    # One device is hidden among honest ones only if there is another.
    _check_range("E-SIZES-CORRUPT", f"corrupt of {cohort} devices", corrupt, 0, cohort - 2)
    _check_range("E-SIZES-DROPPED", f"dropped of {cohort} devices", dropped, 0, cohort - 2)
    _check_range("E-SIZES-GRINDING", "bits of grinding", grinding_bits, 0, MAX_GRINDING_BITS)


def require_possible(cohort: int, corrupt: int, dropped: int, adversary: AdversaryClass) -> None:
    """Check that the complete graph would do, which asks for the least of all graphs.

    Its degree is cohort - 1, a survivor keeps cohort - 1 - dropped neighbours, and a threshold
    above `corrupt`, or above half of cohort - 1 + corrupt, is within reach if and only if
    corrupt + weight * dropped <= cohort - 2, with weight 1 or 2.

    Raises:
        ConfigError: E-SIZES-IMPOSSIBLE, with counts that would do.
    """
    honest_but_curious = adversary is AdversaryClass.HONEST_BUT_CURIOUS
    # Two shares are needed at least, as if one device were corrupt.
    least_corrupt = LEAST_THRESHOLD - 1 if honest_but_curious else 0
    weight = 1 if honest_but_curious else 2
    room = cohort - 2
    counted = max(corrupt, least_corrupt)
    needed = counted + weight * dropped
    if needed <= room:
        return
    advice = []
    if room - weight * dropped >= least_corrupt:
        advice.append(f"at most {room - weight * dropped} corrupt")
    if room >= counted:
        advice.append(f"at most {(room - counted) // weight} dropped")
    advice.append(f"at least {needed + 2} devices with as many corrupt and dropped")
    times = "" if weight == 1 else f"{weight} x "
    raise ConfigError(
        "E-SIZES-IMPOSSIBLE",
        f"corrupt + {times}dropped of at most {room} in a cohort of {cohort}",
        f"{counted} + {times}{dropped} = {needed}",
        "what would do: " + ", or ".join(advice),
    )


def _check_range(code: str, what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(code, f"{least} to {most} {what}", str(value))
