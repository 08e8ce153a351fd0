"""Computes what the frozen front part of a model says of each row, and keeps it while it fits."""

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Inputs
from edgefl.training.bundle import FEATURES_ONNX, Bundle
from edgefl.training.kinds import Provider
from edgefl.training.onnx.runtime.session import give_back_buffers, graph_failed, open_session

_CHUNK_ROWS = 64


class FeatureMaker:
    """Runs a bundle's `features.onnx`.

    Attributes:
        rows_computed: Rows that went through the front part so far.
    """

    def __init__(self, bundle: Bundle, *, threads: int, optimize: bool, provider: Provider) -> None:
        """Open the graph.

        Args:
            bundle: A verified bundle with features.
            threads: Threads within an operator.
            optimize: False runs the nodes as written; for tests.
            provider: Processor.

        Raises:
            TrainingError: E-GRAPH-REFUSED, E-TRAIN-THREADS or E-PROVIDER.
        """
        self._manifest = bundle.manifest
        self._session = open_session(
            bundle.content(FEATURES_ONNX),
            threads=threads,
            optimize=optimize,
            provider=provider,
            keeps_buffers=True,
            fuses_int8=True,
        )
        self._giving_back = give_back_buffers()
        self.rows_computed = 0

    @property
    def bytes_per_row(self) -> int:
        """Return the size of all features of one row."""
        return sum(
            spec.size * np.dtype(spec.element_type.value).itemsize
            for spec in self._manifest.features
        )

    def compute(self, x: Inputs, *, gives_back: bool = True) -> list[NDArray[np.generic]]:
        """Return the features of some rows.

        Args:
            x: [m, ...], any m: a training batch, or all rows.
            gives_back: Whether the memory that this took is freed at its end; False where more
                batches follow.

        Returns:
            For each feature of the manifest an array [m, ...] of its type.

        Raises:
            TrainingError: E-GRAPH-FAILED.
        """
        features = self._manifest.features
        found: list[NDArray[np.generic]] = [
            np.empty((len(x), *spec.shape), spec.element_type.value) for spec in features
        ]
        wanted = [spec.name for spec in features]
        for start in range(0, len(x), _CHUNK_ROWS):
            rows = x[start : start + _CHUNK_ROWS]
            is_end = gives_back and start + _CHUNK_ROWS >= len(x)
            try:
                results = self._session.run(
                    wanted,
                    {self._manifest.input.name: rows},
                    self._giving_back if is_end else None,
                )
            except Exception as error:  # its exception types share no base
                raise graph_failed(FEATURES_ONNX, error) from error
            for array, result in zip(found, results, strict=True):
                part = array[start : start + _CHUNK_ROWS]
                if (result.shape, result.dtype) != (part.shape, part.dtype):
                    mismatch = f"{result.dtype} {list(result.shape)} for {list(part.shape)}"
                    raise graph_failed(FEATURES_ONNX, ValueError(mismatch))
                part[:] = result
        self.rows_computed += len(x)
        return found
