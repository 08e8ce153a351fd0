"""Decides which values and weights of a float model become int8."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefl.training.int8_values import ActivationScale, Floats, activation_scale
from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute
from edgefl.training.onnx.compile.quantize.ranges import Ranges

# onnxruntime has int8 kernels for these; around others, integers would only cost conversions.
_CARRIERS = frozenset({"Add", "Mul", "AveragePool", "GlobalAveragePool", "Concat", "LeakyRelu"})
# They move values about, so what comes out has the scale of what goes in.
_MOVERS = frozenset({"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"})
# Their cut is the one that rounding to int8 makes anyway, so values are rounded after them.
_CUTS = frozenset({"Relu", "Clip"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPlan:
    """A weight that a node reads in int8.

    Each of several readers has a plan of its own: onnxruntime 1.32 cannot load a graph in which two
    fused int8 kernels read one tensor and must add exactly.

    Attributes:
        name: Its float32 initializer.
        axis: Axis with one scale per index; None for one scale.
        scale: float32 [] or [channels]; None lets the scale follow the weights.
        zero_point: Integers of [] or [channels]; their dtype is that of the rounded weight. None
            means int8 zeros.
        reader: First output of the node that reads it so.
    """

    name: str
    axis: int | None
    scale: Floats | None = None
    zero_point: NDArray[np.generic] | None = None
    reader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BiasPlan:
    """A bias that a node reads in int32.

    Attributes:
        name: Its float32 initializer.
        weight: Name of the weight whose products it is added to; None if the scale is fixed.
        input_scale: Scale of that weight's other factor; its product with the weight's scale is
            the bias's.
        scale: float32 [] or [channels]: the fixed scale.
        reader: First output of the node that reads it so.
    """

    name: str
    weight: str | None = None
    input_scale: float = 1.0
    scale: Floats | None = None
    reader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingPlan:
    """What is rounded.

    Attributes:
        activations: Scale by name of a value; every node of `rounding_readers` reads it rounded.
        weights: Weights in int8.
        biases: Biases in int32.
    """

    activations: Mapping[str, ActivationScale]
    weights: tuple[WeightPlan, ...]
    biases: tuple[BiasPlan, ...]


def make_plan(
    graph: onnx.GraphProto,
    ranges: Ranges,
    *,
    float_weights: Collection[str] = (),
    float_values: Collection[str] = (),
) -> RoundingPlan:
    """Choose what becomes int8.

    Convolutions and products with a constant matrix run on int8, and so do the operators between
    them that need not leave it. Activations get one scale each, weights one per output channel,
    biases the scale of the products that they are added to.

    Args:
        graph: Normalized float graph.
        ranges: What each activation was seen to hold; a node whose input has none stays float32.
        float_weights: Weights whose nodes stay float32.
        float_values: Values that no operator without weights may round (they change as training
            goes on, so their range is not known).
    """
    ranks = {
        tensor.name: len(tensor.dims)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    }
    layers = [
        node
        for node in graph.node
        if _is_layer(node, ranks) and node.input[0] in ranges and node.input[1] not in float_weights
    ]
    weights = {tensor.name for tensor in graph.initializer}
    carriers = [
        node
        for node in graph.node
        if node.op_type in _CARRIERS
        and all(value in ranges and value not in weights for value in node.input)
        and not any(value in float_values for value in [*node.input, *node.output])
    ]
    scales = _activation_scales(graph, ranges, layers, carriers)
    return RoundingPlan(
        activations=scales,
        weights=_weight_plans(layers),
        biases=_bias_plans(layers, scales, weights),
    )


def channel_axis(node: onnx.NodeProto) -> int:
    """Return the axis of a layer's weight that runs over its output channels."""
    if node.op_type == "Conv":
        return 0
    return 0 if int_attribute(node, "transB", 0) else 1


def _is_layer(node: onnx.NodeProto, ranks: Mapping[str, int]) -> bool:
    if node.op_type not in {"Conv", "Gemm", "MatMul"}:
        return False
    rank = ranks.get(node.input[1], 0)
    if node.op_type == "Conv":
        return rank >= 3 and all(value in ranks for value in node.input[1:] if value)
    return rank == 2 and not int_attribute(node, "transA", 0)


def _activation_scales(
    graph: onnx.GraphProto,
    ranges: Ranges,
    layers: Sequence[onnx.NodeProto],
    carriers: Sequence[onnx.NodeProto],
) -> dict[str, ActivationScale]:
    initializers = {tensor.name for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for value in node.input:
            readers.setdefault(value, []).append(node)
    made = [node for node in [*layers, *carriers] if node.op_type not in {"Gemm", "MatMul"}]
    chosen = {_after_cut(node.output[0], readers) for node in made} - outputs
    chosen.update(node.input[0] for node in layers)
    chosen.update(v for node in carriers for v in node.input if v not in initializers)
    scales: dict[str, ActivationScale] = {}
    for name, node in _in_order(graph):
        if node is not None and node.op_type in _MOVERS and node.input[0] in scales:
            scales[name] = scales[node.input[0]]
        elif name in chosen and name in ranges:
            scales[name] = activation_scale(*ranges[name])
    return scales


def _in_order(graph: onnx.GraphProto) -> list[tuple[str, onnx.NodeProto | None]]:
    inputs: list[tuple[str, onnx.NodeProto | None]] = [(value.name, None) for value in graph.input]
    return inputs + [(node.output[0], node) for node in graph.node]


def _after_cut(value: str, readers: Mapping[str, Sequence[onnx.NodeProto]]) -> str:
    """Return the output of the only reader if that is a cut, else the value itself."""
    nodes = readers.get(value, [])
    return nodes[0].output[0] if len(nodes) == 1 and nodes[0].op_type in _CUTS else value


def _weight_plans(layers: Sequence[onnx.NodeProto]) -> tuple[WeightPlan, ...]:
    return tuple(
        WeightPlan(name=node.input[1], axis=channel_axis(node), reader=node.output[0])
        for node in layers
    )


def _bias_plans(
    layers: Sequence[onnx.NodeProto],
    scales: Mapping[str, ActivationScale],
    initializers: Collection[str],
) -> tuple[BiasPlan, ...]:
    plans: list[BiasPlan] = []
    for node in layers:
        alpha = float_attribute(node, "alpha", 1.0)
        is_plain = float_attribute(node, "beta", 1.0) == 1.0 and alpha > 0.0
        if len(node.input) > 2 and node.input[2] in initializers and is_plain:
            plans.append(
                BiasPlan(
                    name=node.input[2],
                    weight=node.input[1],
                    input_scale=float(scales[node.input[0]].scale) * alpha,
                    reader=node.output[0],
                )
            )
    return tuple(plans)
