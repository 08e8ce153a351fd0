"""Reverse pass through one direction of a GRU, with the reset before or after the product."""

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.recurrent_direction import (
    DirectionGradients,
    DirectionInputs,
    RowProduct,
    added,
    as_rows,
    by_step,
    linear,
    one_minus,
    sigmoid_slope,
    split_last,
    tanh_slope,
)
from edgefl.training.onnx.compile.rules.recurrent_loop import Step, emit_loop


def gru_gradients(graph: GraphEmitter, direction: DirectionInputs) -> DirectionGradients:
    """Emit the gates again from the known hidden states, then the loop backwards through time.

    With update gate z, reset gate r and candidate n, the hidden state becomes (1 - z) n + z h.
    The candidate reads r (h R' + b) where the reset comes after the product (PyTorch), else
    (r h) R' + b.

    Source: Cho et al. 2014, arXiv:1406.1078, as in the ONNX operator GRU (gates in the order
    update, reset, candidate); the gradients are the chain rule.
    """
    form = _reset_after_product if direction.resets_after_product else _reset_before_product
    return form(graph, direction)


def _reset_after_product(graph: GraphEmitter, direction: DirectionInputs) -> DirectionGradients:
    hidden = direction.hidden
    sizes = [2 * hidden, hidden]
    from_input = linear(graph, direction.x, direction.w, direction.w_bias)
    from_state = linear(graph, direction.previous, direction.r, direction.r_bias)
    input_zr, input_n = split_last(graph, from_input, sizes)
    state_zr, state_n = split_last(graph, from_state, sizes)
    zr = graph.emit("Sigmoid", graph.emit("Add", input_zr, state_zr))
    z, r = split_last(graph, zr, [hidden, hidden])
    n = graph.emit("Tanh", graph.emit("Add", input_n, graph.emit("Mul", r, state_n)))
    slope_z, slope_r = split_last(graph, sigmoid_slope(graph, zr), [hidden, hidden])
    to_z = graph.emit("Mul", graph.emit("Sub", direction.previous, n), slope_z)
    to_n = graph.emit("Mul", one_minus(graph, z), tanh_slope(graph, n))
    to_r = graph.emit("Mul", to_n, graph.emit("Mul", state_n, slope_r))
    factors = graph.emit("Concat", to_z, to_r, graph.emit("Mul", to_n, r), axis=-1)

    def step(
        graph: GraphEmitter, states: list[str], elements: list[str]
    ) -> tuple[list[str], list[str]]:
        factor, update, *arriving = elements
        dh = added(graph, states[0], arriving)
        d_gates = graph.emit("Mul", graph.emit("Concat", dh, dh, dh, axis=-1), factor)
        through_gates = graph.emit("MatMul", d_gates, direction.r)
        before = graph.emit("Add", graph.emit("Mul", dh, update), through_gates)
        return [before], [dh, d_gates]

    sequences = [
        by_step(graph, direction, factors, 3 * hidden),
        by_step(graph, direction, z, hidden),
    ]
    columns = [hidden, 3 * hidden]
    dh_steps, d_gate_steps, initial = _backwards(graph, direction, step, sequences, columns)
    d_gates = as_rows(graph, d_gate_steps, 3 * hidden)
    d_n = graph.emit("Mul", as_rows(graph, dh_steps, hidden), to_n)
    d_zr, _ = split_last(graph, d_gates, sizes)
    return DirectionGradients(
        input_gates=graph.emit("Concat", d_zr, d_n, axis=-1),
        recurrent_gates=d_gates,
        recurrence=(RowProduct(left=d_gates, right=direction.previous, rows=3 * hidden),),
        initial_hidden=initial,
    )


def _reset_before_product(graph: GraphEmitter, direction: DirectionInputs) -> DirectionGradients:
    hidden = direction.hidden
    sizes = [2 * hidden, hidden]
    r_zr, r_n = graph.emit_outputs("Split", [direction.r, graph.int64s(sizes)], 2, axis=0)
    bias_zr, bias_n = _split_bias(graph, direction.r_bias, sizes)
    from_input = linear(graph, direction.x, direction.w, direction.w_bias)
    input_zr, input_n = split_last(graph, from_input, sizes)
    state_zr = linear(graph, direction.previous, r_zr, bias_zr)
    zr = graph.emit("Sigmoid", graph.emit("Add", input_zr, state_zr))
    z, r = split_last(graph, zr, [hidden, hidden])
    kept = graph.emit("Mul", r, direction.previous)
    n = graph.emit("Tanh", graph.emit("Add", input_n, linear(graph, kept, r_n, bias_n)))
    slope_z, slope_r = split_last(graph, sigmoid_slope(graph, zr), [hidden, hidden])
    to_z = graph.emit("Mul", graph.emit("Sub", direction.previous, n), slope_z)
    to_r = graph.emit("Mul", direction.previous, slope_r)
    to_n = graph.emit("Mul", one_minus(graph, z), tanh_slope(graph, n))

    def step(
        graph: GraphEmitter, states: list[str], elements: list[str]
    ) -> tuple[list[str], list[str]]:
        factor_zr, factor_n, update, reset, *arriving = elements
        dh = added(graph, states[0], arriving)
        d_n = graph.emit("Mul", dh, factor_n)
        d_kept = graph.emit("MatMul", d_n, r_n)
        d_zr = graph.emit("Mul", graph.emit("Concat", dh, d_kept, axis=-1), factor_zr)
        before = graph.emit(
            "Sum",
            graph.emit("Mul", dh, update),
            graph.emit("Mul", d_kept, reset),
            graph.emit("MatMul", d_zr, r_zr),
        )
        return [before], [d_zr, d_n]

    sequences = [
        by_step(graph, direction, graph.emit("Concat", to_z, to_r, axis=-1), 2 * hidden),
        by_step(graph, direction, to_n, hidden),
        by_step(graph, direction, z, hidden),
        by_step(graph, direction, r, hidden),
    ]
    columns = [2 * hidden, hidden]
    d_zr_steps, d_n_steps, initial = _backwards(graph, direction, step, sequences, columns)
    d_zr = as_rows(graph, d_zr_steps, 2 * hidden)
    d_n = as_rows(graph, d_n_steps, hidden)
    d_gates = graph.emit("Concat", d_zr, d_n, axis=-1)
    return DirectionGradients(
        input_gates=d_gates,
        recurrent_gates=d_gates,
        recurrence=(
            RowProduct(left=d_zr, right=direction.previous, rows=2 * hidden),
            RowProduct(left=d_n, right=kept, rows=hidden),
        ),
        initial_hidden=initial,
    )


def _backwards(
    graph: GraphEmitter,
    direction: DirectionInputs,
    step: Step,
    sequences: list[str],
    result_columns: list[int],
) -> tuple[str, str, str]:
    """Run the steps; return their two results, and the gradient of the initial state."""
    arriving = [] if direction.states_gradient is None else [direction.states_gradient]
    loop = emit_loop(
        graph,
        step,
        steps=direction.steps,
        backwards=not direction.is_reversed,
        states=[direction.last_hidden_gradient],
        sequences=[*sequences, *arriving],
        hidden=direction.hidden,
        result_columns=result_columns,
    )
    first, second = loop.results
    return first, second, loop.states[0]


def _split_bias(
    graph: GraphEmitter, bias: str | None, sizes: list[int]
) -> tuple[str | None, str | None]:
    if bias is None:
        return None, None
    first, second = split_last(graph, bias, sizes)
    return first, second
