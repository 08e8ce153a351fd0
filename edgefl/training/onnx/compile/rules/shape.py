"""Gradients of operators that move values without changing them."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.attributes import ints_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Identity", "Dropout")
def identity(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Pass the gradient on. Dropout has its inference meaning here: it drops nothing."""
    del graph, wanted
    return [dy, *[None] * (len(node.input) - 1)]


@gradient_of("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Give the gradient the shape of the input."""
    del wanted
    restored = graph.reshape(dy, graph.shape_of(node.input[0], node))
    return [restored, *[None] * (len(node.input) - 1)]


@gradient_of("Transpose")
def transpose(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Move the axes back."""
    del wanted
    rank = len(graph.shape_of(node.input[0], node))
    order = ints_attribute(node, "perm") or list(reversed(range(rank)))
    inverse = [order.index(axis) for axis in range(rank)]
    return [graph.emit("Transpose", dy, perm=inverse)]
