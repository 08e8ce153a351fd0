"""Computes what the frozen front part of a model says of each row, with TFLite."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Inputs
from edgefl.training.bundle import FEATURES_TFLITE
from edgefl.training.litert.format.kinds import Builtin
from edgefl.training.litert.format.outline import (
    Entry,
    read_outline,
    require_builtins,
    require_inputs_of_rank,
)
from edgefl.training.litert.names import FEATURES
from edgefl.training.litert.runtime.fitting import (
    batch_rows_of,
    require_entry,
    require_tensors,
    tensors,
)
from edgefl.training.litert.runtime.interpreter import Interpreter, open_interpreter, refusals
from edgefl.training.manifest import Manifest, TensorSpec


class FeatureMaker:
    """A bundle's `features.tflite`, checked against its manifest and opened.

    Attributes:
        rows_computed: Rows that went through the front part so far.
    """

    def __init__(self, content: bytes, manifest: Manifest, *, threads: int) -> None:
        """Check and open the file.

        Args:
            content: The file of a verified bundle.
            manifest: The bundle's manifest.
            threads: Threads within an operator.

        Raises:
            TrainingError: As for the model's file.
            EnvironmentProblem: There is no interpreter that fits.
        """
        outline = read_outline(content, name=FEATURES_TFLITE)
        require_builtins(outline, name=FEATURES_TFLITE)
        require_inputs_of_rank(outline, name=FEATURES_TFLITE)
        entry = require_entry(outline, FEATURES, file_name=FEATURES_TFLITE, subgraph=0)
        self._rows = batch_rows_of(entry, manifest.input.name)
        self._is_stateful = Builtin.VAR_HANDLE in outline.operators
        data = tensors((_of_one_call(manifest.input, entry, self._is_stateful),), self._rows)
        require_tensors(entry.inputs, data, what="inputs of the front part")
        found = tensors(manifest.features, self._rows)
        require_tensors(entry.outputs, found, what="outputs of the front part")
        self._entry = entry
        self._manifest = manifest
        self._shape = entry.inputs[manifest.input.name].shape
        self._content = content
        self._threads = threads
        self._interpreter = self._open()
        self.rows_computed = 0

    @property
    def bytes_per_row(self) -> int:
        """Return the size of all features of one row."""
        return sum(
            int(np.prod(spec.shape)) * np.dtype(spec.element_type.value).itemsize
            for spec in self._manifest.features
        )

    def compute(self, x: Inputs) -> list[NDArray[np.generic]]:
        """Return the features of some rows.

        Args:
            x: [m, ...], any m.

        Returns:
            For each feature of the manifest an array [m, ...] of its type.
        """
        features = self._manifest.features
        found: list[NDArray[np.generic]] = [
            np.empty((len(x), *spec.shape), spec.element_type.value) for spec in features
        ]
        for start in range(0, len(x), self._rows):
            self._run(x[start : start + self._rows])
            filled = len(x[start : start + self._rows])
            for spec, array in zip(features, found, strict=True):
                result = self._interpreter.get_tensor(self._entry.indices[spec.name])
                array[start : start + filled] = result[:filled]
        self.rows_computed += len(x)
        return found

    def _open(self) -> Interpreter:
        interpreter = open_interpreter(self._content, threads=self._threads, name=FEATURES_TFLITE)
        with refusals(FEATURES_TFLITE):
            interpreter.allocate_tensors()
        return interpreter

    def _run(self, rows: Inputs) -> None:
        if self._is_stateful:
            # A new interpreter is the one way to forget all state that works in every release.
            self._interpreter = self._open()
            parts = rows.reshape(-1, *self._shape)
        else:
            parts = np.zeros((1, *self._shape), rows.dtype)
            parts[0, : len(rows)] = rows
        index = self._entry.indices[self._manifest.input.name]
        with refusals(FEATURES_TFLITE):
            for part in parts:
                self._interpreter.set_tensor(index, part)
                self._interpreter.invoke()


def _of_one_call(spec: TensorSpec, entry: Entry, is_stateful: bool) -> TensorSpec:
    """Return what one call takes of an example: a stateful front part takes it piece by piece."""
    shape = entry.inputs[spec.name].shape
    if not is_stateful or shape[0] != 1 or len(shape) < 2 or not spec.shape:
        return spec
    if spec.shape[0] % max(shape[1], 1):
        return spec
    return replace(spec, shape=(shape[1], *spec.shape[1:]))
