"""Gradients of matrix products."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Gemm")
def gemm(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Differentiate Y = alpha A' B' + beta C, where ' is an optional transposition."""
    a, b = node.input[:2]
    a_is_transposed, b_is_transposed = (
        int_attribute(node, "transA", 0),
        int_attribute(node, "transB", 0),
    )
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
    """Differentiate a product of two operands with at least two axes each."""
    a, b = node.input
    a_shape, b_shape = graph.shape_of(a, node), graph.shape_of(b, node)
    y_shape = graph.shape_of(node.output[0], node)
    gradients: Gradients = [None, None]
    if wanted[0]:
        product = graph.emit("MatMul", dy, _swap_last_axes(graph, b, len(b_shape)))
        product_shape = (*y_shape[:-1], a_shape[-1])
        gradients[0] = graph.sum_to_shape(product, product_shape, a_shape)
    if wanted[1] and len(b_shape) == 2:
        # One large product over all leading axes: a sum over per-row products would be slower.
        rows = graph.reshape(a, (None, a_shape[-1]))
        gradients[1] = graph.emit("Gemm", rows, graph.reshape(dy, (None, b_shape[-1])), transA=1)
    elif wanted[1]:
        product = graph.emit("MatMul", _swap_last_axes(graph, a, len(a_shape)), dy)
        product_shape = (*y_shape[:-2], a_shape[-1], b_shape[-1])
        gradients[1] = graph.sum_to_shape(product, product_shape, b_shape)
    return gradients


def _swap_last_axes(graph: GraphEmitter, value: str, rank: int) -> str:
    return graph.emit("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
