"""Gradients of reductions over axes, never the batch axis, and of global pooling."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from edgefl.training.onnx.compile.attributes import int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.axes import (
    axes_of,
    count,
    restore_axes,
    spread,
    within_example,
)
from edgefl.training.onnx.compile.rules.elementwise import masked
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of

# Below the root of the smallest normal float32, a sum of squares has lost its digits.
_SMALLEST_NORM = 1e-19
_LOWEST = -3.4e38


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """One reduction with its results brought to the rank of its input.

    Attributes:
        x: Name of the input.
        shape: Its shape.
        axes: The reduced axes, sorted, counted from the front.
        dy: Gradient of the result, of size 1 along the axes.
        drops_axes: Whether the node's own result lacks the axes.
    """

    x: str
    shape: Shape
    axes: list[int]
    dy: str
    drops_axes: bool

    def kept(self, graph: GraphEmitter, y: str) -> str:
        """Return the node's result with size 1 along the axes."""
        return restore_axes(graph, y, self.shape, self.axes) if self.drops_axes else y


@gradient_of("ReduceSum")
def reduce_sum(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Give each sum's gradient to all its values."""
    del wanted
    nothing = [None] * (len(node.input) - 1)
    if int_attribute(node, "noop_with_empty_axes", 0) and not axes_of(graph, node):
        return [dy, *nothing]
    reduction = _read(graph, node, dy)
    return [spread(graph, reduction.dy, reduction.shape, reduction.axes), *nothing]


@gradient_of("ReduceMean")
def reduce_mean(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Share each mean's gradient equally among its values."""
    del wanted
    return [_mean(graph, _read(graph, node, dy))]


@gradient_of("GlobalAveragePool")
def global_average_pool(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Share each mean's gradient equally among its values."""
    del wanted
    return [_mean(graph, _read_spatial(graph, node, dy))]


@gradient_of("ReduceMax", "ReduceMin")
def reduce_extreme(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Share each extreme's gradient equally among the values that equal it, as PyTorch's amax."""
    del wanted
    return [_extreme(graph, node, _read(graph, node, dy))]


@gradient_of("GlobalMaxPool")
def global_max_pool(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Share each maximum's gradient equally among the values that equal it."""
    del wanted
    return [_extreme(graph, node, _read_spatial(graph, node, dy))]


@gradient_of("ReduceL1")
def reduce_l1(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by the sign of x; at exactly 0 the gradient is 0."""
    del wanted
    reduction = _read(graph, node, dy)
    return [graph.emit("Mul", graph.emit("Sign", reduction.x), reduction.dy)]


@gradient_of("ReduceL2")
def reduce_l2(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by x / y; where all of x is 0, the gradient is 0."""
    del wanted
    reduction = _read(graph, node, dy)
    norm = reduction.kept(graph, node.output[0])
    direction = graph.emit("Div", reduction.x, _at_least(graph, norm, _SMALLEST_NORM))
    return [graph.emit("Mul", direction, reduction.dy)]


@gradient_of("ReduceSumSquare")
def reduce_sum_square(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by 2 x."""
    del wanted
    reduction = _read(graph, node, dy)
    twice = graph.emit("Mul", reduction.dy, graph.float32(2.0))
    return [graph.emit("Mul", reduction.x, twice)]


@gradient_of("ReduceLogSum")
def reduce_log_sum(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Divide by the sum."""
    del wanted
    reduction = _read(graph, node, dy)
    total = graph.emit("Exp", reduction.kept(graph, node.output[0]))
    quotient = graph.emit("Div", reduction.dy, total)
    return [spread(graph, quotient, reduction.shape, reduction.axes)]


@gradient_of("ReduceLogSumExp")
def reduce_log_sum_exp(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by the softmax, exp(x - y); where all of x is -infinity, the gradient is 0."""
    del wanted
    reduction = _read(graph, node, dy)
    y = _at_least(graph, reduction.kept(graph, node.output[0]), _LOWEST)
    softmax = graph.emit("Exp", graph.emit("Sub", reduction.x, y))
    return [graph.emit("Mul", softmax, reduction.dy)]


@gradient_of("ReduceProd")
def reduce_product(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by the product of the other values, which is right where some of them are 0 too."""
    del wanted
    reduction = _read(graph, node, dy)
    x, one = reduction.x, graph.float32(1.0)
    is_zero = graph.emit("Equal", x, graph.float32(0.0))
    zero_flags = graph.emit("Cast", is_zero, to=onnx.TensorProto.FLOAT)
    zeros = graph.emit("ReduceSum", zero_flags, graph.int64s(reduction.axes), keepdims=1)
    others_are_zero = graph.emit("Greater", graph.emit("Sub", zeros, zero_flags), graph.float32(0))
    divisor = graph.emit("Where", is_zero, one, x)
    product = graph.emit("ReduceProd", divisor, axes=reduction.axes, keepdims=1)
    of_others = masked(
        graph, graph.emit("Div", product, divisor), graph.emit("Not", others_are_zero)
    )
    return [graph.emit("Mul", of_others, reduction.dy)]


def _at_least(graph: GraphEmitter, value: str, bound: float) -> str:
    """Return the greater of value and bound."""
    return graph.emit("Max", value, graph.float32(bound))


def _read(graph: GraphEmitter, node: onnx.NodeProto, dy: str) -> Reduction:
    """Return the reduction.

    Raises:
        TrainingError: E-MODEL-OP-FORM for the batch axis or computed axes.
    """
    shape = graph.shape_of(node.input[0], node)
    axes = within_example(node, shape, axes_of(graph, node) or range(len(shape)))
    drops_axes = not int_attribute(node, "keepdims", 1)
    return Reduction(
        x=node.input[0],
        shape=shape,
        axes=axes,
        dy=restore_axes(graph, dy, shape, axes) if drops_axes else dy,
        drops_axes=drops_axes,
    )


def _read_spatial(graph: GraphEmitter, node: onnx.NodeProto, dy: str) -> Reduction:
    shape = graph.shape_of(node.input[0], node)
    axes = within_example(node, shape, range(2, len(shape)))
    return Reduction(x=node.input[0], shape=shape, axes=axes, dy=dy, drops_axes=False)


def _mean(graph: GraphEmitter, reduction: Reduction) -> str:
    share = 1.0 / count(reduction.shape, reduction.axes)
    return spread(graph, reduction.dy, reduction.shape, reduction.axes, factor=share)


def _extreme(graph: GraphEmitter, node: onnx.NodeProto, reduction: Reduction) -> str:
    y = reduction.kept(graph, node.output[0])
    equal = graph.emit("Equal", reduction.x, y)
    flags = graph.emit("Cast", equal, to=onnx.TensorProto.FLOAT)
    winners = graph.emit("ReduceSum", flags, graph.int64s(reduction.axes), keepdims=1)
    return graph.emit("Mul", flags, graph.emit("Div", reduction.dy, winners))
