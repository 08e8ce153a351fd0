"""Reverse pass through one direction of an LSTM."""

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.recurrent_direction import (
    DirectionGradients,
    DirectionInputs,
    RowProduct,
    added,
    as_rows,
    before_each_step,
    by_step,
    linear,
    sigmoid_slope,
    split_last,
    tanh_slope,
)
from edgefl.training.onnx.compile.rules.recurrent_loop import emit_loop


def lstm_gradients(graph: GraphEmitter, direction: DirectionInputs) -> DirectionGradients:
    """Emit the gates again from the known hidden states, then the loop backwards through time.

    Every hidden state is an output of the forward node, so all gates come from two products over
    all steps at once; only the cell state needs a loop, without products. What each gate's
    gradient is multiplied by is prepared for all steps, so that a step backwards holds one product.

    Source: Hochreiter and Schmidhuber 1997 and Gers et al. 2000, as in the ONNX operator LSTM
    (gates in the order input, output, forget, cell); the gradients are the chain rule.
    """
    hidden = direction.hidden
    from_input = linear(graph, direction.x, direction.w, direction.w_bias)
    from_state = linear(graph, direction.previous, direction.r, direction.r_bias)
    gates = graph.emit("Add", from_input, from_state)
    sigmoid_gates, cell_gate = split_last(graph, gates, [3 * hidden, hidden])
    sigmoids = graph.emit("Sigmoid", sigmoid_gates)
    i, o, f = split_last(graph, sigmoids, [hidden] * 3)
    g = graph.emit("Tanh", cell_gate)
    f_steps = by_step(graph, direction, f, hidden)
    cells_before, cells = _cells(graph, direction, graph.emit("Mul", i, g), f_steps)
    tanh_cells = graph.emit("Tanh", cells)
    slope_i, slope_o, slope_f = split_last(graph, sigmoid_slope(graph, sigmoids), [hidden] * 3)
    factors = graph.emit(
        "Concat",
        graph.emit("Mul", slope_i, g),
        graph.emit("Mul", slope_o, tanh_cells),
        graph.emit("Mul", slope_f, cells_before),
        graph.emit("Mul", i, tanh_slope(graph, g)),
        axis=-1,
    )
    to_cell = graph.emit("Mul", o, tanh_slope(graph, tanh_cells))

    def step(
        graph: GraphEmitter, states: list[str], elements: list[str]
    ) -> tuple[list[str], list[str]]:
        hidden_gradient, cell_gradient = states
        factor, hidden_to_cell, forget, *arriving = elements
        dh = added(graph, hidden_gradient, arriving)
        dc = graph.emit("Add", cell_gradient, graph.emit("Mul", dh, hidden_to_cell))
        d_gates = graph.emit("Mul", graph.emit("Concat", dc, dh, dc, dc, axis=-1), factor)
        before = graph.emit("MatMul", d_gates, direction.r)
        return [before, graph.emit("Mul", dc, forget)], [d_gates]

    sequences = [
        by_step(graph, direction, factors, 4 * hidden),
        by_step(graph, direction, to_cell, hidden),
        f_steps,
    ]
    if direction.states_gradient is not None:
        sequences.append(direction.states_gradient)
    loop = emit_loop(
        graph,
        step,
        steps=direction.steps,
        backwards=not direction.is_reversed,
        states=[direction.last_hidden_gradient, _cell_value(direction.last_cell_gradient)],
        sequences=sequences,
        hidden=hidden,
        result_columns=[4 * hidden],
    )
    d_gates = as_rows(graph, loop.results[0], 4 * hidden)
    return DirectionGradients(
        input_gates=d_gates,
        recurrent_gates=d_gates,
        recurrence=(RowProduct(left=d_gates, right=direction.previous, rows=4 * hidden),),
        initial_hidden=loop.states[0],
        initial_cell=loop.states[1],
    )


def _cells(
    graph: GraphEmitter, direction: DirectionInputs, written: str, kept: str
) -> tuple[str, str]:
    """Return the cell state before and after each step, both [T*N, H]."""

    def step(
        graph: GraphEmitter, states: list[str], elements: list[str]
    ) -> tuple[list[str], list[str]]:
        cell = graph.emit("Add", graph.emit("Mul", states[0], elements[0]), elements[1])
        return [cell], [cell]

    initial = _cell_value(direction.initial_cell)
    loop = emit_loop(
        graph,
        step,
        steps=direction.steps,
        backwards=direction.is_reversed,
        states=[initial],
        sequences=[kept, by_step(graph, direction, written, direction.hidden)],
        hidden=direction.hidden,
        result_columns=[direction.hidden],
    )
    cells = loop.results[0]
    before = before_each_step(graph, direction.is_reversed, direction.steps, initial, cells)
    return as_rows(graph, before, direction.hidden), as_rows(graph, cells, direction.hidden)


def _cell_value(value: str | None) -> str:
    if value is None:
        message = "an LSTM direction without a cell state"
        raise ValueError(message)
    return value
