"""Measures the int8 form of a model, as it would be deployed."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.base import Evaluation, Inputs, TrainingData
from edgefl.training.bundle import Bundle
from edgefl.training.fit_checks import require_input, require_targets
from edgefl.training.int8_export import export_int8_model
from edgefl.training.kinds import Loss
from edgefl.training.loss_values import measure
from edgefl.training.onnx.runtime.session import open_session

_BATCH_ROWS = 256
_SMALLEST_PROBABILITY = 1e-30
_Outputs = NDArray[np.float32]


def evaluate_int8(
    bundle: Bundle,
    flat_params: NDArray[np.float32],
    data: TrainingData,
    local_params: NDArray[np.float32] | None = None,
) -> Evaluation:
    """Export the int8 model and measure accuracy and loss with it.

    Args:
        bundle: A bundle with an int8 template.
        flat_params: float32 [d], finite.
        data: Rows with targets.
        local_params: float32 [local d], finite; None takes the first values.

    Returns:
        Accuracy, where the loss has one, and mean loss.

    Raises:
        TrainingError: E-BUNDLE-PART without an int8 template; parameters that do not fit;
            E-GRAPH-REFUSED.
        DataError: E-DATA-SHAPE, E-DATA-DTYPE, E-DATA-TARGET or E-DATA-LABEL.
    """
    require_targets(data.y, bundle.manifest)
    model = export_int8_model(bundle, flat_params, local_params)
    return measure(bundle.manifest.loss, _predict(bundle, model, data.x), data.y)


def _predict(bundle: Bundle, model: bytes, x: Inputs) -> _Outputs:
    """Return the output of each row before any softmax or sigmoid: float32 [n, ...]."""
    manifest = bundle.manifest
    require_input(x, manifest)
    session = open_session(model, fuses_int8=True)
    output = session.get_outputs()[0].name
    parts = [
        session.run([output], {manifest.input.name: x[start : start + _BATCH_ROWS]})[0]
        for start in range(0, len(x), _BATCH_ROWS)
    ]
    found: _Outputs = np.concatenate(parts).reshape(len(x), *manifest.output.shape)
    if output == manifest.output.name:
        return found
    # The model ends with the softmax or sigmoid that the loss takes off: take it off here too.
    undo = _UNDO.get(manifest.loss)
    if undo is None:
        raise TrainingError(
            "E-BUNDLE-DAMAGED",
            f"an int8 model whose output is '{manifest.output.name}'",
            f"'{output}'",
            "prepare the bundle anew with 'edgefl model prepare'",
        )
    return undo(found)


def _logits_of_softmax(probabilities: _Outputs) -> _Outputs:
    # LogSoftmax gives no positive value; softmax none below 0. Both are logits of themselves.
    if float(probabilities.min()) < 0.0:
        return probabilities
    return np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY)).astype(np.float32)


def _logits_of_sigmoid(probabilities: _Outputs) -> _Outputs:
    wide = np.clip(probabilities.astype(np.float64), _SMALLEST_PROBABILITY, 1.0 - 1e-16)
    return np.log(wide / (1.0 - wide)).astype(np.float32)


_UNDO: dict[Loss, Callable[[_Outputs], _Outputs]] = {
    Loss.CROSS_ENTROPY: _logits_of_softmax,
    Loss.BINARY_CROSS_ENTROPY: _logits_of_sigmoid,
}
