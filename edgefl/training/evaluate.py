"""Inference with given parameters: the gateway measures the global model; nothing is trained."""

from collections.abc import Iterable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Evaluation, Inputs, TrainingData
from edgefl.training.bundle import EVAL_ONNX, Bundle, check_flat_params
from edgefl.training.fit_checks import require_input, require_targets
from edgefl.training.loss_values import measure
from edgefl.training.manifest import ParameterSlot
from edgefl.training.onnx.runtime.session import graph_failed, open_session

_MOST_ROWS = 256
_MOST_INPUT_BYTES = 1024 * 1024
"""Values within a net take a multiple of its input's memory; larger batches are no faster."""


class Evaluator:
    """Runs a bundle's eval graph; the session is opened once and serves any parameters."""

    def __init__(self, bundle: Bundle, *, threads: int = 1, optimize: bool = True) -> None:
        """Open the eval graph.

        Args:
            bundle: A verified bundle.
            threads: Threads within an operator.
            optimize: False runs the nodes as written; for tests.

        Raises:
            TrainingError: E-GRAPH-REFUSED, E-TRAIN-THREADS or E-BUNDLE-PART.
        """
        self._manifest = bundle.manifest
        self._initial_local = bundle.initial_local
        self._session = open_session(
            bundle.content(EVAL_ONNX), threads=threads, optimize=optimize, fuses_int8=True
        )

    def predict(
        self,
        flat_params: NDArray[np.float32],
        x: Inputs,
        local_params: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Return the output of each row, before any softmax or sigmoid.

        Args:
            flat_params: float32 [d], finite.
            x: float32 or int64 [n, ...], as the manifest's input.
            local_params: float32 [local d], finite: what stays on a device; None takes the first
                values.

        Returns:
            float32 [n, ...].

        Raises:
            TrainingError: Parameters that do not fit, or E-GRAPH-FAILED.
            DataError: E-DATA-SHAPE or E-DATA-DTYPE.
        """
        manifest = self._manifest
        local = self._initial_local if local_params is None else local_params
        require_input(x, manifest)
        feed: dict[str, Inputs] = {
            **split_params(check_flat_params(flat_params, manifest.dimension), manifest.parameters),
            **split_params(check_flat_params(local, manifest.local_dimension), manifest.local),
        }
        outputs = np.empty((len(x), *manifest.output.shape), np.float32)
        at_once = rows_at_once(x)
        for start in range(0, len(x), at_once):
            feed[manifest.input.name] = x[start : start + at_once]
            rows = outputs[start : start + at_once]
            rows[:] = self._run(feed, rows.shape)
        return outputs

    def _run(self, feed: dict[str, Inputs], shape: tuple[int, ...]) -> NDArray[np.float32]:
        try:
            (found,) = self._session.run([self._manifest.output.name], feed)
        except Exception as error:  # its exception types share no base
            raise graph_failed(EVAL_ONNX, error) from error
        if found.shape != shape or found.dtype != np.float32:
            mismatch = f"{found.dtype} {list(found.shape)} where {list(shape)} was wanted"
            raise graph_failed(EVAL_ONNX, ValueError(mismatch))
        return cast("NDArray[np.float32]", found)

    def evaluate(
        self,
        flat_params: NDArray[np.float32],
        data: TrainingData,
        local_params: NDArray[np.float32] | None = None,
    ) -> Evaluation:
        """Measure accuracy and loss.

        Args:
            flat_params: float32 [d], finite.
            data: Rows with targets.
            local_params: float32 [local d], finite; None takes the first values.

        Returns:
            Accuracy, where the loss has one, and mean loss.

        Raises:
            TrainingError: Parameters that do not fit.
            DataError: E-DATA-SHAPE, E-DATA-DTYPE, E-DATA-TARGET or E-DATA-LABEL.
        """
        require_targets(data.y, self._manifest)
        outputs = self.predict(flat_params, data.x, local_params)
        return measure(self._manifest.loss, outputs, data.y)


def rows_at_once(x: Inputs) -> int:
    """Return how many rows go through a net at a time, so that memory stays small.

    Args:
        x: float32 or int64 [n, ...].
    """
    return max(1, min(_MOST_ROWS, _MOST_INPUT_BYTES // max(1, x[:1].nbytes)))


def split_params(
    flat: NDArray[np.float32], slots: Iterable[ParameterSlot]
) -> dict[str, NDArray[np.float32]]:
    """Cut a flat vector into named tensors.

    Args:
        flat: float32 [d].
        slots: Names, shapes and offsets.

    Returns:
        float32 tensor by parameter name.
    """
    return {
        slot.name: np.ascontiguousarray(flat[slot.offset : slot.offset + slot.size]).reshape(
            slot.shape
        )
        for slot in slots
    }
