"""The table of example rules: how an operator's parameters get a norm for each example."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.perexample.places import Place, Places
from edgefl.training.onnx.compile.rules import find_rule
from edgefl.training.onnx.compile.rules.registry import Gradients


class NotVectorisedError(Exception):
    """Raised where no example rule applies; never leaves the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleGradients:
    """What one node's parameters get from each example.

    Attributes:
        squared_norms: float32 [N]: the sum over the wanted parameters of each example's squared
            gradient norm.
        weighted: Takes float32 [N] factors; emits and returns, by input index, the sum over the
            examples of factor times gradient.
        inputs: Gradients of the inputs that depend on examples, when the rule made them anyway;
            None lets the ordinary rule make them.
    """

    squared_norms: str
    weighted: Callable[[str], Mapping[int, str]]
    inputs: Gradients | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One node that reads parameters, as example rules see it.

    Attributes:
        graph: Where to emit.
        node: The node.
        dys: Gradient of each output for the unweighted loss of each example; None where none
            arrives.
        wanted: Indices of the inputs that are parameters.
        wanted_inputs: For each input, whether it depends on examples and its gradient is wanted.
        places: Where values hold their examples.
    """

    graph: GraphEmitter
    node: onnx.NodeProto
    dys: Sequence[str | None]
    wanted: tuple[int, ...]
    wanted_inputs: tuple[bool, ...]
    places: Places

    @property
    def dy(self) -> str:
        """Return the gradient of the first output.

        Raises:
            NotVectorisedError: Another output's arrives.
        """
        first, *others = self.dys
        if first is None or any(other is not None for other in others):
            raise self.refused("its other outputs")
        return first

    def shape(self, value: str) -> Shape:
        """Return a forward value's shape."""
        return self.graph.shape_of(value, self.node)

    def place(self, value: str) -> Place:
        """Return where a value that depends on examples holds them.

        Raises:
            NotVectorisedError: It does not depend on them.
        """
        place = self.places.get(value)
        if place is None:
            raise self.refused(f"'{value}' is the same for all examples")
        return place

    def plain_axis(self, value: str) -> int:
        """Return the axis that counts examples and nothing else.

        Raises:
            NotVectorisedError: The axis counts more.
        """
        place = self.place(value)
        if not place.is_plain:
            raise self.refused(f"the batch axis of '{value}' is merged with another")
        return place.axis

    def require_wanted_within(self, *indices: int) -> None:
        """Refuse parameters at other inputs.

        Raises:
            NotVectorisedError: There is one.
        """
        if not set(self.wanted) <= set(indices):
            raise self.refused("a parameter in that place")

    def refused(self, why: str) -> NotVectorisedError:
        """Return the error to raise."""
        return NotVectorisedError(f"{describe(self.node)}: {why}")

    def by_ordinary_rule(self, factor: str) -> Mapping[int, str]:
        """Emit the weighted gradients by scaling the gradient of each output first."""
        rule = find_rule(self.node)
        if rule is None:
            raise self.refused("no gradient rule")
        scaled = [
            None if dy is None else scale_examples(self, dy, value, factor)
            for dy, value in zip(self.dys, self.node.output, strict=True)
        ]
        wanted = [index in self.wanted for index in range(len(self.node.input))]
        found = rule(self.graph, self.node, scaled, wanted)
        return {index: value for index in self.wanted if (value := found[index]) is not None}


ExampleRule = Callable[[Use], ExampleGradients]
"""Emits the norms of one node's parameters, or raises NotVectorisedError."""

_RULES: dict[str, ExampleRule] = {}


def examples_of(*op_types: str) -> Callable[[ExampleRule], ExampleRule]:
    """Register the decorated function as the example rule of the operators."""

    def register(rule: ExampleRule) -> ExampleRule:
        for op_type in op_types:
            _RULES[op_type] = rule
        return rule

    return register


def example_gradients(use: Use) -> ExampleGradients:
    """Emit the norms of a node's parameters.

    Raises:
        NotVectorisedError: There is no vectorised form.
    """
    rule = _RULES.get(use.node.op_type)
    if rule is None:
        raise use.refused("no vectorised norm")
    return rule(use)


def scale_examples(use: Use, value: str, like: str, factor: str) -> str:
    """Multiply each example of a value by its factor.

    Args:
        use: The node.
        value: What to scale; shaped and placed as `like`.
        like: A forward value.
        factor: float32 [N].
    """
    axis, rank = use.plain_axis(like), len(use.shape(like))
    sizes = tuple(None if index == axis else 1 for index in range(rank))
    column = factor if rank == 1 else use.graph.reshape(factor, sizes)
    return use.graph.emit("Mul", value, column)


def example_rows(use: Use, value: str, like: str) -> tuple[str, int, int]:
    """Give a value with vectors on its last axis the shape [N, rows, columns].

    Args:
        use: The node.
        value: Shaped and placed as `like`.
        like: A forward value whose batch axis is not its last.

    Returns:
        The value, rows and columns.

    Raises:
        NotVectorisedError: The last axis holds the examples.
    """
    graph, place, shape = use.graph, use.place(like), use.shape(like)
    if place.axis == len(shape) - 1:
        raise use.refused("examples on the last axis")
    before = [size or 0 for size in shape[: place.axis]]
    after = [size or 0 for size in shape[place.axis + 1 : -1]]
    columns = shape[-1] or 0
    outer, inner = math.prod(before) * place.outer, math.prod(after) * place.inner
    rows = outer * inner
    if outer == 1:
        already = shape == (None, rows, columns) and place.is_plain
        return (value if already else graph.reshape(value, (None, rows, columns))), rows, columns
    apart = graph.reshape(value, (outer, None, inner, columns))
    moved = graph.emit("Transpose", apart, perm=[1, 0, 2, 3])
    return graph.reshape(moved, (None, rows, columns)), rows, columns


def sum_of_squares(graph: GraphEmitter, value: str, axes: Sequence[int]) -> str:
    """Emit the sum of squares over the axes, and drop them."""
    return graph.emit("ReduceSumSquare", value, axes=list(axes), keepdims=0)


def total(graph: GraphEmitter, terms: Sequence[str]) -> str:
    """Emit the sum of values of equal shape."""
    return terms[0] if len(terms) == 1 else graph.emit("Sum", *terms)


def weighted_sum(graph: GraphEmitter, factor: str, per_example: str, shape: Sequence[int]) -> str:
    """Emit the sum over examples of factor times gradient, as one product of a row and a matrix.

    Args:
        graph: Where to emit.
        factor: float32 [N].
        per_example: One gradient per example, [N, ...].
        shape: Shape of the result, as many values as one example has.
    """
    flat = graph.reshape(per_example, (None, math.prod(shape)))
    row = graph.emit("Unsqueeze", factor, graph.int64s([0]))
    return graph.reshape(graph.emit("MatMul", row, flat), tuple(shape))
