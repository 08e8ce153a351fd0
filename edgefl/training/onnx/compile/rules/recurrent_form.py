"""Reads an LSTM, GRU or RNN node, and refuses the forms that have no gradient rule."""

from dataclasses import dataclass
from typing import Final

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, int_attribute, text_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter

GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DEFAULT_ACTIVATIONS: Final = {
    "LSTM": ("sigmoid", "tanh", "tanh"),
    "GRU": ("sigmoid", "tanh"),
    "RNN": ("tanh",),
}
_REVERSED: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

X, W, R, B, SEQUENCE_LENGTHS, INITIAL_HIDDEN, INITIAL_CELL, PEEPHOLES = range(8)
"""Positions of the inputs; RNN and GRU have the first six."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentForm:
    """One recurrent layer.

    Attributes:
        operator: LSTM, GRU or RNN.
        inputs: All eight inputs, "" where one is absent.
        steps: Length of the sequence, T.
        features: Size of one element of the sequence.
        hidden: Size of the hidden state, H.
        reversed_directions: For each direction, whether it reads the sequence from its end.
        resets_after_product: GRU's `linear_before_reset`.
        activation: Activation of RNN in small letters: tanh or relu.
    """

    operator: str
    inputs: tuple[str, ...]
    steps: int
    features: int
    hidden: int
    reversed_directions: tuple[bool, ...]
    resets_after_product: bool
    activation: str

    @property
    def gates(self) -> int:
        """Return how many blocks of H rows the weights have."""
        return GATES[self.operator]

    @property
    def directions(self) -> int:
        """Return 1 or 2."""
        return len(self.reversed_directions)


def read_form(graph: GraphEmitter, node: onnx.NodeProto) -> RecurrentForm:
    """Return the form of a node.

    Raises:
        TrainingError: E-MODEL-OP-FORM with everything about the node that has no rule, or
            E-MODEL-SHAPE for an unknown length or size.
    """
    inputs = (*node.input, *[""] * (8 - len(node.input)))
    activations = _activations(node)
    obstacles = [*_obstacles(node, inputs), *_activation_obstacles(node, activations)]
    if obstacles:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "a recurrent layer with its default gates and full sequences",
            f"{describe(node)} with {', '.join(obstacles)}",
            "export the layer without that, or train only layers after it",
        )
    x_shape = graph.shape_of(inputs[X], node)
    steps, features = x_shape[0], x_shape[2]
    recurrence = graph.shape_of(inputs[R], node)[2]
    if steps is None or features is None or recurrence is None:
        raise TrainingError(
            "E-MODEL-SHAPE",
            "a fixed sequence length and fixed sizes",
            f"[{steps or '?'}, batch, {features or '?'}] at {describe(node)}",
            "export the model with fixed sizes; only the batch axis may vary",
        )
    return RecurrentForm(
        operator=node.op_type,
        inputs=inputs,
        steps=steps,
        features=features,
        hidden=recurrence,
        reversed_directions=_REVERSED[text_attribute(node, "direction", "forward")],
        resets_after_product=bool(int_attribute(node, "linear_before_reset", 0)),
        activation=activations[0],
    )


def _obstacles(node: onnx.NodeProto, inputs: tuple[str, ...]) -> list[str]:
    found = []
    direction = text_attribute(node, "direction", "forward")
    if direction not in _REVERSED:
        found.append(f"direction {direction}")
    if inputs[SEQUENCE_LENGTHS]:
        found.append("sequence_lens (sequences shorter than the input)")
    if inputs[PEEPHOLES]:
        found.append("peepholes")
    if int_attribute(node, "layout", 0):
        found.append("layout=1 (batch first)")
    if int_attribute(node, "input_forget", 0):
        found.append("input_forget")
    if any(attribute.name == "clip" for attribute in node.attribute):
        found.append("clip")
    return found


def _activations(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the activations of all directions in small letters, as the standard compares them."""
    named = [n for a in node.attribute if a.name == "activations" for n in a.strings]
    directions = len(_REVERSED.get(text_attribute(node, "direction", "forward"), ()))
    if named:
        return tuple(name.decode(errors="replace").lower() for name in named)
    return _DEFAULT_ACTIVATIONS[node.op_type] * directions


def _activation_obstacles(node: onnx.NodeProto, activations: tuple[str, ...]) -> list[str]:
    directions = len(_REVERSED.get(text_attribute(node, "direction", "forward"), ()))
    allowed = [_DEFAULT_ACTIVATIONS[node.op_type] * directions]
    if node.op_type == "RNN":
        allowed.append(("relu",) * directions)
    if activations in allowed:
        return []
    return [f"activations {', '.join(activations)}"]
