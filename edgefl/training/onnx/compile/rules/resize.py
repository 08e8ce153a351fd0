"""Gradient of resizing, which along each axis is a product with a fixed matrix."""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, text_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of

_OPSET = 17
_SCALES, _SIZES = 2, 3


@gradient_of("Resize")
def resize(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Multiply by the transposed matrix of each axis; whole repetitions are summed by averaging.

    The matrices come from onnx's reference evaluator, so every mode and rounding is covered.

    Raises:
        TrainingError: E-MODEL-OP-FORM for computed scales or tf_crop_and_resize.
    """
    gradients: Gradients = [None] * len(node.input)
    if not wanted[0]:
        return gradients
    shape = graph.shape_of(node.input[0], node)
    matrices = _matrices(graph, node, shape)
    repeats = {axis: _repeats(matrix) for axis, matrix in matrices.items()}
    rank = len(shape)
    if matrices and min(matrices) >= 2 and rank <= 5 and all(repeats.values()):
        kernel = [repeats.get(axis) or 1 for axis in range(2, rank)]
        mean = graph.emit("AveragePool", dy, kernel_shape=kernel, strides=kernel)
        gradients[0] = graph.emit("Mul", mean, graph.float32(float(np.prod(kernel))))
        return gradients
    for axis, matrix in matrices.items():
        dy = _multiply(graph, dy, rank, axis, matrix)
    gradients[0] = dy
    return gradients


def _multiply(
    graph: GraphEmitter, dy: str, rank: int, axis: int, matrix: NDArray[np.float64]
) -> str:
    """Multiply one axis by a matrix [input size, output size], from output to input."""
    if axis == rank - 2:
        return graph.emit("MatMul", graph.constant(matrix.astype(np.float32)), dy)
    back = graph.constant(np.ascontiguousarray(matrix.T).astype(np.float32))
    if axis == rank - 1:
        return graph.emit("MatMul", dy, back)
    swap = list(range(rank))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    product = graph.emit("MatMul", graph.emit("Transpose", dy, perm=swap), back)
    return graph.emit("Transpose", product, perm=swap)


def _matrices(
    graph: GraphEmitter, node: onnx.NodeProto, shape: Shape
) -> dict[int, NDArray[np.float64]]:
    """Return the matrix [input size, output size] of each axis that changes, by axis."""
    if text_attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise _refusal(node, "a resize of the whole input", "tf_crop_and_resize")
    scales = graph.constant_value(node.input[_SCALES]) if node.input[_SCALES] else None
    by_size = len(node.input) > _SIZES and bool(node.input[_SIZES])
    if scales is None and not by_size:
        raise _refusal(node, "constant scales", "computed ones")
    resized = graph.shape_of(node.output[0], node)
    matrices: dict[int, NDArray[np.float64]] = {}
    for axis, (size, result) in enumerate(zip(shape, resized, strict=True)):
        scale = None if by_size or scales is None else float(scales[axis])
        if (size == result) if scale is None else (scale == 1.0):
            continue
        if size is None or result is None:
            raise _refusal(node, "a resize within one example", "the batch axis resized")
        matrices[axis] = _matrix(node, size, result, scale)
    return matrices


def _matrix(
    node: onnx.NodeProto, size: int, result: int, scale: float | None
) -> NDArray[np.float64]:
    """Resize each unit vector of one axis."""
    target = (
        ("", np.array([size, result], np.int64))
        if scale is None
        else (np.array([1.0, scale], np.float32), "")
    )
    names = ["x", "", *("target" if isinstance(value, np.ndarray) else "" for value in target)]
    copy = helper.make_node("Resize", names, ["y"])
    copy.attribute.extend(node.attribute)
    value = next(value for value in target if isinstance(value, np.ndarray))
    element = TensorProto.FLOAT if value.dtype == np.float32 else TensorProto.INT64
    model = helper.make_model(
        helper.make_graph(
            [copy],
            "axis",
            [
                helper.make_tensor_value_info("x", TensorProto.DOUBLE, [size, size]),
                helper.make_tensor_value_info("target", element, [2]),
            ],
            [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)],
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    resized = ReferenceEvaluator(model).run(None, {"x": np.eye(size), "target": value})
    return np.asarray(next(iter(resized)), np.float64)


def _repeats(matrix: NDArray[np.float64]) -> int | None:
    """Return how often each position is repeated, or None if that is not all that happens."""
    size, result = matrix.shape
    times = result // size
    if times < 1 or times * size != result:
        return None
    return times if np.array_equal(matrix, np.repeat(np.eye(size), times, axis=1)) else None


def _refusal(node: onnx.NodeProto, expected: str, found: str) -> TrainingError:
    return TrainingError(
        "E-MODEL-OP-FORM",
        expected,
        f"{found} at {describe(node)}",
        "export the model with fixed sizes, or train only layers after it",
    )
