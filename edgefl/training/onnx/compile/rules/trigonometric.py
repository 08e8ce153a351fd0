"""Gradients of trigonometric and hyperbolic functions."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Sin")
def sine(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Scale by cos x."""
    del wanted
    return [graph.emit("Mul", dy, graph.emit("Cos", node.input[0]))]


@gradient_of("Cos")
def cosine(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Scale by -sin x."""
    del wanted
    return [graph.emit("Neg", graph.emit("Mul", dy, graph.emit("Sin", node.input[0])))]


@gradient_of("Tan")
def tangent(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by 1 + y squared."""
    del wanted
    return [graph.emit("Mul", dy, _one_plus_square(graph, node.output[0]))]


@gradient_of("Atan")
def arc_tangent(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Divide by 1 + x squared."""
    del wanted
    return [graph.emit("Div", dy, _one_plus_square(graph, node.input[0]))]


@gradient_of("Sinh")
def hyperbolic_sine(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by cosh x."""
    del wanted
    return [graph.emit("Mul", dy, graph.emit("Cosh", node.input[0]))]


@gradient_of("Cosh")
def hyperbolic_cosine(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by sinh x."""
    del wanted
    return [graph.emit("Mul", dy, graph.emit("Sinh", node.input[0]))]


def _one_plus_square(graph: GraphEmitter, value: str) -> str:
    return graph.emit("Add", graph.emit("Mul", value, value), graph.float32(1.0))
