"""Example norms of the weights and biases of recurrent layers."""

from collections.abc import Callable, Mapping

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample.dense import ParameterNorm, Rows, product_norm
from edgefl.training.onnx.compile.perexample.registry import (
    ExampleGradients,
    Use,
    examples_of,
    sum_of_squares,
    total,
    weighted_sum,
)
from edgefl.training.onnx.compile.rules import recurrent_form as at
from edgefl.training.onnx.compile.rules.recurrent import (
    Direction,
    reverse_directions,
    stacked,
    sum_over_time,
)
from edgefl.training.onnx.compile.rules.recurrent_form import RecurrentForm, read_form


@examples_of("LSTM", "GRU", "RNN")
def recurrent(use: Use) -> ExampleGradients:
    """An example meets the weights once a step: its gradient is a product over the steps."""
    use.require_wanted_within(at.W, at.R, at.B)
    graph = use.graph
    form = read_form(graph, use.node)
    directions = reverse_directions(graph, use.node, form, use.dys)
    makers: dict[int, Callable[[Direction], list[ParameterNorm]]] = {
        at.W: lambda direction: _w_norms(graph, form, direction),
        at.R: lambda direction: _r_norms(graph, form, direction),
        at.B: lambda direction: [_b_norm(graph, form, direction)],
    }
    norms = {index: [makers[index](direction) for direction in directions] for index in use.wanted}

    def weighted(factor: str) -> Mapping[int, str]:
        return {
            index: stacked(graph, [_joined(graph, parts, factor) for parts in by_direction])
            for index, by_direction in norms.items()
        }

    terms = [norm.squared for found in norms.values() for parts in found for norm in parts]
    return ExampleGradients(
        squared_norms=total(graph, terms),
        weighted=weighted,
        inputs=sum_over_time(graph, form, directions, use.wanted_inputs),
    )


def _w_norms(graph: GraphEmitter, form: RecurrentForm, direction: Direction) -> list[ParameterNorm]:
    read, found = direction
    gates = _by_example(graph, form, found.input_gates, form.gates * form.hidden)
    return [product_norm(graph, gates, _by_example(graph, form, read.x, form.features))]


def _r_norms(graph: GraphEmitter, form: RecurrentForm, direction: Direction) -> list[ParameterNorm]:
    return [
        product_norm(
            graph,
            _by_example(graph, form, part.left, part.rows),
            _by_example(graph, form, part.right, form.hidden),
        )
        for part in direction[1].recurrence
    ]


def _b_norm(graph: GraphEmitter, form: RecurrentForm, direction: Direction) -> ParameterNorm:
    size = form.gates * form.hidden
    sums = [
        graph.reduce_sum(graph.reshape(gates, (form.steps, None, size)), [0])
        for gates in (direction[1].input_gates, direction[1].recurrent_gates)
    ]
    both = graph.emit("Concat", *sums, axis=1)
    return ParameterNorm(
        squared=sum_of_squares(graph, both, [1]),
        weighted=lambda factor: weighted_sum(graph, factor, both, [2 * size]),
    )


def _by_example(graph: GraphEmitter, form: RecurrentForm, value: str, columns: int) -> Rows:
    """Turn [T*N, columns] into [N, T, columns]."""
    by_step = graph.reshape(value, (form.steps, None, columns))
    moved = graph.emit("Transpose", by_step, perm=[1, 0, 2])
    return Rows(value=moved, rows=form.steps, columns=columns)


def _joined(graph: GraphEmitter, parts: list[ParameterNorm], factor: str) -> str:
    """Emit the weighted gradient of one direction, its blocks of rows below one another."""
    blocks = [part.weighted(factor) for part in parts]
    return blocks[0] if len(blocks) == 1 else graph.emit("Concat", *blocks, axis=0)
