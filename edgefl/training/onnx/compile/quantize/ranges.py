"""Calibration: the least and the greatest value that each activation takes on given rows."""

from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edgefl.errors import DataError
from edgefl.training.base import Inputs
from edgefl.training.onnx.runtime.session import open_session

Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value by name of a float32 activation."""

_BATCH_ROWS = 64
_BOUNDED: Mapping[str, tuple[float, float]] = {
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}


def measure_ranges(model: onnx.ModelProto, rows: Inputs) -> dict[str, tuple[float, float]]:
    """Run a model on calibration rows.

    The outputs of operators with bounds of their own (Clip, Sigmoid, Tanh, Softmax) get these
    whatever the rows are: training may move values about within them.

    Args:
        model: Normalized model with known types.
        rows: float32 or int64 [n, ...]: what the model's input may look like. They shape what is
            handed to every device, so they must be nobody's private data.

    Returns:
        The range of the input and of each float32 activation.

    Raises:
        DataError: E-CALIBRATION-ROWS when the rows do not fit the model's input, or a value of the
            model is not finite on them.
    """
    _require_rows(model.graph.input[0], rows)
    values = [
        value.name
        for value in [*model.graph.value_info, *model.graph.output]
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    ]
    computed = {output for node in model.graph.node for output in node.output}
    wanted = [name for name in dict.fromkeys(values) if name in computed]
    found = _run(_with_outputs(model, wanted), model.graph.input[0].name, rows, wanted)
    if rows.dtype == np.float32:
        found[model.graph.input[0].name] = (float(rows.min()), float(rows.max()))
    for name, (low, high) in found.items():
        if not (np.isfinite(low) and np.isfinite(high)):
            raise _bad_rows("values of the model that are finite", f"'{name}' from {low} to {high}")
    return found | _bounded_ranges(model.graph)


def _run(
    model: onnx.ModelProto, input_name: str, rows: Inputs, wanted: list[str]
) -> dict[str, tuple[float, float]]:
    session = open_session(model.SerializeToString())
    found: dict[str, tuple[float, float]] = {}
    for start in range(0, len(rows), _BATCH_ROWS):
        outputs = session.run(wanted, {input_name: rows[start : start + _BATCH_ROWS]})
        for name, values in zip(wanted, outputs, strict=True):
            if values.size:
                low, high = found.get(name, (np.inf, -np.inf))
                found[name] = (min(low, float(values.min())), max(high, float(values.max())))
    return found


def _with_outputs(model: onnx.ModelProto, wanted: list[str]) -> onnx.ModelProto:
    observed = onnx.ModelProto()
    observed.CopyFrom(model)
    del observed.graph.output[:]
    observed.graph.output.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in wanted
    )
    return observed


def _bounded_ranges(graph: onnx.GraphProto) -> dict[str, tuple[float, float]]:
    constants = {t.name: t for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    ranges: dict[str, tuple[float, float]] = {}
    for node in graph.node:
        if node.op_type in _BOUNDED:
            ranges[node.output[0]] = _BOUNDED[node.op_type]
        bounds = [constants[name] for name in node.input[1:] if name in constants]
        if node.op_type == "Clip" and len(bounds) == 2:
            low, high = (float(numpy_helper.to_array(bound)) for bound in bounds)
            ranges[node.output[0]] = (low, high)
    return ranges


def _require_rows(model_input: onnx.ValueInfoProto, rows: NDArray[np.generic]) -> None:
    tensor = model_input.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    sizes = [dim.dim_value for dim in tensor.shape.dim[1:]]
    if rows.dtype != dtype or list(rows.shape[1:]) != sizes or len(rows) == 0:
        raise _bad_rows(
            f"{dtype.name} rows of shape [n, {', '.join(map(str, sizes))}]",
            f"{rows.dtype} of shape {list(rows.shape)}",
        )
    if not np.isfinite(rows).all():
        raise _bad_rows("finite rows", "a value that is not finite")


def _bad_rows(expected: str, found: str) -> DataError:
    return DataError(
        "E-CALIBRATION-ROWS",
        f"for calibration, {expected}",
        found,
        "save example inputs as the array x of an npz file; they must be nobody's private data",
    )
