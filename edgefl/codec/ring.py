"""The sum of masked inputs, back to floats."""

import numpy as np
from numpy.typing import NDArray

from edgefl import _native
from edgefl.types import RingVector


def decode_sum(
    total: RingVector,
    *,
    scale: float,
    ring_bits: int,
    dimension: int,
    rotation_block: int = 0,
    rotation_seed: bytes = b"",
) -> NDArray[np.float64]:
    """Centre a ring sum around zero, undo rotation and scale, drop the padding.

    Args:
        total: uint32 [d up to whole rotation blocks], each below 2^b.
        scale: Integer units per update unit.
        ring_bits: b.
        dimension: d.
        rotation_block: Coordinates of a rotation block; 0 for no rotation.
        rotation_seed: 32 public bytes where there is a rotation.

    Returns:
        float64 [d], in update units.
    """
    values = np.empty(total.size, dtype=np.float64)
    _native.decode_sum(
        total,
        values,
        scale=scale,
        ring_bits=ring_bits,
        rotation_block=rotation_block,
        rotation_seed=rotation_seed,
    )
    return values[:dimension]
