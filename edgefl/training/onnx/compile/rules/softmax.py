"""Gradients of softmax and its logarithm along one axis."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.attributes import int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.axes import within_example
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Softmax")
def softmax(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by y after taking off the mean of dy under y: dx = y (dy - sum(y dy)).

    Raises:
        TrainingError: E-MODEL-OP-FORM along the batch axis.
    """
    del wanted
    y = node.output[0]
    mean = _sum(graph, node, graph.emit("Mul", dy, y))
    return [graph.emit("Mul", y, graph.emit("Sub", dy, mean))]


@gradient_of("LogSoftmax")
def log_softmax(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Take off the sum times the softmax: dx = dy - exp(y) sum(dy).

    Raises:
        TrainingError: E-MODEL-OP-FORM along the batch axis.
    """
    del wanted
    probabilities = graph.emit("Exp", node.output[0])
    product = graph.emit("Mul", probabilities, _sum(graph, node, dy))
    return [graph.emit("Sub", dy, product)]


def _sum(graph: GraphEmitter, node: onnx.NodeProto, value: str) -> str:
    """Sum along the node's axis and keep it with size 1."""
    shape = graph.shape_of(node.input[0], node)
    axes = within_example(node, shape, [int_attribute(node, "axis", -1)])
    return graph.emit("ReduceSum", value, graph.int64s(axes), keepdims=1)
