"""Checks that a rewritten model computes what its source does, by running both."""

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from edgefl.errors import TrainingError

_STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_ROWS = 3
_TOLERANCE = 1e-4
_UNKNOWN_SIZE = 16


def require_same_results(
    source: onnx.ModelProto, model: onnx.ModelProto, baked: int | None
) -> None:
    """Run both models on the same random inputs.

    Models with operators of other domains are not run: they are refused later, by name.

    Args:
        source: As the exporter wrote it.
        model: As the compiler will differentiate it.
        baked: The batch size of the source, if it takes no other.

    Raises:
        TrainingError: E-MODEL-CONVERSION, or E-MODEL-BATCH when other batch sizes than the
            exporter's give other results.
    """
    if any(node.domain not in _STANDARD_DOMAINS for node in source.graph.node):
        return
    rows = _ROWS if baked is None else _ROWS * baked
    name = model.graph.input[0].name
    x = _random_input(model, rows)
    parts = np.split(x, 1 if baked is None else _ROWS)
    expected = np.concatenate([_first_output(source, {name: part}) for part in parts])
    try:
        found = _first_output(model, {name: x})
    except TrainingError as error:
        raise _mismatch(baked, error.found) from error
    if expected.shape != found.shape:
        raise _mismatch(baked, f"shape {list(found.shape)} for {list(expected.shape)}")
    largest = float(np.abs(expected).max(initial=1.0))
    difference = float(np.abs(expected - found).max(initial=0.0))
    if not difference <= _TOLERANCE * largest:
        raise _mismatch(baked, f"outputs that differ by {difference:.3g}")


def _mismatch(baked: int | None, found: str) -> TrainingError:
    if baked is not None:
        return TrainingError(
            "E-MODEL-BATCH",
            "a model that treats each row alike at any batch size",
            f"{found} where the batch is not the exported {baked}",
            "export with a dynamic batch axis and no batch size in a Reshape",
        )
    return TrainingError(
        "E-MODEL-CONVERSION",
        "the same outputs from the source model and from its converted form",
        found,
        "export the model with opset 17, in evaluation mode",
    )


def _random_input(model: onnx.ModelProto, rows: int) -> NDArray[np.generic]:
    tensor = model.graph.input[0].type.tensor_type
    sizes = [dim.dim_value or _UNKNOWN_SIZE for dim in tensor.shape.dim[1:]]
    rng = np.random.default_rng(0)
    element_type: int = tensor.elem_type
    if element_type == onnx.TensorProto.FLOAT:
        return rng.standard_normal((rows, *sizes), dtype=np.float32)
    # Tokens: any vocabulary has the first two.
    tokens = rng.integers(0, 2, (rows, *sizes))
    return tokens.astype(np.int32) if element_type == onnx.TensorProto.INT32 else tokens


def _first_output(
    model: onnx.ModelProto, feeds: Mapping[str, NDArray[np.generic]]
) -> NDArray[np.float64]:
    """Run on onnxruntime, or on onnx's own evaluator where that is missing or too old.

    Raises:
        TrainingError: E-MODEL-CONVERSION when neither runs the model.
    """
    output = [model.graph.output[0].name]
    try:
        found = _onnxruntime(model, output, feeds)
    except Exception:  # noqa: BLE001 - an older runtime refuses newer files in many ways
        found = _reference(model, output, feeds)
    return np.asarray(found, np.float64)


def _onnxruntime(
    model: onnx.ModelProto, output: list[str], feeds: Mapping[str, NDArray[np.generic]]
) -> object:
    from edgefl.training.onnx.runtime.session import open_session

    return open_session(model.SerializeToString(), optimize=False).run(output, dict(feeds))[0]


def _reference(
    model: onnx.ModelProto, output: list[str], feeds: Mapping[str, NDArray[np.generic]]
) -> object:
    try:
        return next(iter(ReferenceEvaluator(model).run(output, dict(feeds))))
    except Exception as error:  # its errors have no common type
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(
            "E-MODEL-CONVERSION",
            "a model that onnxruntime or onnx can run",
            first_line[:200],
            "try the model with onnxruntime first",
        ) from error
