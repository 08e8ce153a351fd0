"""What a model takes, and whether examples fit it."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from edgefl.errors import DataError
from edgefl.training.base import Inputs, Targets, TrainingData
from edgefl.training.kinds import ElementType
from edgefl.training.manifest import Manifest

UNKNOWN_LABEL: Final = -1
"""Stands for the label of a row or example that has none, where none is needed."""
_ADVICE = "prepare the data as the model's input, or the model for this data"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSchema:
    """What one example must be; taken from a bundle.

    Attributes:
        input_shape: Shape of one example, without the batch axis.
        takes_tokens: Whether examples are int64 rather than float32.
        classes: Number of classes; labels are 0 to classes - 1. None where targets are values.
        values: Number of target values of each example. None where targets are labels.
    """

    input_shape: tuple[int, ...]
    takes_tokens: bool = False
    classes: int | None = None
    values: int | None = None

    def require(self, data: TrainingData, name: str) -> TrainingData:
        """Return the data if they fit.

        Args:
            data: The examples.
            name: How their source is called in messages.

        Raises:
            DataError: E-DATA-SHAPE, E-DATA-DTYPE or E-DATA-LABEL.
        """
        for misfit in self.misfits(data.x, data.y, name):
            raise misfit
        return data

    def misfits(self, x: Inputs, y: Targets, name: str) -> list[DataError]:
        """Return every reason why examples do not fit, the first one first.

        Args:
            x: float32 or int64 [n, ...].
            y: int64 [n] or float32 [n, k].
            name: How their source is called in messages.
        """
        misfit = self._targets(y, name)
        return [*self.input_misfits(x, name), *([] if misfit is None else [misfit])]

    def input_misfits(self, x: Inputs, name: str) -> list[DataError]:
        """Return every reason why examples do not fit the model's input, the first one first.

        Args:
            x: float32 or int64 [n, ...].
            name: How their source is called in messages.
        """
        found = [self._shape(x, name), self._element_type(x, name)]
        return [misfit for misfit in found if misfit is not None]

    def takes_targets_like(self, y: Targets) -> bool:
        """Tell whether targets are of the model's kind, whatever their values.

        Args:
            y: int64 [n] or float32 [n, k].
        """
        if self.values is None:
            return y.dtype == np.int64 and y.ndim == 1
        return y.dtype == np.float32 and y.ndim == 2 and y.shape[1] == self.values

    def unknown_targets(self, rows: int) -> Targets:
        """Return targets of the model's kind that say that nothing is known.

        Args:
            rows: For how many examples.
        """
        if self.values is None:
            return np.full(rows, UNKNOWN_LABEL, np.int64)
        return np.full((rows, self.values), np.nan, np.float32)

    def _shape(self, x: Inputs, name: str) -> DataError | None:
        if x.shape[1:] == self.input_shape:
            return None
        return DataError(
            "E-DATA-SHAPE",
            f"examples of shape {list(self.input_shape)}",
            f"{list(x.shape[1:])} in {name}",
            _ADVICE,
        )

    def _element_type(self, x: Inputs, name: str) -> DataError | None:
        wanted = np.dtype(np.int64 if self.takes_tokens else np.float32)
        if x.dtype == wanted:
            return None
        return DataError("E-DATA-DTYPE", f"examples of {wanted}", f"{x.dtype} in {name}", _ADVICE)

    def _targets(self, y: Targets, name: str) -> DataError | None:
        if self.values is not None:
            return self._values(y, self.values, name)
        if y.dtype != np.int64:
            return DataError(
                "E-DATA-DTYPE", "a label for each example", f"values in {name}", _ADVICE
            )
        return None if self.classes is None else self._labels(y, self.classes, name)

    def _values(self, y: Targets, values: int, name: str) -> DataError | None:
        if self.takes_targets_like(y):
            return None
        found = "labels" if y.ndim == 1 else f"{y.shape[1]}"
        return DataError(
            "E-DATA-SHAPE",
            f"{values} target values for each example",
            f"{found} in {name}",
            _ADVICE,
        )

    def _labels(self, y: Targets, classes: int, name: str) -> DataError | None:
        bad = (y < 0) | (y >= classes)
        if not bad.any():
            return None
        first_bad = int(np.argmax(bad))
        return DataError(
            "E-DATA-LABEL",
            f"labels from 0 to {classes - 1}",
            f"{int(y[first_bad])} at index {first_bad} in {name}",
            "check the labels and the model's number of classes",
        )


def schema_of(manifest: Manifest) -> DataSchema:
    """Return what a bundle's model takes."""
    takes_labels = manifest.loss.takes_labels
    return DataSchema(
        input_shape=manifest.input.shape,
        takes_tokens=manifest.input.element_type is ElementType.INT64,
        classes=manifest.classes if takes_labels else None,
        values=None if takes_labels else manifest.classes,
    )
