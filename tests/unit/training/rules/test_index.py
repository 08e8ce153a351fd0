"""Gradients of reading by index, choosing by a mask and running sums."""

import numpy as np
import pytest
from onnx import helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, run_gradients

RNG = np.random.default_rng(12)


def values(*shape):
    return RNG.normal(size=shape)


def node(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), name=f"the_{op}", **attributes)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize(
    "indices",
    [0, -1, [2], [1, 2], [-2, -1], [2, 0, 2, 2], [-1, 0, 2], [[0, 2], [1, -3]], [[1], [1]]],
    ids=str,
)
def test_gather_of_a_fixed_tensor(axis, indices):
    inputs = {"w": values(3, 3, 4), "indices": np.array(indices, np.int64)}
    check_gradients(node("Gather", ["w", "indices"], axis=axis), inputs)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("indices", [1, [-1], [2, 0, 2], [[0, 2], [1, -3]]], ids=str)
def test_gather_within_examples(axis, indices):
    inputs = {"x": values(2, 3, 4), "indices": np.array(indices, np.int64)}
    check_gradients(node("Gather", ["x", "indices"], axis=axis), inputs, batch_axes={"x": 0})


def test_embedding_adds_up_repeated_tokens():
    inputs = {"table": values(5, 4), "tokens": np.array([[0, 4, 4], [4, -1, 2]], np.int64)}
    source = node("Gather", ["table", "tokens"])
    graph = check_gradients(source, inputs, batch_axes={"tokens": 0})
    assert "ScatterND" in graph.emitted
    ones = run_gradients(source, inputs, batch_axes={"tokens": 0})["table"]
    np.testing.assert_array_equal(ones[:, 0], [1, 0, 1, 0, 4])


def test_the_last_step_of_a_sequence_is_placed_without_scattering():
    inputs = {"x": values(2, 5, 3), "last": np.array(-1, np.int64)}
    source = node("Gather", ["x", "last"], axis=1)
    graph = check_gradients(source, inputs, batch_axes={"x": 0})
    assert graph.emitted == ("Unsqueeze", "Pad")


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "CumSum"])
def test_reading_across_examples_is_refused(op):
    inputs = {"x": values(3, 2), "at": np.array([[0, 1]], np.int64)}
    attributes = {} if op == "CumSum" else {"axis": 0}
    if op == "CumSum":
        inputs["at"] = np.array(0, np.int64)
    with pytest.raises(TrainingError, match=f"{op} 'the_{op}'"):
        run_gradients(node(op, ["x", "at"], **attributes), inputs, ["x"], batch_axes={"x": 0})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis):
    indices = np.array([[0, 1, 1], [1, -2, 1]], np.int64)
    inputs = {"x": values(2, 3), "indices": indices}
    check_gradients(node("GatherElements", ["x", "indices"], axis=axis), inputs)
    if axis:
        source = node("GatherElements", ["x", "indices"], axis=axis)
        check_gradients(source, inputs, batch_axes={"x": 0})


@pytest.mark.parametrize("indices", [[[0], [2], [0]], [[0, 1], [2, -1], [0, 1]]], ids=str)
def test_gather_nd(indices):
    inputs = {"x": values(3, 3, 2), "indices": np.array(indices, np.int64)}
    check_gradients(node("GatherND", ["x", "indices"]), inputs)


def test_gather_nd_with_batch_axes_is_refused():
    inputs = {"x": values(3, 3), "indices": np.array([[0], [2], [1]], np.int64)}
    with pytest.raises(TrainingError, match="batch_dims 0"):
        run_gradients(node("GatherND", ["x", "indices"], batch_dims=1), inputs)


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (2, 3), (2, 3)), ((2, 3), (3,), (1, 1)), ((1, 3), (2, 1), (4, 1, 1))],
    ids=str,
)
def test_where(shapes):
    condition, a, b = shapes
    mask = RNG.permutation(np.arange(np.prod(condition)) % 2 == 0).reshape(condition)
    check_gradients(node("Where", ["c", "a", "b"]), {"c": mask, "a": values(*a), "b": values(*b)})


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [1, -1])
def test_running_sums(exclusive, reverse, axis):
    source = node("CumSum", ["x", "axis"], exclusive=exclusive, reverse=reverse)
    inputs = {"x": values(2, 3, 4), "axis": np.array(axis, np.int64)}
    check_gradients(source, inputs, batch_axes={"x": 0})
