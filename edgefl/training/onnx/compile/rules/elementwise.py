"""Gradients of operators that work value by value, with broadcasting."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Add")
def add(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Pass the gradient to both operands."""
    return [_unbroadcast(graph, node, dy, index) if wanted[index] else None for index in (0, 1)]


@gradient_of("Sub")
def subtract(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Pass the gradient to the first operand, negated to the second."""
    return [
        _unbroadcast(graph, node, dy, 0) if wanted[0] else None,
        _unbroadcast(graph, node, graph.emit("Neg", dy), 1) if wanted[1] else None,
    ]


@gradient_of("Mul")
def multiply(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale the gradient by the other operand."""
    gradients: Gradients = [None, None]
    for index, other in ((0, node.input[1]), (1, node.input[0])):
        if wanted[index]:
            gradients[index] = _unbroadcast(graph, node, graph.emit("Mul", dy, other), index)
    return gradients


@gradient_of("Relu")
def relu(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Let the gradient through where the output is positive; at exactly 0 it is 0."""
    del wanted
    return [graph.emit("Mul", dy, graph.emit("Sign", node.output[0]))]


@gradient_of("Sigmoid")
def sigmoid(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by y (1 - y)."""
    del wanted
    y = node.output[0]
    slope = graph.emit("Mul", y, graph.emit("Sub", graph.float32(1.0), y))
    return [graph.emit("Mul", dy, slope)]


@gradient_of("Tanh")
def tanh(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Scale by 1 - y squared."""
    del wanted
    y = node.output[0]
    slope = graph.emit("Sub", graph.float32(1.0), graph.emit("Mul", y, y))
    return [graph.emit("Mul", dy, slope)]


def _unbroadcast(graph: GraphEmitter, node: onnx.NodeProto, gradient: str, index: int) -> str:
    return graph.sum_to_shape(
        gradient, graph.shape_of(node.output[0], node), graph.shape_of(node.input[index], node)
    )
