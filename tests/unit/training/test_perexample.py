"""Per-example clipping against a loop over single examples through the plain reverse pass."""

import re

import numpy as np
import pytest

from edgefl.training.onnx import names
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample import (
    ExampleForm,
    emit_clipped_gradients,
    why_examples_are_mixed,
)
from tests.unit.training.perexample_cases import (
    CASES,
    CUTS,
    FORMS,
    Case,
    assert_clipped_like_single_examples,
    dense_then,
    emit_error,
    node,
    weight,
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.value)
def test_agrees_with_a_loop_over_single_examples(name, form):
    assert_clipped_like_single_examples(CASES[name](), form)


FALLBACKS = {
    "a weight that two nodes read": (
        lambda: dense_then(node("Tanh", "a", "h"), node("MatMul", "h first"), width=4),
        "two nodes read the parameter 'first'",
    ),
    "arithmetic on a parameter alone": (
        lambda: dense_then(
            node("Exp", "log_scale", "s"), node("Mul", "a s"), weights={"log_scale": weight(6)}
        ),
        "Exp 'the_s' computes with a parameter alone",
    ),
    "an operator without an example rule": (
        lambda: Case(
            [node("ConvTranspose", "x w b", "y", strides=[2])],
            (3, 4),
            {"w": weight(3, 2, 3), "b": weight(2)},
        ),
        "ConvTranspose 'the_y': no vectorised norm",
    ),
    "a weight that is cut into overlapping parts": (
        lambda: dense_then(
            node("Slice", "v zero three axis", "upper"),
            node("Slice", "v two five axis", "lower"),
            node("Concat", "upper lower", "rows_of_v", axis=0),
            node("MatMul", "a rows_of_v"),
            weights={"v": weight(5, 2), **CUTS},
        ),
        "some trained numbers meet examples twice",
    ),
    "a frozen part of a weight": (
        lambda: dense_then(
            node("Concat", "v fixed", "both", axis=0),
            node("MatMul", "a both"),
            weights={"v": weight(4, 3), "fixed": weight(2, 3)},
            frozen=("fixed",),
        ),
        "trained and frozen numbers are joined by Concat 'the_both'",
    ),
    "a weight on the left": (
        lambda: dense_then(node("MatMul", "v a"), shape=(3, 4), weights={"v": weight(2, 3)}),
        "MatMul 'the_y': a parameter in that place",
    ),
    "a parameter along a merged axis": (
        lambda: Case(
            [
                node("MatMul", "x w", "a"),
                node("Reshape", "a merged", "m"),
                node("Add", "m b", "shifted"),
                node("Reshape", "shifted apart", "y"),
            ],
            (3, 4),
            {
                "w": weight(4, 2),
                "b": weight(2),
                "merged": np.array([-1, 2]),
                "apart": np.array([-1, 3, 2]),
            },
        ),
        "Add 'the_shifted': the batch axis of 'shifted' is merged",
    ),
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_other_models_take_one_example_after_another_and_say_why(name):
    make, reason = FALLBACKS[name]
    case = make()
    _, _, found = case.clipped(1.0, None)
    assert found.form is ExampleForm.SCAN
    assert re.search(reason, found.reason)
    assert_clipped_like_single_examples(case, ExampleForm.SCAN)


MIXING = {
    "a sum over the batch": [node("CumSum", "a zero")],
    "softmax over the batch": [node("Softmax", "a", axis=0)],
    "the batch as columns": [
        node("Transpose", "a", "t", perm=[1, 0]),
        node("Softmax", "t", "s", axis=-1),
        node("Transpose", "s", "y", perm=[1, 0]),
    ],
    "halves of neighbours": [
        node("Reshape", "a halves", "h"),
        node("Transpose", "h", "t", perm=[1, 0, 2]),
        node("Reshape", "t whole", "w"),
        node("Reshape", "w square", "y"),
    ],
    "every example with every other": [
        node("Transpose", "a", "t", perm=[1, 0]),
        node("MatMul", "a t", "products"),
        node("MatMul", "products a"),
    ],
    "an operator that nothing is known of": [node("EyeLike", "a", "eye"), node("Mul", "a eye")],
    "the last example first": [node("Slice", "a last before_first zero_axis last")],
}
SETTINGS = {
    "zero": np.array(0),
    "halves": np.array([-1, 2, 3]),
    "whole": np.array([-1, 3]),
    "square": np.array([-1, 6]),
    "last": np.array([-1]),
    "before_first": np.array([-100]),
    "zero_axis": np.array([0]),
}


@pytest.mark.parametrize("name", MIXING)
def test_models_that_mix_examples_are_found(name):
    nodes = MIXING[name]
    read = {value for made in nodes for value in made.input}
    case = dense_then(*nodes, weights={k: v for k, v in SETTINGS.items() if k in read})
    forward = list(case.model.graph.node)
    reason = why_examples_are_mixed(GraphEmitter(case.model), forward, ["x"], ["rows"])
    assert re.search("mixes examples|not known to keep examples apart", reason)
    assert any(f"'{made.name}'" in reason for made in [*nodes, forward[-1]])


def test_examples_that_reach_nothing_keep_their_weight():
    case = CASES["Gemm"]()
    case.x[:] = 0
    case.weights["b"][:] = 0
    case.weights["c"][:] = 0
    case.target[:] = 0
    gradients, norms, _ = case.clipped(1.0, None)
    assert not norms.any()
    for value in gradients.values():
        np.testing.assert_array_equal(value, 0)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.value)
def test_an_infinite_clip_norm_clips_nothing(form):
    case = CASES["Conv"]()
    free, _, _ = case.clipped(np.inf, form)
    wide, _, _ = case.clipped(1e6, form)
    for name in case.trainable:
        np.testing.assert_array_equal(free[name], wide[name])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.value)
def test_one_example_moves_the_sum_by_no_more_than_the_clip_norm(form):
    case, clip = CASES["MatMul and Add, long"](), 0.25
    with_it, _, _ = case.clipped(clip, form)
    total = case.example_weights.sum()
    case.example_weights[3], dropped = 0, case.example_weights[3]
    without, _, _ = case.clipped(clip, form)
    moved = [with_it[n] * total - without[n] * case.example_weights.sum() for n in with_it]
    distance = np.sqrt(sum(float((m.astype(float) ** 2).sum()) for m in moved))
    assert distance == pytest.approx(dropped * clip, rel=1e-4)


def test_large_tables_are_not_copied_for_each_example():
    case = CASES["Gather"]()
    emitter = GraphEmitter(case.model)
    emit_clipped_gradients(
        emitter,
        list(case.model.graph.node),
        case.trainable,
        batch_inputs=["x"],
        output="rows",
        example_gradients=emit_error(emitter),
        emit_example_gradients=emit_error,
        weights=names.SAMPLE_WEIGHT,
    )
    emitted = [made.op_type for made in emitter.nodes]
    assert sum(op.startswith("Scatter") for op in emitted) == 1, "one table, of the weighted sum"
