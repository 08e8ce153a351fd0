"""Gradients of softmax and its logarithm: any axis, shifts and extremes."""

import numpy as np
import pytest
from onnx import helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, differentiated, run_gradients
from tests.node_models import check_node_model, node_models

OPERATORS = ("Softmax", "LogSoftmax")
# 10,000 in one operand: a step of 1e-6 is lost in float32 and the slopes are 0 in float64.
LEFT_OUT = {"test_softmax_large_number", "test_logsoftmax_large_number"}
NODE_MODELS = node_models({op: op.lower() for op in OPERATORS}, left_out=LEFT_OUT)


def node(op, **attributes):
    return helper.make_node(op, ["x"], ["y"], name=f"the_{op}", **attributes)


def values(shape, seed=0):
    return {"x": np.random.default_rng([seed, *shape]).normal(0, 2, shape)}


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2, -3])
def test_any_axis(op, axis):
    attributes = {} if axis is None else {"axis": axis}
    check_gradients(node(op, **attributes), values((3, 4, 5)))
    if axis not in {0, -3}:
        check_gradients(node(op, **attributes), values((3, 4, 5)), batch_axes={"x": 0})
    if axis not in {1, -2}:
        check_gradients(node(op, **attributes), values((3, 4, 5)), batch_axes={"x": 1})


@pytest.mark.parametrize("op", OPERATORS)
def test_one_class(op):
    check_gradients(node(op), values((3, 1)), zero_allowed=["x"])


@pytest.mark.parametrize("case", NODE_MODELS, ids=lambda case: case.name)
def test_node_model_of_onnx(case):
    check_node_model(case)


@pytest.mark.parametrize("op", OPERATORS)
def test_the_batch_axis_is_refused(op):
    with pytest.raises(TrainingError, match=f"E-MODEL-OP-FORM.*the_{op}.*over the batch axis"):
        differentiated(node(op, axis=0), values((3, 4)), batch_axes={"x": 0})


@pytest.mark.parametrize("op", OPERATORS)
def test_extreme_logits_have_the_gradients_of_pytorch(op):
    x = {"x": np.float32([[100, -100, 0], [100, 100, -100]])}
    seeds = {"y": np.float32([[0, 1, 0], [1, 0, 2]])}
    found = run_gradients(node(op), x, seeds=seeds)["x"]
    # log p = x_i - log sum exp x: its gradient is dy - p sum(dy).
    shares = np.float32([[1, 0, 0], [0.5, 0.5, 0]])
    dy = seeds["y"]
    if op == "LogSoftmax":
        expected = dy - shares * dy.sum(axis=1, keepdims=True)
    else:
        expected = shares * (dy - (shares * dy).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_mask_of_minus_infinity_gives_no_gradient_to_the_masked():
    x = {"x": np.float32([[1, -np.inf, 2]])}
    found = run_gradients(node("Softmax"), x, seeds={"y": np.float32([[1, 5, 0]])})["x"]
    assert found[0, 1] == 0
    assert np.isfinite(found).all()


@pytest.mark.parametrize("op", OPERATORS)
def test_four_nodes(op):
    assert len(differentiated(node(op), values((3, 4))).emitted) == 4
