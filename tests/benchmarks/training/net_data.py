"""What the timed nets read and answer, and random data for them; needs numpy only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class NetShapes:
    """Sizes of a net without its batch axis."""

    input_shape: tuple[int, ...]
    classes: int


SHAPES = {
    "mlp": NetShapes(input_shape=(64,), classes=6),
    "cnn1d": NetShapes(input_shape=(9, 128), classes=6),
    # onnxruntime-training turns a BatchNormalization exported for inference into one of batch
    # statistics and so computes something else; without it all sides do the same work.
    "depthwise2d": NetShapes(input_shape=(3, 32, 32), classes=10),
    "depthwise2d-bn": NetShapes(input_shape=(3, 32, 32), classes=10),
}


def data(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return float32 [512, ...] and int64 [512] from a fixed seed."""
    shapes, rng = SHAPES[name], np.random.default_rng(1)
    x = rng.standard_normal((ROWS, *shapes.input_shape), dtype=np.float32)
    return x, rng.integers(0, shapes.classes, ROWS)
