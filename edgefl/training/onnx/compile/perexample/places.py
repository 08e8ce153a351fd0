"""Follows the examples of a batch through a model, and finds whether it keeps them apart.

A vectorised norm is right, and protects an example, only if no value of one example depends on
another example. So each operator is followed by a rule of its own, and one without a rule is taken
to mix examples.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import onnx

from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a value holds its examples: one axis, in row-major order [outer, N, inner].

    Attributes:
        axis: The axis, whose size is outer * N * inner.
        outer: How often the whole batch occurs on it.
        inner: How many neighbours on it belong to one example.
    """

    axis: int
    outer: int = 1
    inner: int = 1

    @property
    def is_plain(self) -> bool:
        """Tell whether the axis counts examples and nothing else."""
        return self.outer == self.inner == 1

    def at(self, axis: int) -> "Place":
        """Return the same on another axis."""
        return Place(axis=axis, outer=self.outer, inner=self.inner)


Places = Mapping[str, Place | None]
"""Place by value; None where a value is the same whatever the examples are."""


class MixedExamplesError(Exception):
    """Raised by a place rule for a node that mixes examples, or may; never leaves the package.

    Attributes:
        is_certain: The node does mix them.
    """

    def __init__(self, node: onnx.NodeProto, *, is_certain: bool = False) -> None:
        """Name the node."""
        found = "mixes examples" if is_certain else "is not known to keep examples apart"
        super().__init__(f"{describe(node)} {found}")
        self.is_certain = is_certain


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One node on the way, as place rules see it.

    Attributes:
        graph: Knows shapes and constants.
        node: The node; at least one input depends on examples.
        inputs: Place of each input.
    """

    graph: GraphEmitter
    node: onnx.NodeProto
    inputs: list[Place | None]

    def shape(self, value: str) -> Shape:
        """Return a shape with at most one unknown size.

        Raises:
            MixedExamplesError: It is not known well enough.
        """
        shape = self.graph.known_shape(value)
        if shape is None or shape.count(None) > 1:
            raise self.mixed()
        return shape

    def only(self, index: int) -> Place:
        """Return the place of the one input that depends on examples.

        Raises:
            MixedExamplesError: It is another one, or there are several.
        """
        place = self.inputs[index]
        if place is None or sum(found is not None for found in self.inputs) > 1:
            raise self.mixed()
        return place

    def constants(self, index: int) -> list[int] | None:
        """Return the whole numbers of an input; None when it is absent or computed."""
        if index >= len(self.node.input) or not self.node.input[index]:
            return None
        values = self.graph.constant_value(self.node.input[index])
        return None if values is None else [int(v) for v in values.reshape(-1).tolist()]

    def mixed(self) -> MixedExamplesError:
        """Return the error to raise where nothing is known."""
        return MixedExamplesError(self.node)

    def mixing(self) -> MixedExamplesError:
        """Return the error to raise where an example's result depends on others."""
        return MixedExamplesError(self.node, is_certain=True)


PlaceRule = Callable[[Visit], Place]
"""Returns the place in every output, or raises MixedExamplesError."""

_RULES: dict[str, PlaceRule] = {}
_SHAPE_READERS: Final = frozenset({"Shape", "Size"})
_FILLERS: Final = frozenset({"Expand", "ConstantOfShape"})
_STANDARD_DOMAINS: Final = frozenset({"", "ai.onnx"})


def place_of(*op_types: str) -> Callable[[PlaceRule], PlaceRule]:
    """Register the decorated function as the place rule of the operators."""

    def register(rule: PlaceRule) -> PlaceRule:
        for op_type in op_types:
            _RULES[op_type] = rule
        return rule

    return register


def follow_examples(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    batch_inputs: Sequence[str],
    outputs: Sequence[str],
) -> Places:
    """Return where each value holds its examples.

    Args:
        graph: Knows the shapes of the forward model.
        nodes: Forward nodes in execution order.
        batch_inputs: The inputs whose first axis is the batch.
        outputs: Values that must have one row per example.

    Returns:
        Places of the inputs and of every node's outputs; other values are the same for all.

    Raises:
        MixedExamplesError: A node mixes examples or may.
    """
    places: dict[str, Place | None] = {value: Place(axis=0) for value in batch_inputs}
    for node in nodes:
        inputs = [places.get(value) for value in node.input]
        place = _place_after(graph, node, inputs)
        for index, value in enumerate(node.output):
            if value:
                places[value] = _moved_for_output(node, place, index)
    if any(places.get(output) != Place(axis=0) for output in outputs):
        raise MixedExamplesError(nodes[-1])
    return places


def _place_after(
    graph: GraphEmitter, node: onnx.NodeProto, inputs: list[Place | None]
) -> Place | None:
    if node.op_type in _SHAPE_READERS:
        return None
    if any(place is not None for place in inputs):
        rule = _RULES.get(node.op_type) if node.domain in _STANDARD_DOMAINS else None
        if rule is None or any(attribute.HasField("g") for attribute in node.attribute):
            raise MixedExamplesError(node)
        return rule(Visit(graph=graph, node=node, inputs=inputs))
    shape = graph.known_shape(node.output[0])
    if node.op_type in _FILLERS and shape is not None and shape.count(None) == 1:
        # Equal rows, as many as there are examples: zeros for a first hidden state.
        return Place(axis=shape.index(None))
    if shape is not None and None in shape:
        # As Range over the batch gives: each row differs, by its position.
        raise MixedExamplesError(node)
    return None


def _moved_for_output(node: onnx.NodeProto, place: Place | None, index: int) -> Place | None:
    """A recurrent layer's Y is [T, directions, N, H], its last states are [directions, N, H]."""
    if place is not None and node.op_type in {"LSTM", "GRU", "RNN"} and index > 0:
        return place.at(place.axis - 1)
    return place


def reshaped(visit: Visit, before: Shape, place: Place, after: Shape) -> Place:
    """Return the place after the same values in row-major order got another shape.

    Raises:
        MixedExamplesError: No single axis holds whole examples afterwards.
    """
    outer = _product(before[: place.axis]) * place.outer
    inner = _product(before[place.axis + 1 :]) * place.inner
    if after.count(None) != 1:
        raise visit.mixed()
    axis = after.index(None)
    leading, trailing = _product(after[:axis]), _product(after[axis + 1 :])
    if leading == 0 or trailing == 0 or outer % leading or inner % trailing:
        raise visit.mixed()
    return Place(axis=axis, outer=outer // leading, inner=inner // trailing)


def _product(sizes: Sequence[int | None]) -> int:
    return math.prod(size or 0 for size in sizes)
