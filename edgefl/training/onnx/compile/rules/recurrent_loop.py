"""Runs a step over the time axis: one Scan, or the steps one after another when there are few."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from onnx import helper

from edgefl.training.onnx.compile.graph import GraphEmitter

LONGEST_UNROLLED_STEPS: Final = 4
"""Sequences up to this length are unrolled.

Measured on x86-64, one thread, LSTM and GRU with 8 or 32 examples and 16 or 64 hidden values: a
step with Scan took 0.8 to 1.5 (median 1.14) times the unrolled one at 4 steps, 0.6 to 1.4 (0.99) at
8, 0.67 to 0.81 (0.79) at 64, where the unrolled file was also 7 to 9 times larger.
"""

Step = Callable[[GraphEmitter, list[str], list[str]], tuple[list[str], list[str]]]
"""Takes the states and one element of each sequence, with or without a leading axis of size 1;
returns the new states and one element of each result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a loop gives.

    Attributes:
        states: The states after the last step, [N, ...].
        results: What the steps gave, [steps, N, ...], in the order of the sequences.
    """

    states: list[str]
    results: list[str]


def emit_loop(
    graph: GraphEmitter,
    step: Step,
    *,
    steps: int,
    backwards: bool,
    states: Sequence[str],
    sequences: Sequence[str],
    hidden: int,
    result_columns: Sequence[int],
) -> Loop:
    """Emit a loop over the first axis of the sequences.

    Args:
        graph: Where to emit.
        step: Emits one step; it may read any outer value.
        steps: Size of the first axis of each sequence.
        backwards: Whether the last element comes first.
        states: float32 [N, hidden] before the first step.
        sequences: float32 [steps, N, any].
        hidden: Columns of each state.
        result_columns: Columns of each result.

    Returns:
        States and results, float32.
    """
    if steps <= LONGEST_UNROLLED_STEPS:
        return _unrolled(graph, step, steps, backwards, states, sequences)
    columns = [*[hidden] * len(states), *result_columns]
    return _scan(graph, step, backwards, states, sequences, columns)


def _scan(
    graph: GraphEmitter,
    step: Step,
    backwards: bool,
    states: Sequence[str],
    sequences: Sequence[str],
    columns: Sequence[int],
) -> Loop:
    state_names = [graph.new_name("state") for _ in states]
    element_names = [graph.new_name("element") for _ in sequences]
    with graph.subgraph() as nodes:
        new_states, results = step(graph, state_names, element_names)
        # A body output must be made in the body, and only once: a step may hand a state through.
        outputs = [graph.emit("Identity", value) for value in [*new_states, *results]]
    body = helper.make_graph(
        nodes,
        graph.new_name("body"),
        [
            *(_value(name, [None, columns[0]]) for name in state_names),
            *(_value(name, None) for name in element_names),
        ],
        # onnxruntime refuses a body whose outputs it finds no shape for.
        [_value(name, [None, size]) for name, size in zip(outputs, columns, strict=True)],
    )
    emitted = graph.emit_outputs(
        "Scan",
        [*states, *sequences],
        len(outputs),
        body=body,
        num_scan_inputs=len(sequences),
        scan_input_directions=[int(backwards)] * len(sequences),
        scan_output_directions=[int(backwards)] * len(results),
    )
    return Loop(states=emitted[: len(states)], results=emitted[len(states) :])


def _unrolled(
    graph: GraphEmitter,
    step: Step,
    steps: int,
    backwards: bool,
    states: Sequence[str],
    sequences: Sequence[str],
) -> Loop:
    first = graph.int64s([0])
    parts = [_split(graph, sequence, steps) for sequence in sequences]
    # The parts keep a time axis of size 1, so the states get one too.
    current = [graph.emit("Unsqueeze", state, first) for state in states]
    collected: list[list[str]] = []
    for index in reversed(range(steps)) if backwards else range(steps):
        current, results = step(graph, current, [part[index] for part in parts])
        collected.append(results)
    if backwards:
        collected.reverse()
    stacked = [graph.emit("Concat", *elements, axis=0) for elements in zip(*collected, strict=True)]
    return Loop(states=[graph.emit("Squeeze", s, first) for s in current], results=stacked)


def _split(graph: GraphEmitter, sequence: str, steps: int) -> list[str]:
    if steps == 1:
        return [sequence]
    sizes = graph.constant(np.ones(steps, np.int64))
    return graph.emit_outputs("Split", [sequence, sizes], steps, axis=0)


def _value(name: str, shape: Sequence[int | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
