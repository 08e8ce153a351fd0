"""Gradients of activation functions."""

import math
from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, float_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.elementwise import masked, unbroadcast
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of

# The defaults of the ONNX specification.
_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


@gradient_of("Relu")
def relu(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Let the gradient through where the output is positive; at exactly 0 it is 0."""
    del wanted
    return [masked(graph, dy, _is_positive(graph, node.output[0]))]


@gradient_of("LeakyRelu")
def leaky_relu(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by alpha where x is not positive; at exactly 0 too."""
    del wanted
    alpha = float_attribute(node, "alpha", 0.01)
    flags = _is_positive(graph, node.input[0])
    if 0.0 <= alpha <= 1.0:
        # The greater of flag and alpha, as Where is slow: see `masked`.
        mask = graph.emit("Cast", flags, to=onnx.TensorProto.FLOAT)
        slope = graph.emit("Max", mask, graph.float32(alpha))
    else:
        slope = graph.emit("Where", flags, graph.float32(1.0), graph.float32(alpha))
    return [graph.emit("Mul", dy, slope)]


@gradient_of("PRelu")
def parametric_relu(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by the slope where x is not positive, at exactly 0 too; the slope is trainable.

    x's factor is slope + (1 - slope) flag, the slope's is min(x, 0).
    """
    x, slope = node.input
    gradients: Gradients = [None, None]
    if wanted[0]:
        mask = graph.emit("Cast", _is_positive(graph, x), to=onnx.TensorProto.FLOAT)
        rest = graph.emit("Sub", graph.float32(1.0), slope)
        factor = graph.emit("Add", graph.emit("Mul", mask, rest), slope)
        gradients[0] = graph.emit("Mul", dy, factor)
    if wanted[1]:
        below = graph.emit("Min", x, graph.float32(0.0))
        gradients[1] = unbroadcast(graph, node, graph.emit("Mul", dy, below), 1)
    return gradients


@gradient_of("ThresholdedRelu")
def thresholded_relu(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Let the gradient through where x is above alpha; the jump there has no gradient."""
    del wanted
    threshold = graph.float32(float_attribute(node, "alpha", 1.0))
    return [masked(graph, dy, graph.emit("Greater", node.input[0], threshold))]


@gradient_of("Elu")
def elu(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Scale by 1 where x is positive, by y + alpha elsewhere, at exactly 0 too.

    Raises:
        TrainingError: E-MODEL-OP-FORM when alpha is negative.
    """
    del wanted
    alpha = float_attribute(node, "alpha", 1.0)
    slope = _exponential_slope(graph, node, positive=1.0, negative=alpha, rate=1.0)
    return [graph.emit("Mul", dy, slope)]


@gradient_of("Selu")
def selu(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Scale by gamma where x is positive, by y + gamma alpha elsewhere, at exactly 0 too.

    Raises:
        TrainingError: E-MODEL-OP-FORM when gamma or alpha is negative.
    """
    del wanted
    gamma = float_attribute(node, "gamma", _SELU_GAMMA)
    product = gamma * float_attribute(node, "alpha", _SELU_ALPHA)
    slope = _exponential_slope(graph, node, positive=gamma, negative=product, rate=1.0)
    return [graph.emit("Mul", dy, slope)]


@gradient_of("Celu")
def celu(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Scale by 1 where x is positive, by y / alpha + 1 elsewhere."""
    del wanted
    rate = 1.0 / float_attribute(node, "alpha", 1.0)
    slope = _exponential_slope(graph, node, positive=1.0, negative=1.0, rate=rate)
    return [graph.emit("Mul", dy, slope)]


def _exponential_slope(
    graph: GraphEmitter, node: onnx.NodeProto, *, positive: float, negative: float, rate: float
) -> str:
    """Emit `positive` where x > 0 and rate y + negative elsewhere; y has the sign of x.

    A slope of less than 1e-7 has lost its digits in float32: it comes out as 0.
    """
    if positive < 0 or negative < 0:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "factors of at least 0",
            f"a negative one at {describe(node)}",
            "replace the activation",
        )
    slope = graph.emit("Min", node.output[0], graph.float32(0.0))
    if rate != 1.0:
        slope = graph.emit("Mul", slope, graph.float32(rate))
    slope = graph.emit("Add", slope, graph.float32(negative))
    if positive != negative:
        flags = _is_positive(graph, node.input[0])
        slope = graph.emit("Add", slope, masked(graph, graph.float32(positive - negative), flags))
    return slope


@gradient_of("HardSigmoid")
def hard_sigmoid(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by alpha strictly between the two bends, by 0 elsewhere."""
    del wanted
    y = node.output[0]
    rising = graph.emit("And", _is_positive(graph, y), graph.emit("Less", y, graph.float32(1.0)))
    alpha = graph.float32(float_attribute(node, "alpha", 0.2))
    return [graph.emit("Mul", dy, graph.emit("Where", rising, alpha, graph.float32(0.0)))]


@gradient_of("HardSwish")
def hard_swish(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Differentiate x h(x), h the hard sigmoid of slope 1/6; at the bends h counts as flat."""
    del wanted
    x = node.input[0]
    hard = graph.emit("HardSigmoid", x, alpha=1.0 / 6.0, beta=0.5)
    rising = graph.emit("Less", graph.emit("Abs", x), graph.float32(3.0))
    h_slope = graph.emit("Where", rising, graph.float32(1.0 / 6.0), graph.float32(0.0))
    slope = graph.emit("Add", hard, graph.emit("Mul", x, h_slope))
    return [graph.emit("Mul", dy, slope)]


@gradient_of("Sigmoid")
def sigmoid(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by y (1 - y): 0 where |x| is above 18, as onnxruntime's y is then 0 or 1."""
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


@gradient_of("Softplus")
def softplus(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by the sigmoid of x, which is finite everywhere."""
    del wanted
    return [graph.emit("Mul", dy, graph.emit("Sigmoid", node.input[0]))]


@gradient_of("Softsign")
def softsign(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Divide by (1 + |x|) squared; 1 - |y| would lose all digits where x is large."""
    del wanted
    root = graph.emit("Add", graph.emit("Abs", node.input[0]), graph.float32(1.0))
    return [graph.emit("Div", dy, graph.emit("Mul", root, root))]


@gradient_of("Erf")
def error_function(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by 2 / sqrt(pi) exp(-x^2), with the factor inside the exponent."""
    del wanted
    x = node.input[0]
    log_factor = graph.float32(math.log(2.0 / math.sqrt(math.pi)))
    slope = graph.emit("Exp", graph.emit("Sub", log_factor, graph.emit("Mul", x, x)))
    return [graph.emit("Mul", dy, slope)]


def _is_positive(graph: GraphEmitter, value: str) -> str:
    return graph.emit("Greater", value, graph.float32(0.0))
