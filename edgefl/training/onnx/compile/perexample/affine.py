"""Example norms of parameters that scale or shift values: arithmetic and normalisation."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute
from edgefl.training.onnx.compile.perexample.registry import (
    ExampleGradients,
    Use,
    examples_of,
    sum_of_squares,
    total,
    weighted_sum,
)
from edgefl.training.onnx.compile.rules import find_rule

_SCALE, _SHIFT = 1, 2


@examples_of("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Sum", "Mean", "Max", "Min", "Where")
def arithmetic(use: Use) -> ExampleGradients:
    """Let the ordinary rule take each parameter for one copy per example.

    Summing over the axes that are left then gives the sum over the batch.
    """
    axis = use.plain_axis(use.node.output[0])
    return _from_copies(use, {index: _copies(use, index, axis) for index in use.wanted}, axis)


def _copies(use: Use, index: int, axis: int) -> str:
    """Emit the gradients of one parameter, one per example along the batch axis."""
    graph, node = use.graph, use.node
    rule = find_rule(node)
    rank = len(use.shape(node.output[0]))
    sizes = use.shape(node.input[index])
    aligned = [*[1] * (rank - len(sizes)), *sizes]
    if rule is None or aligned[axis] != 1:
        raise use.refused("a parameter along the batch axis")
    copied = tuple(None if at == axis else size for at, size in enumerate(aligned))
    with graph.assumed_shape(node.input[index], copied):
        found = rule(graph, node, use.dys, [at == index for at in range(len(node.input))])[index]
    if found is None:
        raise use.refused("no gradient")
    return found


def _from_copies(use: Use, copies: Mapping[int, str], axis: int) -> ExampleGradients:
    """Finish from gradients [..., N, ...] whose batch axis is the given one."""
    graph = use.graph
    rank = len(use.shape(use.node.output[0]))
    others = [at for at in range(rank) if at != axis]
    squares = [sum_of_squares(graph, value, others) for value in copies.values()]

    def weighted(factor: str) -> Mapping[int, str]:
        results = {}
        for index, value in copies.items():
            first = graph.emit("Transpose", value, perm=[axis, *others]) if axis else value
            shape = [size or 0 for size in use.shape(use.node.input[index])]
            results[index] = weighted_sum(graph, factor, first, shape)
        return results

    return ExampleGradients(squared_norms=total(graph, squares), weighted=weighted)


def _from_rows(use: Use, rows: Mapping[int, Callable[[], str]]) -> ExampleGradients:
    """Finish from emitters of gradients [N, parameters]."""
    graph = use.graph
    made = {index: rows[index]() for index in use.wanted}
    squares = [sum_of_squares(graph, value, [1]) for value in made.values()]

    def weighted(factor: str) -> Mapping[int, str]:
        return {
            index: weighted_sum(
                graph, factor, value, [size or 0 for size in use.shape(use.node.input[index])]
            )
            for index, value in made.items()
        }

    return ExampleGradients(squared_norms=total(graph, squares), weighted=weighted)


@examples_of("BatchNormalization")
def batch_normalization(use: Use) -> ExampleGradients:
    """Scale and bias of each channel, with fixed statistics.

    The normalised input is (x - mean) / sqrt(variance + epsilon); sums over it follow from the
    sums over x and over 1.
    """
    use.require_wanted_within(_SCALE, _SHIFT)
    graph, node = use.graph, use.node
    if use.plain_axis(node.output[0]) != 0:
        raise use.refused("examples on another axis than the first")
    spatial = list(range(2, len(use.shape(node.input[0]))))
    mean, variance = node.input[3:5]
    dy_sums = graph.reduce_sum(use.dy, spatial) if spatial else use.dy

    def scale() -> str:
        product = graph.emit("Mul", use.dy, node.input[0])
        sums = graph.reduce_sum(product, spatial) if spatial else product
        epsilon = graph.float32(float_attribute(node, "epsilon", 1e-5))
        deviation = graph.emit("Sqrt", graph.emit("Add", variance, epsilon))
        centred = graph.emit("Sub", sums, graph.emit("Mul", dy_sums, mean))
        return graph.emit("Div", centred, deviation)

    return _from_rows(use, {_SCALE: scale, _SHIFT: lambda: dy_sums})


@examples_of("InstanceNormalization")
def instance_normalization(use: Use) -> ExampleGradients:
    """Scale and bias of each channel, with each example's own statistics."""
    use.require_wanted_within(_SCALE, _SHIFT)
    graph, node = use.graph, use.node
    if use.plain_axis(node.output[0]) != 0:
        raise use.refused("examples on another axis than the first")
    shape = use.shape(node.input[0])
    channels, spatial = shape[1] or 0, list(range(2, len(shape)))

    def scale() -> str:
        normalised = graph.emit(
            "InstanceNormalization",
            node.input[0],
            graph.constant(np.ones(channels, np.float32)),
            graph.constant(np.zeros(channels, np.float32)),
            epsilon=float_attribute(node, "epsilon", 1e-5),
        )
        return graph.reduce_sum(graph.emit("Mul", use.dy, normalised), spatial)

    return _from_rows(use, {_SCALE: scale, _SHIFT: lambda: graph.reduce_sum(use.dy, spatial)})


@examples_of("LayerNormalization")
def layer_normalization(use: Use) -> ExampleGradients:
    """Scale and bias of each value of the normalised axes."""
    use.require_wanted_within(_SCALE, _SHIFT)
    graph, node = use.graph, use.node
    shape, batch_axis = use.shape(node.input[0]), use.plain_axis(node.output[0])
    axis = int_attribute(node, "axis", -1) % len(shape)
    sizes = [size or 0 for size in shape[axis:]]
    if use.shape(node.input[_SCALE]) != tuple(sizes):
        raise use.refused("a scale of another shape than the normalised axes")
    repeated = [at for at in range(axis) if at != batch_axis]

    def per_example(value: str) -> str:
        sums = graph.reduce_sum(value, repeated) if repeated else value
        return graph.reshape(sums, (None, math.prod(sizes)))

    def scale() -> str:
        ones = graph.constant(np.ones(sizes, np.float32))
        epsilon = float_attribute(node, "epsilon", 1e-5)
        normalised = graph.emit(
            "LayerNormalization", node.input[0], ones, axis=axis, epsilon=epsilon
        )
        return per_example(graph.emit("Mul", use.dy, normalised))

    return _from_rows(use, {_SCALE: scale, _SHIFT: lambda: per_example(use.dy)})
