"""Gradients of maxima and averages over windows."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.rules import max_pool
from tests.gradient_check import check_gradients, differentiated, run_gradients

RNG = np.random.default_rng(15)
BATCH = 2


def values(*shape):
    """Numbers at least 0.1 apart: a maximum must stay one when it moves a little."""
    return RNG.permutation(np.arange(np.prod(shape))).reshape(shape) / 10 - 1


def node(op, **attributes):
    return helper.make_node(op, ["x"], ["y"], name=f"the_{op}", **attributes)


WINDOWS = {
    "apart": ((2, 8), {"kernel_shape": [2], "strides": [2]}),
    "apart by three": ((2, 9), {"kernel_shape": [3], "strides": [3]}),
    "apart with a tail": ((2, 9), {"kernel_shape": [2], "strides": [2]}),
    "with gaps": ((2, 9), {"kernel_shape": [2], "strides": [3]}),
    "overlapping": ((2, 9), {"kernel_shape": [3], "strides": [2]}),
    "stride 1": ((2, 6), {"kernel_shape": [3]}),
    "padded": ((2, 7), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    "padded on one side": ((2, 7), {"kernel_shape": [3], "strides": [2], "pads": [0, 2]}),
    "rounded up": ((2, 8), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    "rounded up, padded": (
        (2, 8),
        {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "ceil_mode": 1},
    ),
    "two axes": ((2, 6, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "two axes, overlapping": (
        (2, 8, 8),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "two axes, odd sizes": (
        (2, 7, 9),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "two axes, unlike": ((2, 6, 7), {"kernel_shape": [2, 3], "strides": [2, 1]}),
    "three axes": ((2, 4, 4, 4), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    "long": ((1, 14), {"kernel_shape": [9], "strides": [2]}),
    "long, apart": ((1, 20), {"kernel_shape": [9], "strides": [10]}),
    "SAME_UPPER": ((2, 7), {"kernel_shape": [2], "strides": [2], "auto_pad": "SAME_UPPER"}),
    "SAME_LOWER": ((2, 7), {"kernel_shape": [4], "strides": [2], "auto_pad": "SAME_LOWER"}),
    "VALID": ((2, 7), {"kernel_shape": [3], "strides": [2], "auto_pad": "VALID"}),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_max_pool(case):
    shape, attributes = WINDOWS[case]
    check_gradients(
        node("MaxPool", **attributes), {"x": values(BATCH, *shape)}, batch_axes={"x": 0}
    )


@pytest.mark.parametrize("dilation", [2, 3])
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_max_pool_with_dilation(dilation, stride):
    source = node("MaxPool", kernel_shape=[2], strides=[stride], dilations=[dilation])
    check_gradients(source, {"x": values(BATCH, 2, 9)}, batch_axes={"x": 0})


@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.parametrize("include", [0, 1])
def test_average_pool(case, include):
    shape, attributes = WINDOWS[case]
    source = node("AveragePool", count_include_pad=include, **attributes)
    check_gradients(source, {"x": values(BATCH, *shape)}, batch_axes={"x": 0})


def test_the_first_of_equal_samples_gets_the_gradient():
    source = node("MaxPool", kernel_shape=[2], strides=[2])
    x = np.array([[[1, 1, 2, 3, 5, 4, 0, 0]]])
    found = run_gradients(source, {"x": x.astype(np.float64)}, batch_axes={"x": 0})["x"]
    np.testing.assert_array_equal(found, [[[1, 0, 0, 1, 1, 0, 1, 0]]])
    overlapping = node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    found = run_gradients(overlapping, {"x": np.ones((1, 1, 4, 4))}, batch_axes={"x": 0})["x"]
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    np.testing.assert_array_equal(found[0, 0], expected)


@pytest.mark.parametrize("case", [*WINDOWS, "dilated"])
def test_both_forms_give_ties_to_the_same_sample(case, monkeypatch):
    shape, attributes = WINDOWS.get(case, ((2, 9), {"kernel_shape": [3], "dilations": [2]}))
    source = node("MaxPool", **attributes)
    x = RNG.integers(0, 3, (BATCH, *shape)).astype(np.float64)
    chosen = run_gradients(source, {"x": x}, batch_axes={"x": 0})["x"]
    monkeypatch.setattr(max_pool, "phases_pay", lambda _: False)
    places = run_gradients(source, {"x": x}, batch_axes={"x": 0})["x"]
    np.testing.assert_allclose(chosen, places, rtol=1e-6)
    graph = differentiated(source, {"x": x}, batch_axes={"x": 0})
    assert "MaxPool" in graph.emitted


def test_taps_in_the_padding_alone_are_left_out():
    source = node("MaxPool", kernel_shape=[2], strides=[2], pads=[1, 0])
    graph = check_gradients(source, {"x": values(BATCH, 1, 2)}, batch_axes={"x": 0})
    assert "Equal" not in graph.emitted


@pytest.mark.parametrize(
    ("case", "by_places"),
    [("apart", False), ("two axes, overlapping", False), ("with gaps", False), ("long", True)],
)
def test_the_form_follows_the_geometry(case, by_places):
    shape, attributes = WINDOWS[case]
    source = node("MaxPool", **attributes)
    graph = differentiated(source, {"x": values(BATCH, *shape)}, batch_axes={"x": 0})
    assert ("MaxPool" in graph.emitted) == by_places


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_unknown_sizes_are_refused_by_name(op):
    source = node(op, kernel_shape=[2])
    with pytest.raises(TrainingError, match=f"{op} 'the_{op}'"):
        run_gradients(source, {"x": values(2, 2, 6)}, batch_axes={"x": 2})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_behind_the_input_is_refused(op):
    source = node(op, kernel_shape=[1], strides=[2], ceil_mode=1)
    with pytest.raises(TrainingError, match="windows that start within the input"):
        run_gradients(source, {"x": values(2, 2, 6)}, batch_axes={"x": 0})


@st.composite
def pools(draw):
    axes = draw(st.sampled_from([1, 1, 2]))
    per_axis = st.lists(st.integers(1, 3), min_size=axes, max_size=axes)
    kernel, strides = draw(per_axis), draw(per_axis)
    attributes = {"kernel_shape": kernel, "strides": strides}
    mode = draw(st.sampled_from(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if mode == "pads":
        attributes["pads"] = [draw(st.integers(0, k - 1)) for k in kernel * 2]
        attributes["ceil_mode"] = draw(st.integers(0, 1))
    else:
        attributes["auto_pad"] = mode
        # onnxruntime refuses gaps between windows together with SAME_*.
        assume(mode == "VALID" or all(k >= s for k, s in zip(kernel, strides, strict=True)))
    sizes = [low + draw(st.integers(0, 5)) for low in kernel]
    if attributes.get("ceil_mode"):
        # onnxruntime and onnx disagree on a last window that starts behind the input.
        pads = attributes["pads"]
        rooms = [
            n + b + e - k for n, b, e, k in zip(sizes, pads, pads[axes:], kernel, strict=False)
        ]
        starts = [-(-room // s) * s for room, s in zip(rooms, strides, strict=True)]
        assume(all(at < n + b for at, n, b in zip(starts, sizes, pads, strict=False)))
    return {"x": values(BATCH, draw(st.integers(1, 3)), *sizes)}, attributes


@settings(max_examples=40)
@given(pools())
def test_max_pool_over_any_geometry(case):
    inputs, attributes = case
    check_gradients(node("MaxPool", **attributes), inputs, batch_axes={"x": 0})


@settings(max_examples=40)
@given(pools(), st.integers(0, 1))
def test_average_pool_over_any_geometry(case, include):
    inputs, attributes = case
    source = node("AveragePool", count_include_pad=include, **attributes)
    check_gradients(source, inputs, batch_axes={"x": 0})
