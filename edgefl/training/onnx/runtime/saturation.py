"""Finds steps that throw weights onto the ends of their int8 grid: divergence that stays finite."""

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.bundle import INT8_SLOTS, Bundle
from edgefl.training.int8_slots import Encoding, Int8Slot, parse_slots
from edgefl.training.int8_values import LARGEST_INT8, along
from edgefl.training.kinds import QuantizationMode

_MOST_NEW_AT_ENDS = 0.1
_NEARLY = np.float32(0.999)


class GridEnds:
    """The largest size that each averaged value may take.

    Weights on a grid are cut at its ends, so a learning rate far too large gives neither infinity
    nor NaN: it drives the weights from one end to the other. Hence their number is watched.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Read the grids.

        Args:
            bundle: A verified bundle; with another mode than GRID nothing is watched.

        Raises:
            TrainingError: E-BUNDLE-DAMAGED.
        """
        self._ends = np.full(bundle.manifest.dimension, np.inf, np.float32)
        if bundle.manifest.quantization.mode is not QuantizationMode.GRID:
            return
        try:
            slots = parse_slots(bundle.content(INT8_SLOTS))
            fixed = {s.tensor: s for s in slots if s.encoding is Encoding.WEIGHT and s.scale}
            for parameter in bundle.manifest.parameters:
                if parameter.name in fixed:
                    ends = _ends_of(fixed[parameter.name], parameter.shape)
                    self._ends[parameter.offset : parameter.offset + parameter.size] = ends
        except ValueError as error:
            raise TrainingError(
                "E-BUNDLE-DAMAGED",
                f"{INT8_SLOTS} that fits the bundle's parameters",
                str(error),
                "prepare the bundle anew with 'edgefl model prepare'",
            ) from error

    def require_room(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        """Refuse a training that left many more weights at the ends than it found there.

        Args:
            before: float32 [d]: received.
            after: float32 [d]: trained.

        Raises:
            TrainingError: E-TRAIN-DIVERGED.
        """
        watched = int(np.isfinite(self._ends).sum())
        if watched == 0:
            return
        limit = self._ends * _NEARLY
        new = int((np.abs(after) >= limit).sum()) - int((np.abs(before) >= limit).sum())
        if new > _MOST_NEW_AT_ENDS * watched:
            raise TrainingError(
                "E-TRAIN-DIVERGED",
                f"at most {_MOST_NEW_AT_ENDS:.0%} of the int8 weights driven to the ends of their "
                "grid",
                f"{new / watched:.0%}",
                "lower the learning rate or bound the gradient's norm; no update is sent",
            )


def _ends_of(slot: Int8Slot, shape: tuple[int, ...]) -> NDArray[np.float32]:
    if slot.shape != shape:
        message = f"a grid for '{slot.tensor}' of shape {slot.shape} instead of {shape}"
        raise ValueError(message)
    axis = None if slot.axis < 0 else slot.axis
    scales = np.asarray(along(np.array(slot.scale, np.float32), axis, len(shape)), np.float32)
    return np.broadcast_to(scales * np.float32(LARGEST_INT8), shape).reshape(-1)
