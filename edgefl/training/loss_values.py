"""The losses in float64 numpy: what the gateway reports, and what graphs are checked against."""

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Evaluation, Targets
from edgefl.training.kinds import Loss

_MOST_VALUES = 65_536
"""Float64 copies of more outputs at a time would take several times their memory."""


def row_losses(loss: Loss, outputs: NDArray[np.float32], targets: Targets) -> NDArray[np.float64]:
    """Return the loss of each row.

    Args:
        loss: Which one.
        outputs: float32 [n, k]: logits or values.
        targets: int64 [n] for CROSS_ENTROPY, else float32 [n, k].

    Returns:
        float64 [n].
    """
    z = outputs.astype(np.float64)
    if loss is Loss.CROSS_ENTROPY:
        shifted = z - z.max(axis=1, keepdims=True)
        log_normalizer = np.log(np.exp(shifted).sum(axis=1))
        entropies: NDArray[np.float64] = log_normalizer - shifted[np.arange(len(z)), targets]
        return entropies
    y = targets.astype(np.float64)
    if loss is Loss.BINARY_CROSS_ENTROPY:
        values = np.maximum(z, 0.0) - z * y + np.log1p(np.exp(-np.abs(z)))
    else:
        error = z - y
        values = error**2
        if loss is Loss.HUBER:
            size = np.abs(error)
            values = np.where(size <= 1.0, 0.5 * values, size - 0.5)
    mean: NDArray[np.float64] = values.mean(axis=1)
    return mean


def measure(loss: Loss, outputs: NDArray[np.float32], targets: Targets) -> Evaluation:
    """Return accuracy, where there is such a thing, and mean loss.

    Args:
        loss: Which one.
        outputs: float32 [n, k].
        targets: int64 [n] for CROSS_ENTROPY, else float32 [n, k].
    """
    accuracy = None
    if loss is Loss.CROSS_ENTROPY:
        accuracy = float((outputs.argmax(axis=1) == targets).mean())
    elif loss is Loss.BINARY_CROSS_ENTROPY:
        accuracy = float(((outputs > 0.0) == (targets > 0.5)).mean())
    losses = np.empty(len(outputs), np.float64)
    at_once = max(1, _MOST_VALUES // max(1, outputs[:1].size))
    for start in range(0, len(outputs), at_once):
        part = slice(start, start + at_once)
        losses[part] = row_losses(loss, outputs[part], targets[part])
    return Evaluation(
        accuracy=accuracy,
        loss=float(losses.mean()),
        examples=len(outputs),
    )
