"""Example norms of matrix products' weights and biases.

The gradient of a weight for one example is left' right, where left and right have one row for each
time that the example meets the weight. With one row its norm is the product of two vector norms;
with several it is either made, or found from the two Gram matrices of the rows, whichever takes
fewer operations. A Gram form loses digits where large rows cancel: the squared norm is off by up to
about 1e-7 times the square of the sum over the rows of |left| |right|.

Source: Goodfellow 2015, arXiv:1510.01799 (one row); Li et al. 2022, arXiv:2110.05679, section 4
(Gram matrices).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample.registry import (
    ExampleGradients,
    Use,
    example_rows,
    examples_of,
    sum_of_squares,
    total,
    weighted_sum,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Vectors of each example.

    Attributes:
        value: [N, rows, columns].
        rows: How many an example has.
        columns: Their length.
    """

    value: str
    rows: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterNorm:
    """Norms of one parameter's gradients.

    Attributes:
        squared: float32 [N].
        weighted: Takes factors [N]; emits the sum over examples of factor times gradient.
    """

    squared: str
    weighted: Callable[[str], str]


def product_norm(graph: GraphEmitter, left: Rows, right: Rows) -> ParameterNorm:
    """Emit the norms of each example's left' right, [left.columns, right.columns]."""
    k, m = left.columns, right.columns
    if left.rows == 1:
        squares = [sum_of_squares(graph, side.value, [1, 2]) for side in (left, right)]
        squared = graph.emit("Mul", *squares)
    elif left.rows * (k + m) < k * m:
        grams = [_gram(graph, side.value) for side in (left, right)]
        squared = graph.reduce_sum(graph.emit("Mul", *grams), [1, 2])
    else:
        transposed = graph.emit("Transpose", left.value, perm=[0, 2, 1])
        made = graph.emit("MatMul", transposed, right.value)
        return ParameterNorm(
            squared=sum_of_squares(graph, made, [1, 2]),
            weighted=lambda factor: weighted_sum(graph, factor, made, (k, m)),
        )
    return ParameterNorm(
        squared=squared, weighted=lambda factor: _product_of_all(graph, left, right, factor)
    )


def _gram(graph: GraphEmitter, rows: str) -> str:
    return graph.emit("MatMul", rows, graph.emit("Transpose", rows, perm=[0, 2, 1]))


def _product_of_all(graph: GraphEmitter, left: Rows, right: Rows, factor: str) -> str:
    """One product over the rows of all examples, those of one side scaled before."""
    smaller, other = (left, right) if left.columns < right.columns else (right, left)
    scaled = graph.emit("Mul", smaller.value, graph.reshape(factor, (None, 1, 1)))
    sides = {id(smaller): scaled, id(other): other.value}
    flat = [graph.reshape(sides[id(side)], (None, side.columns)) for side in (left, right)]
    return graph.emit("Gemm", *flat, transA=1)


@examples_of("MatMul")
def matmul(use: Use) -> ExampleGradients:
    """A weight with two axes as second operand."""
    use.require_wanted_within(1)
    node = use.node
    if len(use.shape(node.input[1])) != 2 or len(use.shape(node.input[0])) < 2:
        raise use.refused("a weight without exactly two axes")
    norm = product_norm(
        use.graph, _rows(use, node.input[0], node.input[0]), _rows(use, use.dy, node.output[0])
    )
    return ExampleGradients(
        squared_norms=norm.squared, weighted=lambda factor: {1: norm.weighted(factor)}
    )


@examples_of("Gemm")
def gemm(use: Use) -> ExampleGradients:
    """Weight and bias of a layer whose first operand holds the examples."""
    use.require_wanted_within(1, 2)
    if int_attribute(use.node, "transA", 0):
        raise use.refused("transA")
    if use.place(use.node.output[0]).is_plain and 1 in use.wanted and _has_row_bias(use):
        return _one_row_gemm(use)
    norms = {index: _GEMM_NORMS[index](use) for index in use.wanted}

    def weighted(factor: str) -> Mapping[int, str]:
        return {index: norm.weighted(factor) for index, norm in norms.items()}

    squared = total(use.graph, [norm.squared for norm in norms.values()])
    return ExampleGradients(squared_norms=squared, weighted=weighted)


def _one_row_gemm(use: Use) -> ExampleGradients:
    """|dy|^2 (alpha^2 |x|^2 + beta^2): weight and bias at once, in few nodes."""
    graph, node = use.graph, use.node
    alpha, beta = float_attribute(node, "alpha", 1.0), float_attribute(node, "beta", 1.0)
    inside = _times(graph, sum_of_squares(graph, node.input[0], [1]), alpha * alpha)
    if 2 in use.wanted:
        inside = graph.emit("Add", inside, graph.float32(beta * beta))
    squared = graph.emit("Mul", sum_of_squares(graph, use.dy, [1]), inside)
    return ExampleGradients(squared_norms=squared, weighted=use.by_ordinary_rule)


def _gemm_weight(use: Use) -> ParameterNorm:
    node, graph = use.node, use.graph
    dy = _times(graph, use.dy, float_attribute(node, "alpha", 1.0))
    x_rows, dy_rows = _rows(use, node.input[0], node.input[0]), _rows(use, dy, node.output[0])
    is_transposed = int_attribute(node, "transB", 0)
    return product_norm(graph, *((dy_rows, x_rows) if is_transposed else (x_rows, dy_rows)))


def _gemm_bias(use: Use) -> ParameterNorm:
    node, graph = use.node, use.graph
    if not _has_row_bias(use):
        raise use.refused("a bias that is no row")
    rows = _rows(use, _times(graph, use.dy, float_attribute(node, "beta", 1.0)), node.output[0])
    sums = graph.reduce_sum(rows.value, [1])
    shape = [size or 0 for size in use.shape(node.input[2])]
    return ParameterNorm(
        squared=sum_of_squares(graph, sums, [1]),
        weighted=lambda factor: weighted_sum(graph, factor, sums, shape),
    )


_GEMM_NORMS = {1: _gemm_weight, 2: _gemm_bias}


def _has_row_bias(use: Use) -> bool:
    """Tell whether each column has a bias of its own, or there is no bias to train."""
    if 2 not in use.wanted:
        return True
    bias, columns = use.shape(use.node.input[2]), use.shape(use.node.output[0])[1]
    return bias in {(columns,), (1, columns)}


def _rows(use: Use, value: str, like: str) -> Rows:
    found, rows, columns = example_rows(use, value, like)
    return Rows(value=found, rows=rows, columns=columns)


def _times(graph: GraphEmitter, value: str, scale: float) -> str:
    return value if scale == 1.0 else graph.emit("Mul", value, graph.float32(scale))
