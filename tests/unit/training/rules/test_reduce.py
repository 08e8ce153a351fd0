"""Gradients of reductions and global pooling: axes, dropped axes, ties, zeros, the batch axis."""

import numpy as np
import pytest
from onnx import helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, differentiated, run_gradients
from tests.node_models import check_node_model, node_models

REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceProd",
)
GLOBAL_POOLS = ("GlobalAveragePool", "GlobalMaxPool")
MODULES = {op: op.lower() for op in [*REDUCTIONS, *GLOBAL_POOLS]} | {
    "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp",
}
NO_VALUES = "has no values to differentiate"
LEFT_OUT = {
    **{
        f"test_reduce_{name}_empty_set": NO_VALUES
        for name in ("sum", "max", "min", "l1", "l2", "sum_square", "prod", "log_sum")
    },
    "test_reduce_log_sum_exp_empty_set": NO_VALUES,
    "test_reduce_sum_empty_set_non_reduced_axis_zero": NO_VALUES,
    "test_reduce_min_default_axes_keepdims_example": "has ties",
}
NODE_MODELS = node_models(MODULES, left_out=LEFT_OUT)


def reduction(op, axes=None, **attributes):
    """A node over the axes; ReduceSum takes them as an input, the others as an attribute."""
    inputs = ["x"]
    if axes is not None and op == "ReduceSum":
        inputs.append("axes")
    elif axes is not None:
        attributes["axes"] = axes
    return helper.make_node(op, inputs, ["y"], name=f"the_{op}", **attributes)


def values(op, shape=(3, 2, 4), axes=None):
    """Values no two of which are equal, positive where a logarithm asks for it."""
    size = int(np.prod(shape))
    x = np.random.default_rng(size).permutation(np.linspace(-1.8, 1.9, size)).reshape(shape)
    inputs = {"x": np.abs(x) + 0.3 if op == "ReduceLogSum" else x}
    if axes is not None and op == "ReduceSum":
        inputs["axes"] = np.array(axes, np.int64)
    return inputs


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [None, [0], [1], [-1], [1, 2], [-1, 0], [2, 0, 1]])
def test_any_axes(op, keepdims, axes):
    inputs = values(op, axes=axes)
    check_gradients(reduction(op, axes, keepdims=keepdims), inputs, ["x"])


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("axes", "batch"), [([1], 0), ([1, 2], 0), ([-1], 0), ([0], 1), ([0, -1], 1), ([0], 2)]
)
def test_axes_beside_the_batch_axis(op, keepdims, axes, batch):
    inputs = values(op, axes=axes)
    node = reduction(op, axes, keepdims=keepdims)
    check_gradients(node, inputs, ["x"], batch_axes={"x": batch})


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("axes", [None, [0], [1, -3], [0, 1, 2]])
def test_the_batch_axis_is_refused(op, axes):
    inputs = values(op, axes=axes)
    with pytest.raises(TrainingError, match=f"E-MODEL-OP-FORM.*the_{op}' over the batch axis"):
        differentiated(reduction(op, axes), inputs, ["x"], batch_axes={"x": 0})


@pytest.mark.parametrize("op", GLOBAL_POOLS)
@pytest.mark.parametrize("shape", [(3, 2, 5), (3, 2, 4, 5), (2, 1, 2, 3, 2)])
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}])
def test_global_pooling(op, shape, batch_axes):
    node = helper.make_node(op, ["x"], ["y"])
    check_gradients(node, values(op, shape), batch_axes=batch_axes)


@pytest.mark.parametrize("case", NODE_MODELS, ids=lambda case: case.name)
def test_node_model_of_onnx(case):
    check_node_model(case)


def test_a_sum_over_no_axes_may_pass_its_input_on():
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], noop_with_empty_axes=1)
    inputs = {"x": np.ones((2, 3)), "axes": np.array([], np.int64)}
    graph = check_gradients(node, inputs, ["x"], batch_axes={"x": 0})
    assert graph.emitted == ()


def test_computed_axes_are_refused():
    nodes = [
        helper.make_node("Add", ["one", "one"], ["axes"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="the_sum"),
    ]
    inputs = {"x": np.ones((2, 3, 4)), "one": np.array([1], np.int64)}
    with pytest.raises(TrainingError, match=r"E-MODEL-OP-FORM.*the_sum"):
        differentiated(nodes, inputs, ["x"])


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "GlobalMaxPool"])
def test_equal_extremes_share_the_gradient(op):
    # As torch.amax and torch.amin do.
    x = np.float32([[[1, 3, 3, 2]], [[0, 0, 0, 0]]]) * (-1 if op == "ReduceMin" else 1)
    attributes = {} if op == "GlobalMaxPool" else {"axes": [2]}
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    found = run_gradients(node, {"x": x}, batch_axes={"x": 0})["x"]
    np.testing.assert_array_equal(found, [[[0, 0.5, 0.5, 0]], [[0.25, 0.25, 0.25, 0.25]]])


def test_norms_of_nothing_have_no_gradient():
    # torch.linalg.vector_norm gives 0 too, for orders 1 and 2.
    x = {"x": np.float32([[0, 0], [3, -4]])}
    first = run_gradients(reduction("ReduceL1", [1]), x)["x"]
    np.testing.assert_array_equal(first, [[0, 0], [1, -1]])
    second = run_gradients(reduction("ReduceL2", [1]), x)["x"]
    np.testing.assert_allclose(second, [[0, 0], [0.6, -0.8]], rtol=1e-6)


@pytest.mark.parametrize("x", [[2.0, 3.0, 4.0], [0.0, 3.0, 4.0], [0.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
def test_products_with_zeros(x):
    row = np.float32([x])
    found = run_gradients(reduction("ReduceProd", [1]), {"x": row})["x"][0]
    expected = [np.prod(np.delete(row[0], index)) for index in range(3)]
    np.testing.assert_array_equal(found, expected)


def test_log_sum_exp_of_extremes_is_a_softmax():
    x = {"x": np.float32([[100, -100, 100], [-np.inf, 0, 0], [-np.inf, -np.inf, -np.inf]])}
    found = run_gradients(reduction("ReduceLogSumExp", [1]), x)["x"]
    np.testing.assert_allclose(found, [[0.5, 0, 0.5], [0, 0.5, 0.5], [0, 0, 0]], rtol=1e-5)


def test_a_large_mean_leaves_no_large_constant_behind():
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    graph = check_gradients(nodes, {"x": np.ones((1, 1, 40, 50))}, batch_axes={"x": 0})
    assert len(graph.combined.SerializeToString()) < 1000
