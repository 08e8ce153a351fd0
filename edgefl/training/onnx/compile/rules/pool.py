"""Gradients of averages over axes."""

from collections.abc import Sequence

import numpy as np
import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, int_attribute, ints_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("GlobalAveragePool")
def global_average_pool(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Share each mean's gradient equally among its samples."""
    del wanted
    rank = len(graph.shape_of(node.input[0], node))
    return [_spread(graph, node, dy, list(range(2, rank)))]


@gradient_of("ReduceMean")
def reduce_mean(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Share each mean's gradient equally among its samples, over the axes of the attribute.

    Raises:
        TrainingError: E-MODEL-OP-FORM when the mean runs over the batch axis.
    """
    del wanted
    shape = graph.shape_of(node.input[0], node)
    axes = sorted(axis % len(shape) for axis in ints_attribute(node, "axes") or range(len(shape)))
    if any(shape[axis] is None for axis in axes):
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "means within one example",
            f"{describe(node)} over the batch axis",
            "average over other axes",
        )
    if not int_attribute(node, "keepdims", 1):
        dy = graph.reshape(dy, tuple(1 if i in axes else size for i, size in enumerate(shape)))
    return [_spread(graph, node, dy, axes)]


def _spread(graph: GraphEmitter, node: onnx.NodeProto, dy: str, axes: list[int]) -> str:
    """Repeat dy, of size 1 along the axes, over them and divide by their number of samples."""
    shape = graph.shape_of(node.input[0], node)
    sizes = [(shape[axis] or 1) if axis in axes else 1 for axis in range(len(shape))]
    weights = np.full(sizes, 1.0 / np.prod(sizes), np.float32)
    return graph.emit("Mul", dy, graph.constant(weights))
