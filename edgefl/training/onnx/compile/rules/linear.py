"""Gradients of matrix products."""

from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, float_attribute, int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Gemm")
def gemm(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Differentiate Y = alpha A' B' + beta C, where ' is an optional transposition.

    Raises:
        TrainingError: E-MODEL-OP-FORM when the product sums over the batch.
    """
    a, b = node.input[:2]
    a_is_transposed, b_is_transposed = (
        int_attribute(node, "transA", 0),
        int_attribute(node, "transB", 0),
    )
    _refuse_sum_over_batch(node, graph.shape_of(a, node)[0 if a_is_transposed else 1])
    alpha = float_attribute(node, "alpha", 1.0)
    gradients: Gradients = [None] * len(node.input)
    if wanted[0]:
        gradients[0] = (
            graph.emit("Gemm", b, dy, transA=b_is_transposed, transB=1, alpha=alpha)
            if a_is_transposed
            else graph.emit("Gemm", dy, b, transB=1 - b_is_transposed, alpha=alpha)
        )
    if wanted[1]:
        gradients[1] = (
            graph.emit("Gemm", dy, a, transA=1, transB=a_is_transposed, alpha=alpha)
            if b_is_transposed
            else graph.emit("Gemm", a, dy, transA=1 - a_is_transposed, alpha=alpha)
        )
    if len(node.input) > 2 and wanted[2]:
        gradients[2] = _gemm_bias(graph, node, dy)
    return gradients


def _gemm_bias(graph: GraphEmitter, node: onnx.NodeProto, dy: str) -> str:
    bias = graph.sum_to_shape(
        dy, graph.shape_of(node.output[0], node), graph.shape_of(node.input[2], node)
    )
    beta = float_attribute(node, "beta", 1.0)
    return bias if beta == 1.0 else graph.emit("Mul", bias, graph.float32(beta))


@gradient_of("MatMul")
def matmul(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Differentiate a product with numpy's meaning of leading axes and of operands of one axis.

    Raises:
        TrainingError: E-MODEL-OP-FORM when the product sums over the batch.
    """
    a, b = node.input
    a_shape, b_shape = graph.shape_of(a, node), graph.shape_of(b, node)
    _refuse_sum_over_batch(node, a_shape[-1])
    y_shape = graph.shape_of(node.output[0], node)
    # An operand of one axis is a matrix of one row (first) or one column (second) for a while.
    a_matrix, b_matrix = a_shape, b_shape
    if len(b_shape) == 1:
        b_matrix, y_shape = (*b_shape, 1), (*y_shape, 1)
    if len(a_shape) == 1:
        a_matrix, y_shape = (1, *a_shape), (*y_shape[:-1], 1, y_shape[-1])
    if 1 in {len(a_shape), len(b_shape)}:
        dy = graph.reshape(dy, y_shape)
    a = a if a_matrix == a_shape else graph.reshape(a, a_matrix)
    b = b if b_matrix == b_shape else graph.reshape(b, b_matrix)
    gradients: Gradients = [None, None]
    if wanted[0]:
        da = _first_gradient(graph, dy, y_shape, a_matrix, b, b_matrix)
        gradients[0] = da if a_matrix == a_shape else graph.reshape(da, a_shape)
    if wanted[1]:
        db = _second_gradient(graph, dy, y_shape, a, a_matrix, b_matrix)
        gradients[1] = db if b_matrix == b_shape else graph.reshape(db, b_shape)
    return gradients


def _first_gradient(
    graph: GraphEmitter, dy: str, y_shape: Shape, a_shape: Shape, b: str, b_shape: Shape
) -> str:
    if len(y_shape) == len(b_shape) == 2:
        return graph.emit("Gemm", dy, b, transB=1)
    product = graph.emit("MatMul", dy, _swap_last_axes(graph, b, len(b_shape)))
    return graph.sum_to_shape(product, (*y_shape[:-1], a_shape[-1]), a_shape)


def _second_gradient(
    graph: GraphEmitter, dy: str, y_shape: Shape, a: str, a_shape: Shape, b_shape: Shape
) -> str:
    if len(a_shape) == len(b_shape) == 2:
        return graph.emit("Gemm", a, dy, transA=1)
    if len(b_shape) == 2 and b_shape[-1] is not None:
        # One large product over all leading axes: a sum over per-row products would be slower.
        rows = graph.reshape(a, (None, a_shape[-1]))
        return graph.emit("Gemm", rows, graph.reshape(dy, (None, b_shape[-1])), transA=1)
    product = graph.emit("MatMul", _swap_last_axes(graph, a, len(a_shape)), dy)
    return graph.sum_to_shape(product, (*y_shape[:-2], a_shape[-1], b_shape[-1]), b_shape)


def _swap_last_axes(graph: GraphEmitter, value: str, rank: int) -> str:
    return graph.emit("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def _refuse_sum_over_batch(node: onnx.NodeProto, summed_size: int | None) -> None:
    if summed_size is None:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "products within one example",
            f"{describe(node)} sums over the batch axis",
            "let examples of a batch not depend on each other",
        )
