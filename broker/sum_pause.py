"""How often the sum of a round is written while masked inputs arrive."""

from typing import Final

_SHORTEST_S: Final = 1.0
"""A round of an hour writes a small sum 3,600 times at most, however many devices there are."""
_LONGEST_S: Final = 2.5
"""A device that hears nothing of its upload for three seconds asks."""
_BYTES_PER_S: Final = 1_000_000


def sum_pause_s(size_bytes: int) -> float:
    """Return for how long a masked input may wait for the writing of the sum that holds it.

    A large sum takes its time to write, and wears out a board's flash.

    Args:
        size_bytes: Of the packed sum.
    """
    return min(_LONGEST_S, max(_SHORTEST_S, size_bytes / _BYTES_PER_S))
