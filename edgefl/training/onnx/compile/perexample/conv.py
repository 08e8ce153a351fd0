"""Example norms of convolutions' weights and biases, with groups and depthwise.

The windows of the input that each output sees are laid out as columns; the gradient of a group's
weight for one example is then a matrix product over the output positions.
"""

from collections.abc import Mapping

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample.dense import ParameterNorm
from edgefl.training.onnx.compile.perexample.registry import (
    ExampleGradients,
    Use,
    examples_of,
    sum_of_squares,
    total,
    weighted_sum,
)
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry, read_geometry
from edgefl.training.onnx.compile.rules.conv_weight import input_taps


@examples_of("Conv")
def conv(use: Use) -> ExampleGradients:
    """Weight and bias, over any spatial axes, strides, dilations and groups."""
    use.require_wanted_within(1, 2)
    use.plain_axis(use.node.output[0])
    geometry = read_geometry(use.graph, use.node)
    makers = {1: _weight_norm, 2: _bias_norm}
    norms = {index: makers[index](use, geometry) for index in use.wanted}

    def weighted(factor: str) -> Mapping[int, str]:
        return {index: norm.weighted(factor) for index, norm in norms.items()}

    squared = total(use.graph, [norm.squared for norm in norms.values()])
    return ExampleGradients(squared_norms=squared, weighted=weighted)


def _bias_norm(use: Use, geometry: ConvGeometry) -> ParameterNorm:
    graph = use.graph
    sums = graph.reduce_sum(use.dy, range(2, 2 + geometry.spatial_axes))
    return ParameterNorm(
        squared=sum_of_squares(graph, sums, [1]),
        weighted=lambda factor: weighted_sum(graph, factor, sums, [geometry.output_channels]),
    )


def _weight_norm(use: Use, geometry: ConvGeometry) -> ParameterNorm:
    graph, groups = use.graph, geometry.group
    filters, positions = geometry.group_outputs, geometry.outputs
    window = geometry.group_inputs * geometry.taps
    columns = _columns(graph, use.node.input[0], geometry)
    errors = graph.reshape(use.dy, (None, groups, filters, positions))
    if positions * (window + filters) < window * filters:
        grams = [_gram(graph, side) for side in (columns, errors)]
        squared = graph.reduce_sum(graph.emit("Mul", *grams), [1, 2, 3])
        return ParameterNorm(
            squared=squared, weighted=lambda factor: use.by_ordinary_rule(factor)[1]
        )
    made = graph.emit("MatMul", errors, graph.emit("Transpose", columns, perm=[0, 1, 3, 2]))
    shape = [size or 0 for size in use.shape(use.node.input[1])]
    return ParameterNorm(
        squared=sum_of_squares(graph, made, [1, 2, 3]),
        weighted=lambda factor: weighted_sum(graph, factor, made, shape),
    )


def _gram(graph: GraphEmitter, sides: str) -> str:
    """Inner products of all pairs of positions, [N, groups, positions, positions]."""
    return graph.emit("MatMul", graph.emit("Transpose", sides, perm=[0, 1, 3, 2]), sides)


def _columns(graph: GraphEmitter, x: str, geometry: ConvGeometry) -> str:
    """Emit what each tap of the kernel sees, [N, groups, channels * taps, positions]."""
    column = (None, geometry.input_channels, 1, geometry.outputs)
    taps = [graph.reshape(tap, column) for tap in input_taps(graph, x, geometry)]
    joined = graph.emit("Concat", *taps, axis=2) if len(taps) > 1 else taps[0]
    window = geometry.group_inputs * geometry.taps
    return graph.reshape(joined, (None, geometry.group, window, geometry.outputs))
