"""Gradients of normalisation by fixed statistics and by those of one example."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, float_attribute, int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.axes import filled, within_example
from edgefl.training.onnx.compile.rules.elementwise import unbroadcast
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of

_EPSILON = 1e-5


@gradient_of("BatchNormalization")
def batch_normalization(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Differentiate y = scale (x - mean) / sqrt(variance + epsilon) + bias, statistics fixed.

    Raises:
        TrainingError: E-MODEL-BATCHNORM-TRAINING in training mode, and E-MODEL-BATCHNORM-STATISTICS
            when the running mean or variance would be trained.
    """
    _require_fixed_statistics(node, wanted)
    x, scale, _, mean, variance = node.input
    shape = graph.shape_of(x, node)
    column: Shape = (graph.shape_of(scale, node)[0], *[1] * (len(shape) - 2))
    others = [axis for axis in range(len(shape)) if axis != 1]
    # What depends on fixed tensors alone, onnxruntime computes once, when it loads the graph.
    epsilon = graph.float32(float_attribute(node, "epsilon", _EPSILON))
    rate = graph.emit("Reciprocal", graph.emit("Sqrt", graph.emit("Add", variance, epsilon)))
    gradients: Gradients = [None] * 5
    if wanted[0]:
        factor = graph.emit("Mul", graph.reshape(rate, column), graph.reshape(scale, column))
        gradients[0] = graph.emit("Mul", dy, factor)
    if wanted[1]:
        centred = graph.emit("Sub", x, graph.reshape(mean, column))
        product = graph.reduce_sum(graph.emit("Mul", dy, centred), others)
        gradients[1] = graph.emit("Mul", product, rate)
    if wanted[2]:
        gradients[2] = graph.reduce_sum(dy, others)
    return gradients


def require_inference_mode(node: onnx.NodeProto) -> None:
    """Refuse a BatchNormalization by the statistics of a batch.

    Raises:
        TrainingError: E-MODEL-BATCHNORM-TRAINING.
    """
    if int_attribute(node, "training_mode", 0):
        raise TrainingError(
            "E-MODEL-BATCHNORM-TRAINING",
            "batch normalisation by running statistics",
            f"{describe(node)} in training mode",
            "export the model in eval mode, use GroupNorm, or freeze the statistics",
        )


def _require_fixed_statistics(node: onnx.NodeProto, wanted: Sequence[bool]) -> None:
    require_inference_mode(node)
    if wanted[3] or wanted[4]:
        raise TrainingError(
            "E-MODEL-BATCHNORM-STATISTICS",
            f"a fixed running mean and variance at {describe(node)}",
            f"{node.input[3]!r} or {node.input[4]!r} among the trained tensors",
            "leave them out of the trainable tensors",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardized:
    """A value standardized over some axes, as the gradient of a normalisation needs it.

    Attributes:
        values: (x - mean) / sqrt(variance + epsilon), of the shape of x.
        rate: 1 / sqrt(variance + epsilon), of size 1 along the axes.
        axes: The axes, the last ones of x.
    """

    values: str
    rate: str
    axes: list[int]


def _standardize(
    graph: GraphEmitter, node: onnx.NodeProto, shape: Shape, first_axis: int
) -> Standardized:
    """Emit one LayerNormalization that scales and shifts nothing; it gives values and rate at once.

    It has a bias of zeros since onnxruntime 1.16.3 dies of one without when it optimises a graph.

    Raises:
        TrainingError: E-MODEL-OP-FORM when the batch axis is among the axes.
    """
    axes = within_example(node, shape, range(first_axis, len(shape)))
    sizes = [shape[axis] or 1 for axis in axes]
    values, _, rate = graph.emit_outputs(
        "LayerNormalization",
        [node.input[0], filled(graph, sizes, 1.0), filled(graph, sizes, 0.0)],
        3,
        axis=first_axis,
        epsilon=float_attribute(node, "epsilon", _EPSILON),
    )
    return Standardized(values=values, rate=rate, axes=axes)


@gradient_of("LayerNormalization")
def layer_normalization(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Differentiate y = scale x' + bias, x' the input standardized over the last axes.

    With g = scale dy: dx = rate (g - mean(g) - x' mean(g x')). Where all values are equal, x' is 0
    and the rate is 1 / sqrt(epsilon): finite.

    Source: Ba, Kiros and Hinton, "Layer Normalization", arXiv:1607.06450, supplementary material.

    Raises:
        TrainingError: E-MODEL-OP-FORM over the batch axis.
    """
    shape = graph.shape_of(node.input[0], node)
    first_axis = int_attribute(node, "axis", -1) % len(shape)
    gradients: Gradients = [None] * len(node.input)
    if wanted[0] or wanted[1]:
        standard = _standardize(graph, node, shape, first_axis)
        if wanted[1]:
            gradients[1] = unbroadcast(graph, node, graph.emit("Mul", dy, standard.values), 1)
        if wanted[0]:
            g = graph.emit("Mul", dy, node.input[1])
            product = graph.emit("Mul", g, standard.values)
            gradients[0] = _through(graph, standard, g, product)
    if len(node.input) > 2 and wanted[2]:
        gradients[2] = unbroadcast(graph, node, dy, 2)
    return gradients


def _through(graph: GraphEmitter, standard: Standardized, g: str, product: str) -> str:
    """Return the gradient of x from that of its standardized values, g; product is g x'."""
    mean = graph.emit("ReduceMean", g, axes=standard.axes, keepdims=1)
    projection = graph.emit("ReduceMean", product, axes=standard.axes, keepdims=1)
    along = graph.emit("Mul", standard.values, projection)
    rest = graph.emit("Sub", graph.emit("Sub", g, mean), along)
    return graph.emit("Mul", rest, standard.rate)


@gradient_of("InstanceNormalization")
def instance_normalization(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Differentiate y = scale x' + bias, x' each channel of each example standardized.

    dx as for layer normalisation, but that the scale, one per channel, stays outside the means.

    Source: Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", arXiv:1607.08022 (forward).

    Raises:
        TrainingError: E-MODEL-SHAPE when a spatial size is unknown.
    """
    x, scale, _ = node.input
    shape = graph.shape_of(x, node)
    spatial = list(range(2, len(shape)))
    gradients: Gradients = [None, None, None]
    if wanted[0] or wanted[1]:
        standard = _standardize(graph, node, shape, 2)
        product = graph.emit("Mul", dy, standard.values)
        if wanted[0]:
            column = graph.reshape(scale, (*graph.shape_of(scale, node), *[1] * len(spatial)))
            gradients[0] = graph.emit("Mul", _through(graph, standard, dy, product), column)
        if wanted[1]:
            gradients[1] = graph.reduce_sum(product, [0, *spatial])
    if wanted[2]:
        gradients[2] = graph.reduce_sum(dy, [0, *spatial])
    return gradients


@gradient_of("LpNormalization")
def lp_normalization(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Differentiate y = x / |x| along one axis; where all of x is 0, the gradient is 0.

    With d the derivative of the norm (y for the 2-norm, the sign of x for the 1-norm):
    dx = (dy - d sum(dy y)) / |x|.

    Raises:
        TrainingError: E-MODEL-OP-FORM along the batch axis.
    """
    del wanted
    x, y = node.input[0], node.output[0]
    shape = graph.shape_of(x, node)
    axes = within_example(node, shape, [int_attribute(node, "axis", -1)])
    is_first = int_attribute(node, "p", 2) == 1
    norm = graph.emit("ReduceL1" if is_first else "ReduceL2", x, axes=axes, keepdims=1)
    zero = graph.float32(0.0)
    inverse = graph.emit(
        "Where", graph.emit("Greater", norm, zero), graph.emit("Reciprocal", norm), zero
    )
    weighted = graph.emit("Mul", dy, y)
    along = graph.emit("ReduceSum", weighted, graph.int64s(axes), keepdims=1)
    derivative = graph.emit("Sign", x) if is_first else y
    rest = graph.emit("Sub", dy, graph.emit("Mul", derivative, along))
    return [graph.emit("Mul", rest, inverse)]
