"""Gradients of reading by index and of choosing by a mask."""

from collections.abc import Sequence

import numpy as np
import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Gather")
def gather(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Add each row's gradient to the row that was read; a row may be read any number of times.

    Raises:
        TrainingError: E-MODEL-OP-FORM when examples of the batch are picked.
    """
    if not wanted[0]:
        return [None, None]
    data, indices = node.input
    shape = graph.shape_of(data, node)
    axis = int_attribute(node, "axis", 0) % len(shape)
    size = shape[axis]
    if size is None:
        raise _picks_examples(node)
    constant = graph.constant_value(indices)
    if constant is not None and _is_run(constant % size):
        return [_place_run(graph, dy, shape, axis, constant % size), None]
    return [_add_rows(graph, node, dy, shape, axis), None]


def _is_run(indices: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bool:
    """Tell whether the rows read lie one behind the other, each read once."""
    flat = indices.reshape(-1)
    return indices.ndim <= 1 and bool(np.all(np.diff(flat) == 1)) and flat.size > 0


def _place_run(
    graph: GraphEmitter,
    dy: str,
    shape: Shape,
    axis: int,
    indices: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
) -> str:
    """Put the gradient among zeros: cheaper than an addition row by row."""
    flat = indices.reshape(-1)
    size = shape[axis] or 0
    if indices.ndim == 0:
        dy = graph.emit("Unsqueeze", dy, graph.int64s([axis]))
    pads = [0] * (2 * len(shape))
    pads[axis], pads[len(shape) + axis] = int(flat[0]), size - 1 - int(flat[-1])
    return graph.emit("Pad", dy, graph.int64s(pads)) if any(pads) else dy


def _add_rows(graph: GraphEmitter, node: onnx.NodeProto, dy: str, shape: Shape, axis: int) -> str:
    rank = len(shape)
    data, indices = node.input
    index_rank = len(graph.shape_of(node.output[0], node)) - rank + 1
    first = [axis, *range(axis), *range(axis + 1, rank)]
    if axis:
        moved = range(axis, axis + index_rank)
        others = [i for i in range(rank - 1 + index_rank) if i not in moved]
        dy = graph.emit("Transpose", dy, perm=[*moved, *others])
    zeros = _zeros(graph, data, tuple(shape[i] for i in first), first)
    places = graph.emit("Unsqueeze", indices, graph.int64s([-1]))
    summed = graph.emit("ScatterND", zeros, places, dy, reduction="add")
    if not axis:
        return summed
    return graph.emit("Transpose", summed, perm=[first.index(i) for i in range(rank)])


@gradient_of("GatherElements")
def gather_elements(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Add each value's gradient to the value that was read.

    Raises:
        TrainingError: E-MODEL-OP-FORM when examples of the batch are picked.
    """
    if not wanted[0]:
        return [None, None]
    shape = graph.shape_of(node.input[0], node)
    axis = int_attribute(node, "axis", 0) % len(shape)
    if shape[axis] is None:
        raise _picks_examples(node)
    zeros = _zeros(graph, node.input[0], shape, None)
    summed = graph.emit("ScatterElements", zeros, node.input[1], dy, axis=axis, reduction="add")
    return [summed, None]


@gradient_of("GatherND")
def gather_nd(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Add each slice's gradient to the slice that was read.

    Raises:
        TrainingError: E-MODEL-OP-FORM for batch_dims above 0.
    """
    if not wanted[0]:
        return [None, None]
    if int_attribute(node, "batch_dims", 0):
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "GatherND with batch_dims 0",
            describe(node),
            "use GatherElements, or train only layers after it",
        )
    zeros = _zeros(graph, node.input[0], graph.shape_of(node.input[0], node), None)
    return [graph.emit("ScatterND", zeros, node.input[1], dy, reduction="add"), None]


@gradient_of("Where")
def where(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Give each value's gradient to the operand that it was taken from."""
    condition = node.input[0]
    zero = graph.float32(0.0)
    gradients: Gradients = [None, None, None]
    for index, choice in ((1, (dy, zero)), (2, (zero, dy))):
        if wanted[index]:
            gradients[index] = graph.sum_to_shape(
                graph.emit("Where", condition, *choice),
                graph.shape_of(node.output[0], node),
                graph.shape_of(node.input[index], node),
            )
    return gradients


@gradient_of("CumSum")
def cumulative_sum(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Sum up from the other end.

    Raises:
        TrainingError: E-MODEL-OP-FORM for a computed axis or sums over the batch.
    """
    if not wanted[0]:
        return [None, None]
    shape = graph.shape_of(node.input[0], node)
    axis = graph.constant_value(node.input[1])
    if axis is None or shape[int(axis.reshape(-1)[0])] is None:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "a constant axis other than the batch",
            describe(node),
            "sum over other axes",
        )
    summed = graph.emit(
        "CumSum",
        dy,
        node.input[1],
        exclusive=int_attribute(node, "exclusive", 0),
        reverse=1 - int_attribute(node, "reverse", 0),
    )
    return [summed, None]


def _zeros(graph: GraphEmitter, value: str, shape: Shape, order: Sequence[int] | None) -> str:
    """Return zeros of a value's shape, its axes in another order where one is given.

    Args:
        graph: Where to emit.
        value: A forward value.
        shape: Its shape, already in that order.
        order: For each axis of the result the axis of the value, or None for no change.

    Returns:
        A constant, or a value computed at run time where the batch counts.
    """
    if None not in shape:
        return graph.constant(np.zeros([size or 0 for size in shape], np.float32))
    sizes = graph.emit("Shape", value)
    if order is not None:
        sizes = graph.emit("Gather", sizes, graph.int64s(order))
    return graph.emit("Expand", graph.float32(0.0), sizes)


def _picks_examples(node: onnx.NodeProto) -> TrainingError:
    return TrainingError(
        "E-MODEL-OP-FORM",
        "reads within one example",
        f"{describe(node)} along the batch axis",
        "read along other axes",
    )
