"""Gradients of rounding to integers and back, by the straight-through estimator."""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of

INTEGER_OPERATORS = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
)
"""They work on integers inside: there is no float value to differentiate, and no rule."""

INTEGER_ADVICE = (
    "quantize the float model with '--quantize static:CALIBRATION.npz' (QuantizeLinear and "
    "DequantizeLinear around float operators), or train only layers after them"
)
_HALF_STEP = 0.5


@gradient_of("QuantizeLinear")
def quantize_linear(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Let the gradient through where the value rounds to an integer of the type without a cut.

    Rounding has a slope of zero almost everywhere; as its stand-in, the slope is that of the cut:
    one inside the representable range, zero outside. Scale and zero point get no gradient.

    Source: Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons",
    arXiv:1308.3432, section 4 (straight-through estimator); Jacob et al., arXiv:1712.05877,
    section 3 (range of simulated quantization).
    """
    gradients: Gradients = [None] * len(node.input)
    if not wanted[0]:
        return gradients
    lowest, highest = _range_of(graph, node)
    x = node.input[0]
    inside = graph.emit("Min", graph.emit("Max", x, lowest), highest)
    gradients[0] = graph.emit("Where", graph.emit("Equal", inside, x), dy, graph.float32(0.0))
    return gradients


@gradient_of("DequantizeLinear")
def dequantize_linear(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Pass the gradient on: it is that of the value that the integer stands for.

    Keeping it in units of the value, not of the integer, is what makes a step on a weight in
    integers as long as the step on the weight itself.

    Source: Lin et al., "On-Device Training Under 256KB Memory", arXiv:2206.15472, section 2.1
    (scaled gradients; here they follow from the choice of units).
    """
    del graph
    return [dy if wanted[0] else None, *[None] * (len(node.input) - 1)]


def _range_of(graph: GraphEmitter, node: onnx.NodeProto) -> tuple[str, str]:
    """Return names of the bounds beyond which values are cut, shaped to broadcast with x."""
    lowest, highest = _integers_of(graph, node)
    shape = _scale_shape(graph, node)
    scale = graph.constant_value(node.input[1])
    if scale is None:
        name = node.input[1] if shape is None else graph.reshape(node.input[1], shape)
        return (
            graph.emit("Mul", name, graph.constant(_shaped(lowest, shape))),
            graph.emit("Mul", name, graph.constant(_shaped(highest, shape))),
        )
    steps = scale.astype(np.float32)
    bounds = (_shaped(np.asarray(bound * steps), shape) for bound in (lowest, highest))
    low, high = (graph.constant(bound) for bound in bounds)
    return low, high


def _integers_of(
    graph: GraphEmitter, node: onnx.NodeProto
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the least and the greatest integer less the zero point, widened by half a step."""
    has_zero_point = len(node.input) > 2 and node.input[2] != ""
    zero_point = graph.constant_value(node.input[2]) if has_zero_point else np.zeros((), np.uint8)
    if zero_point is None:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "a zero point that is a constant",
            f"a computed one in {describe(node)}",
            "quantize the model with static scales, or train only layers after this one",
        )
    kind = np.iinfo(zero_point.dtype.name)
    offset = zero_point.astype(np.float32)
    lowest = np.asarray(kind.min - _HALF_STEP - offset, np.float32)
    return lowest, np.asarray(kind.max + _HALF_STEP - offset, np.float32)


def _scale_shape(graph: GraphEmitter, node: onnx.NodeProto) -> tuple[int, ...] | None:
    """Return the shape in which a scale per channel broadcasts with x; None for one scale."""
    scale_shape = graph.shape_of(node.input[1], node)
    size = scale_shape[0] if scale_shape else None
    if size is None:
        return None
    rank = len(graph.shape_of(node.input[0], node))
    axis = int_attribute(node, "axis", 1) % rank
    return tuple(size if index == axis else 1 for index in range(rank))


def _shaped(values: NDArray[np.float32], shape: tuple[int, ...] | None) -> NDArray[np.float32]:
    if shape is None or values.ndim == 0:
        return values
    return values.reshape(shape)
