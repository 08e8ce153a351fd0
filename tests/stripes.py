"""Draws pictures of striped shapes as one of many cameras would see them; needs numpy only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIZE = 32
ANGLES = 5
KINDS = 2 * ANGLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """How a camera differs from others.

    Attributes:
        turn: How far it is tilted, in radians.
        tint: Gain of red, green and blue.
        noise: Standard deviation of its noise.
    """

    turn: float = 0.0
    tint: tuple[float, float, float] = (1.0, 1.0, 1.0)
    noise: float = 0.3


def stripes(
    count: int, camera: Camera, *, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw pictures of ten kinds: stripes of five angles, narrow or wide.

    Returns:
        float32 [count, 3, 32, 32] and int64 [count].
    """
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, KINDS, count)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    angle = (kinds % ANGLES) * np.pi / ANGLES + rng.normal(0, 0.08, count) + camera.turn
    waves = np.where(kinds < ANGLES, 3.0, 5.0) + rng.normal(0, 0.15, count)
    phase = rng.uniform(0, 2 * np.pi, count)
    across = np.cos(angle)[:, None, None] * columns + np.sin(angle)[:, None, None] * rows
    pattern = np.sin(2 * np.pi * waves[:, None, None] * across + phase[:, None, None])
    color = rng.uniform(0.3, 1.0, (count, 3)) * np.array(camera.tint)
    pictures = color[:, :, None, None] * pattern[:, None]
    pictures += rng.normal(0, camera.noise, pictures.shape)
    return pictures.astype(np.float32), kinds
