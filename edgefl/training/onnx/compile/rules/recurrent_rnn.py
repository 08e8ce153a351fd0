"""Reverse pass through one direction of a plain recurrent layer (tanh or relu)."""

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.recurrent_direction import (
    DirectionGradients,
    DirectionInputs,
    RowProduct,
    added,
    as_rows,
    tanh_slope,
)
from edgefl.training.onnx.compile.rules.recurrent_loop import emit_loop


def rnn_gradients(graph: GraphEmitter, direction: DirectionInputs) -> DirectionGradients:
    """Emit the loop backwards through time; the slopes follow from the hidden states alone.

    Source: Elman 1990, as in the ONNX operator RNN; the gradients are the chain rule. relu's slope
    is 0 where its value is 0.
    """
    hidden = direction.hidden
    slopes = (
        graph.emit("Sign", direction.states)
        if direction.activation == "relu"
        else tanh_slope(graph, direction.states)
    )

    def step(
        graph: GraphEmitter, states: list[str], elements: list[str]
    ) -> tuple[list[str], list[str]]:
        slope, *arriving = elements
        d_gate = graph.emit("Mul", added(graph, states[0], arriving), slope)
        return [graph.emit("MatMul", d_gate, direction.r)], [d_gate]

    arriving = [] if direction.states_gradient is None else [direction.states_gradient]
    loop = emit_loop(
        graph,
        step,
        steps=direction.steps,
        backwards=not direction.is_reversed,
        states=[direction.last_hidden_gradient],
        sequences=[slopes, *arriving],
        hidden=hidden,
        result_columns=[hidden],
    )
    d_gates = as_rows(graph, loop.results[0], hidden)
    return DirectionGradients(
        input_gates=d_gates,
        recurrent_gates=d_gates,
        recurrence=(RowProduct(left=d_gates, right=direction.previous, rows=hidden),),
        initial_hidden=loop.states[0],
    )
