"""Inference with given parameters: the gateway measures the global model; nothing is trained."""

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import DataError
from edgefl.training.base import Evaluation, TrainingData
from edgefl.training.bundle import Bundle, check_flat_params
from edgefl.training.manifest import Manifest
from edgefl.training.onnx.runtime.session import open_session

_BATCH_ROWS = 256


class Evaluator:
    """Runs a bundle's eval graph; the session is opened once and serves any parameters."""

    def __init__(self, bundle: Bundle, *, threads: int = 1, optimize: bool = True) -> None:
        """Open the eval graph.

        Args:
            bundle: A verified bundle.
            threads: Threads within an operator.
            optimize: False runs the nodes as written; for tests.

        Raises:
            TrainingError: E-GRAPH-REFUSED or E-TRAIN-THREADS.
        """
        self._manifest = bundle.manifest
        self._session = open_session(bundle.eval_graph, threads=threads, optimize=optimize)

    def predict(
        self, flat_params: NDArray[np.float32], x: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the logits of each row.

        Args:
            flat_params: float32 [d], finite.
            x: float32 [n, ...], shaped as the manifest's input.

        Returns:
            float32 [n, classes].

        Raises:
            TrainingError: Parameters that do not fit.
            DataError: E-DATA-SHAPE or E-DATA-DTYPE.
        """
        check_flat_params(flat_params, self._manifest.dimension)
        require_input(x, self._manifest)
        feed = split_params(flat_params, self._manifest)
        logits = np.empty((len(x), self._manifest.classes), np.float32)
        for start in range(0, len(x), _BATCH_ROWS):
            feed[self._manifest.input_name] = x[start : start + _BATCH_ROWS]
            outputs = self._session.run([self._manifest.output_name], feed)
            logits[start : start + _BATCH_ROWS] = outputs[0]
        return logits

    def evaluate(self, flat_params: NDArray[np.float32], data: TrainingData) -> Evaluation:
        """Measure accuracy and loss.

        Args:
            flat_params: float32 [d], finite.
            data: Labelled rows.

        Returns:
            Accuracy and mean cross-entropy.

        Raises:
            TrainingError: Parameters that do not fit.
            DataError: E-DATA-SHAPE, E-DATA-DTYPE or E-DATA-LABEL.
        """
        require_labels(data.y, self._manifest.classes)
        logits = self.predict(flat_params, data.x).astype(np.float64)
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_normalizer = np.log(np.exp(shifted).sum(axis=1))
        losses = log_normalizer - shifted[np.arange(len(logits)), data.y]
        return Evaluation(
            accuracy=float((logits.argmax(axis=1) == data.y).mean()),
            loss=float(losses.mean()),
            examples=data.examples,
        )


def evaluate_params(
    bundle: Bundle, flat_params: NDArray[np.float32], data: TrainingData
) -> Evaluation:
    """Measure one set of parameters once; keep an `Evaluator` for more than one."""
    return Evaluator(bundle).evaluate(flat_params, data)


def split_params(flat: NDArray[np.float32], manifest: Manifest) -> dict[str, NDArray[np.float32]]:
    """Cut the flat vector into named tensors.

    Args:
        flat: float32 [d].
        manifest: Names, shapes and offsets.

    Returns:
        float32 tensor by parameter name.
    """
    return {
        slot.name: np.ascontiguousarray(flat[slot.offset : slot.offset + slot.size]).reshape(
            slot.shape
        )
        for slot in manifest.parameters
    }


def require_input(x: NDArray[np.float32], manifest: Manifest) -> None:
    """Refuse rows that the model cannot take.

    Raises:
        DataError: E-DATA-DTYPE or E-DATA-SHAPE, naming both shapes.
    """
    if x.dtype != np.float32:
        raise DataError("E-DATA-DTYPE", "x of float32", str(x.dtype), "convert x to float32")
    if x.shape[1:] != manifest.input_shape or len(x) == 0:
        raise DataError(
            "E-DATA-SHAPE",
            f"x of shape {['n', *manifest.input_shape]}",
            str(list(x.shape)),
            "prepare the data as the model's input, or the model for this data",
        )


def require_labels(y: NDArray[np.int64], classes: int) -> None:
    """Refuse labels outside 0 to classes - 1.

    The check stands here since onnxruntime's OneHot takes -1 as the last class and gives loss 0
    for a label too large.

    Raises:
        DataError: E-DATA-LABEL with the first bad index.
    """
    bad = (y < 0) | (y >= classes)
    if bad.any():
        first_bad = int(np.argmax(bad))
        raise DataError(
            "E-DATA-LABEL",
            f"labels from 0 to {classes - 1}",
            f"{int(y[first_bad])} at index {first_bad}",
            "check the label column and the model's number of classes",
        )
