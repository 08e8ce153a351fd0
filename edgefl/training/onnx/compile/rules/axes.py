"""What rules over axes share: which axes, never the batch axis, and sizes put back."""

import math
from collections.abc import Sequence

import numpy as np
import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, ints_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape

# Larger constants are made when the model is loaded, to keep the bundle small.
_LARGEST_STORED = 1024


def axes_of(graph: GraphEmitter, node: onnx.NodeProto) -> list[int]:
    """Return the axes of a reduction, from attribute or second input, as written.

    Returns:
        The axes; empty when the node names none.

    Raises:
        TrainingError: E-MODEL-OP-FORM when they are computed.
    """
    if len(node.input) < 2 or not node.input[1]:
        return ints_attribute(node, "axes") or []
    values = graph.constant_value(node.input[1])
    if values is None:
        raise TrainingError(
            "E-MODEL-OP-FORM", "fixed axes", f"computed ones at {describe(node)}", "fix the axes"
        )
    return [int(axis) for axis in values.reshape(-1).tolist()]


def within_example(node: onnx.NodeProto, shape: Shape, axes: Sequence[int]) -> list[int]:
    """Return the axes sorted and counted from the front.

    Raises:
        TrainingError: E-MODEL-OP-FORM when the batch axis is among them: padding rows, whose
            weight is 0, would then change the result, and so would the batch size.
    """
    positive = sorted(axis % len(shape) for axis in axes)
    if any(shape[axis] is None for axis in positive):
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "operators that keep examples apart",
            f"{describe(node)} over the batch axis",
            "use other axes",
        )
    return positive


def restore_axes(graph: GraphEmitter, value: str, shape: Shape, axes: Sequence[int]) -> str:
    """Put dropped axes back with size 1.

    Args:
        graph: Where to emit.
        value: A result of a reduction that dropped its axes.
        shape: The shape before the reduction.
        axes: The dropped axes.
    """
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return graph.reshape(value, kept)


def spread(
    graph: GraphEmitter, dy: str, shape: Shape, axes: Sequence[int], *, factor: float = 1.0
) -> str:
    """Repeat a gradient, of size 1 along the axes, over them and scale it.

    One product with a constant takes half the time of Mul and Expand (onnxruntime 1.32, x86-64).
    """
    sizes = [(size or 1) if axis in axes else 1 for axis, size in enumerate(shape)]
    return graph.emit("Mul", dy, filled(graph, sizes, factor))


def count(shape: Shape, axes: Sequence[int]) -> int:
    """Return the number of values that a reduction over the axes turns into one."""
    return math.prod(shape[axis] or 1 for axis in axes)


def filled(graph: GraphEmitter, sizes: Sequence[int], value: float) -> str:
    """Return a constant of the given sizes, all values equal."""
    if math.prod(sizes) <= _LARGEST_STORED:
        return graph.constant(np.full(sizes, value, np.float32))
    return graph.emit("Expand", graph.float32(value), graph.int64s(sizes))
