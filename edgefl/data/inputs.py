"""What a source gives for prediction: examples, and what happens to be known of their targets."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.data.reading import Reading
from edgefl.data.schema import DataSchema
from edgefl.training.base import Inputs, Targets, require_finite


@dataclass(frozen=True, slots=True, kw_only=True)
class InputData:
    """Examples to predict on, oldest first; at least one.

    Attributes:
        x: float32 [n, ...], finite, or int64 [n, ...].
        y: int64 [n] or float32 [n, k]: their targets; it means something only where `has_target`.
        has_target: bool [n]: whether the row's target is known, and one that the model can give.
        spans_s: float64 [n, 2]: start and end of each window, in seconds; None where the source
            knows no times.
        class_names: Names of the classes in their order, or empty where labels are numbers.
        notes: Remarks for a person.
    """

    x: Inputs
    y: Targets
    has_target: NDArray[np.bool_]
    spans_s: NDArray[np.float64] | None = None
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def examples(self) -> int:
        """Return the number of rows, n."""
        return len(self.x)

    def newest(self, most: int) -> "InputData":
        """Return the last rows.

        Args:
            most: How many, at least 1; all of them where there are no more.
        """
        return InputData(
            x=self.x[-most:],
            y=self.y[-most:],
            has_target=self.has_target[-most:],
            spans_s=None if self.spans_s is None else self.spans_s[-most:],
            class_names=self.class_names,
            notes=self.notes,
        )


def input_data(reading: Reading, schema: DataSchema | None, name: str) -> InputData:
    """Return the examples of a reading that needed no targets.

    Args:
        reading: What was read.
        schema: What the model takes; None checks only that the examples are sound.
        name: How the source is called in messages.

    Raises:
        DataError: E-DATA-EMPTY, E-DATA-NOT-FINITE, E-DATA-SHAPE or E-DATA-DTYPE.
    """
    reading.require_any(name)
    require_finite("x", reading.x)
    if schema is not None:
        for misfit in schema.input_misfits(reading.x, name):
            raise misfit
    return InputData(
        x=reading.x,
        y=reading.y,
        has_target=_has_target(reading.y, schema),
        spans_s=reading.spans_s,
        class_names=reading.class_names,
        notes=reading.notes,
    )


def _has_target(y: Targets, schema: DataSchema | None) -> NDArray[np.bool_]:
    if schema is not None and not schema.takes_targets_like(y):
        return np.zeros(len(y), np.bool_)
    if y.dtype != np.int64:
        return np.asarray(np.isfinite(y).all(axis=1))
    most = None if schema is None else schema.classes
    return np.asarray((y >= 0) & (most is None or y < most))
