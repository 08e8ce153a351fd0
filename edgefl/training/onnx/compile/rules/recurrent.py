"""Gradients of recurrent layers: LSTM, GRU and RNN, forward, reverse and bidirectional."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import onnx

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules import recurrent_form as at
from edgefl.training.onnx.compile.rules.recurrent_direction import (
    DirectionGradients,
    DirectionInputs,
    RowProduct,
    before_each_step,
)
from edgefl.training.onnx.compile.rules.recurrent_form import RecurrentForm, read_form
from edgefl.training.onnx.compile.rules.recurrent_gru import gru_gradients
from edgefl.training.onnx.compile.rules.recurrent_lstm import lstm_gradients
from edgefl.training.onnx.compile.rules.recurrent_rnn import rnn_gradients
from edgefl.training.onnx.compile.rules.registry import Gradients, gradients_of_outputs

_CELLS: Final[dict[str, Callable[[GraphEmitter, DirectionInputs], DirectionGradients]]] = {
    "LSTM": lstm_gradients,
    "GRU": gru_gradients,
    "RNN": rnn_gradients,
}


@gradients_of_outputs("LSTM", "GRU", "RNN")
def recurrent(
    graph: GraphEmitter, node: onnx.NodeProto, dys: Sequence[str | None], wanted: Sequence[bool]
) -> Gradients:
    """Differentiate with respect to X, W, R, B and the initial states.

    Gradients may arrive at Y, Y_h and Y_c. The products that sum over time are single Gemms after
    the loop.

    Raises:
        TrainingError: E-MODEL-OP-FORM for peepholes, clip, sequence_lens, layout 1 and custom
            activations; E-MODEL-SHAPE for an unknown sequence length.
    """
    form = read_form(graph, node)
    return sum_over_time(graph, form, reverse_directions(graph, node, form, dys), wanted)


Direction = tuple[DirectionInputs, DirectionGradients]


def sum_over_time(
    graph: GraphEmitter,
    form: RecurrentForm,
    directions: Sequence[Direction],
    wanted: Sequence[bool],
) -> Gradients:
    """Emit the wanted gradients from what `reverse_directions` gave."""
    gradients: Gradients = [None] * len(wanted)
    emitters: dict[int, Callable[[], str]] = {
        at.X: lambda: _x_gradient(graph, form, directions),
        at.W: lambda: stacked(graph, [_w_gradient(graph, d) for d in directions]),
        at.R: lambda: stacked(graph, [_r_gradient(graph, d[1]) for d in directions]),
        at.B: lambda: stacked(graph, [_b_gradient(graph, d[1]) for d in directions]),
        at.INITIAL_HIDDEN: lambda: stacked(graph, [d.initial_hidden for _, d in directions]),
        at.INITIAL_CELL: lambda: stacked(graph, [d.initial_cell or "" for _, d in directions]),
    }
    for index, emit in emitters.items():
        if index < len(wanted) and wanted[index]:
            gradients[index] = emit()
    return gradients


def reverse_directions(
    graph: GraphEmitter,
    node: onnx.NodeProto,
    form: RecurrentForm,
    dys: Sequence[str | None],
) -> list[Direction]:
    """Emit the reverse pass of each direction, without the sums over time.

    Args:
        graph: Where to emit.
        node: The forward node.
        form: What `read_form` found.
        dys: Gradients of Y, Y_h and Y_c; None where none arrives.

    Returns:
        For each direction what it read and its gradients.
    """
    arriving = (*dys, *[None] * (3 - len(dys)))
    all_states = node.output[0] or _run_again(graph, node)
    zeros = _zeros(graph, form)
    rows = graph.reshape(form.inputs[at.X], (None, form.features))

    def part(value: str | None, index: int, axis: int) -> str | None:
        return None if not value else _direction_of(graph, form, value, index, axis)

    directions: list[Direction] = []
    for index, is_reversed in enumerate(form.reversed_directions):
        states = _direction_of(graph, form, all_states, index, 1)
        initial = part(form.inputs[at.INITIAL_HIDDEN], index, 0) or zeros
        previous = before_each_step(graph, is_reversed, form.steps, initial, states)
        w_bias, r_bias = _biases(graph, form, index)
        inputs = DirectionInputs(
            steps=form.steps,
            hidden=form.hidden,
            is_reversed=is_reversed,
            x=rows,
            w=_direction_of(graph, form, form.inputs[at.W], index, 0),
            r=_direction_of(graph, form, form.inputs[at.R], index, 0),
            w_bias=w_bias,
            r_bias=r_bias,
            states=states,
            previous=graph.reshape(previous, (None, form.hidden)),
            initial_cell=part(form.inputs[at.INITIAL_CELL], index, 0) or zeros,
            states_gradient=part(arriving[0], index, 1),
            last_hidden_gradient=part(arriving[1], index, 0) or zeros,
            last_cell_gradient=part(arriving[2], index, 0) or zeros,
            resets_after_product=form.resets_after_product,
            activation=form.activation,
        )
        directions.append((inputs, _CELLS[form.operator](graph, inputs)))
    return directions


def _run_again(graph: GraphEmitter, node: onnx.NodeProto) -> str:
    """Emit the layer once more where the model does not ask for its hidden states.

    The forward node itself stays as it is, since the exported model shares it.
    """
    states = graph.new_name("Y")
    again = onnx.NodeProto()
    again.CopyFrom(node)
    again.ClearField("name")
    again.output[:] = [states]
    graph.nodes.append(again)
    return states


def _zeros(graph: GraphEmitter, form: RecurrentForm) -> str:
    """Emit the initial state that the operator takes when none is given, [N, H]."""
    examples = graph.emit("Shape", form.inputs[at.X], start=1, end=2)
    shape = graph.emit("Concat", examples, graph.int64s([form.hidden]), axis=0)
    return graph.emit("Expand", graph.constant(np.zeros((1, 1), np.float32)), shape)


def _direction_of(
    graph: GraphEmitter, form: RecurrentForm, value: str, index: int, axis: int
) -> str:
    """Take one direction and drop its axis."""
    if form.directions == 1:
        return graph.emit("Squeeze", value, graph.int64s([axis]))
    return graph.emit("Gather", value, graph.constant(np.array(index, np.int64)), axis=axis)


def _biases(graph: GraphEmitter, form: RecurrentForm, index: int) -> tuple[str | None, str | None]:
    if not form.inputs[at.B]:
        return None, None
    both = _direction_of(graph, form, form.inputs[at.B], index, 0)
    size = form.gates * form.hidden
    w_bias, r_bias = graph.emit_outputs("Split", [both, graph.int64s([size, size])], 2, axis=0)
    return w_bias, r_bias


def stacked(graph: GraphEmitter, parts: list[str]) -> str:
    """Put the parts of the directions behind one another on a new first axis."""
    axis = graph.int64s([0])
    rows = [graph.emit("Unsqueeze", part, axis) for part in parts]
    return rows[0] if len(rows) == 1 else graph.emit("Concat", *rows, axis=0)


def _x_gradient(graph: GraphEmitter, form: RecurrentForm, directions: Sequence[Direction]) -> str:
    parts = [graph.emit("MatMul", found.input_gates, read.w) for read, found in directions]
    total = parts[0] if len(parts) == 1 else graph.emit("Add", *parts)
    return graph.reshape(total, (form.steps, None, form.features))


def _w_gradient(graph: GraphEmitter, direction: Direction) -> str:
    read, found = direction
    return graph.emit("Gemm", found.input_gates, read.x, transA=1)


def _r_gradient(graph: GraphEmitter, found: DirectionGradients) -> str:
    def product(part: RowProduct) -> str:
        return graph.emit("Gemm", part.left, part.right, transA=1)

    parts = [product(part) for part in found.recurrence]
    return parts[0] if len(parts) == 1 else graph.emit("Concat", *parts, axis=0)


def _b_gradient(graph: GraphEmitter, found: DirectionGradients) -> str:
    w_bias = graph.reduce_sum(found.input_gates, [0])
    if found.recurrent_gates == found.input_gates:
        return graph.emit("Concat", w_bias, w_bias, axis=0)
    return graph.emit("Concat", w_bias, graph.reduce_sum(found.recurrent_gates, [0]), axis=0)
