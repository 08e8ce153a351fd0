"""Gradients of operators that give the same values another shape, order or type."""

from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import (
    describe,
    int_attribute,
    ints_attribute,
    text_attribute,
)
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of

_FLOAT_TYPES = frozenset(
    {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.DOUBLE,
        onnx.TensorProto.FLOAT16,
        onnx.TensorProto.BFLOAT16,
    }
)

_TRAINING_MODE = 2


@gradient_of("Identity", "Dropout")
def identity(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Pass the gradient on. Dropout has its inference meaning here: it drops nothing.

    Raises:
        TrainingError: E-MODEL-OP-FORM for a Dropout in training mode, which would drop values.
    """
    del wanted
    mode = node.input[_TRAINING_MODE] if len(node.input) > _TRAINING_MODE else ""
    if mode:
        training = graph.constant_value(mode)
        if training is None or training.any():
            raise TrainingError(
                "E-MODEL-OP-FORM",
                "Dropout in inference mode",
                f"training mode at {describe(node)}",
                "export the model in evaluation mode",
            )
    return [dy, *[None] * (len(node.input) - 1)]


@gradient_of("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Give the gradient the shape of the input, read at run time where it is not known before."""
    gradients: Gradients = [None] * len(node.input)
    if wanted[0]:
        shape = graph.known_shape(node.input[0])
        gradients[0] = (
            graph.emit("Reshape", dy, graph.emit("Shape", node.input[0]))
            if shape is None or shape.count(None) > 1
            else graph.reshape(dy, shape)
        )
    return gradients


@gradient_of("Transpose")
def transpose(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Move the axes back.

    Raises:
        TrainingError: E-MODEL-SHAPE for an order that is none, which onnx lets pass.
    """
    del wanted
    rank = len(graph.shape_of(node.input[0], node))
    order = ints_attribute(node, "perm") or list(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise TrainingError(
            "E-MODEL-SHAPE",
            f"an order of the axes 0 to {rank - 1}",
            f"{order} at {describe(node)}",
            "export the model again",
        )
    inverse = [order.index(axis) for axis in range(rank)]
    return [graph.emit("Transpose", dy, perm=inverse)]


@gradient_of("Expand")
def expand(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Sum over the axes along which the input was repeated."""
    if not wanted[0]:
        return [None, None]
    repeated = graph.shape_of(node.output[0], node)
    return [graph.sum_to_shape(dy, repeated, graph.shape_of(node.input[0], node)), None]


@gradient_of("Tile")
def tile(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Set copies of an axis apart and sum over them.

    Raises:
        TrainingError: E-MODEL-OP-FORM when it is unknown how often a batch is repeated.
    """
    if not wanted[0]:
        return [None, None]
    shape = graph.shape_of(node.input[0], node)
    apart: list[int | None] = []
    copy_axes: list[int] = []
    for size, copies in zip(shape, _copies(graph, node, shape), strict=True):
        if copies != 1:
            copy_axes.append(len(apart))
            apart.append(copies)
        apart.append(size)
    if not copy_axes:
        return [dy, None]
    return [graph.reduce_sum(graph.reshape(dy, tuple(apart)), copy_axes), None]


def _copies(graph: GraphEmitter, node: onnx.NodeProto, shape: Shape) -> list[int | None]:
    """Return how often each axis is repeated; None for as often as the batch has examples."""
    repeats = graph.constant_value(node.input[1])
    if repeats is not None:
        return [int(count) for count in repeats]
    copies: list[int | None] = []
    for size, repeated in zip(shape, graph.shape_of(node.output[0], node), strict=True):
        if size is None or (repeated is None and size != 1):
            raise TrainingError(
                "E-MODEL-OP-FORM",
                "constant repeats",
                f"computed ones at {describe(node)}",
                "export the model with fixed repeats",
            )
        copies.append(None if repeated is None else repeated // max(size, 1))
    return copies


@gradient_of("SpaceToDepth")
def space_to_depth(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Move the channels back into their block."""
    del wanted
    block = int_attribute(node, "blocksize", 1)
    return [graph.emit("DepthToSpace", dy, blocksize=block)]


@gradient_of("DepthToSpace")
def depth_to_space(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Move each block back into channels, in the order of the attribute `mode`."""
    del wanted
    block = int_attribute(node, "blocksize", 1)
    if text_attribute(node, "mode", "DCR") == "DCR":
        return [graph.emit("SpaceToDepth", dy, blocksize=block)]
    shape = graph.shape_of(node.input[0], node)
    batch, channels, height, width = shape
    kept = None if channels is None else channels // block**2
    apart = graph.reshape(dy, (batch, kept, height, block, width, block))
    gathered = graph.emit("Transpose", apart, perm=[0, 1, 3, 5, 2, 4])
    return [graph.reshape(gathered, shape)]


@gradient_of("Cast")
def cast(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Cast the gradient back to the input's type; nothing flows through whole numbers or flags."""
    del wanted
    source = graph.element_type_of(node.input[0])
    target = int_attribute(node, "to", onnx.TensorProto.FLOAT)
    if source == target:
        return [dy]
    if source not in _FLOAT_TYPES or target not in _FLOAT_TYPES:
        return [None]
    return [graph.emit("Cast", dy, to=source)]
