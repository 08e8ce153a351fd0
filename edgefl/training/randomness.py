"""Where the order of rows, and the rounding onto int8 grids, come from; neither needs secrecy.

`numpy.random.Generator` serves as well. On a board it is not loaded: it takes 7 MiB of memory.
"""

import math
import random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Randomness(Protocol):
    """What training draws."""

    def permutation(self, x: int, /) -> NDArray[np.int64]:
        """Return the numbers from 0 to x - 1 in random order: int64 [x]."""
        ...

    def random(self, size: tuple[int, ...], dtype: type[np.float32], /) -> NDArray[np.float32]:
        """Return numbers from 0 to below 1: float32 of a shape."""
        ...


class SmallRandomness:
    """A `Randomness` of Python's own generator.

    Args:
        seed: None takes one from the operating system.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Seed it."""
        self._random = random.Random(seed)  # noqa: S311 - no secret hangs on it

    def permutation(self, x: int, /) -> NDArray[np.int64]:
        """Return the numbers from 0 to x - 1 in random order: int64 [x]."""
        order = list(range(x))
        self._random.shuffle(order)
        return np.array(order, np.int64)

    def random(
        self, size: tuple[int, ...], dtype: type[np.float32] = np.float32, /
    ) -> NDArray[np.float32]:
        """Return multiples of 2^-24 from 0 to below 1: float32 of a shape."""
        drawn = np.frombuffer(self._random.randbytes(4 * math.prod(size)), np.uint32)
        return ((drawn >> 8).astype(dtype) * dtype(2.0**-24)).reshape(size)
