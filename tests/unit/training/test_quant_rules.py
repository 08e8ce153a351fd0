"""Straight-through gradients of rounding, against the definition in plain numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.check import require_rules
from tests.gradient_check import check_gradients, run_gradients


def rounded(name, scale, zero_point, *, axis=None):
    """Nodes that round a value to integers and back, and their constants."""
    attributes = {} if axis is None else {"axis": axis}
    inputs = {f"{name}.scale": np.float32(scale), f"{name}.zero": zero_point}
    names = list(inputs)
    down = helper.make_node("QuantizeLinear", [name, *names], [f"{name}.q"], **attributes)
    up = helper.make_node("DequantizeLinear", [f"{name}.q", *names], [f"{name}.dq"], **attributes)
    return [down, up], inputs


def is_kept(x, scale, zero_point):
    """Whether rounding changes a value by no more than half a step: by definition, in float64."""
    kind = np.iinfo(zero_point.dtype)
    integer = np.round(x.astype(np.float64) / scale) + zero_point
    return (kind.min <= integer) & (integer <= kind.max)


@pytest.mark.parametrize(
    "zero_point", [np.int8(0), np.int8(-128), np.int8(17), np.uint8(0), np.uint8(200)]
)
def test_the_gradient_passes_where_nothing_is_cut(zero_point):
    scale = 0.03
    x = np.linspace(-9, 9, 1203, dtype=np.float32).reshape(3, 401)
    nodes, constants = rounded("x", scale, zero_point)
    seeds = np.random.default_rng(1).normal(size=x.shape)
    found = run_gradients(nodes, {"x": x, **constants}, ["x"], seeds={"x.dq": seeds})["x"]
    kept = is_kept(x, np.float64(np.float32(scale)), zero_point)
    assert 0 < kept.sum() < kept.size, "both cases must occur"
    np.testing.assert_array_equal(found, np.where(kept, seeds.astype(np.float32), 0))


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_scales_per_channel(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scale = rng.uniform(0.01, 0.1, shape[axis]).astype(np.float32)
    zero_point = rng.integers(-20, 20, shape[axis]).astype(np.int8)
    x = rng.normal(0, 5, shape).astype(np.float32)
    nodes, constants = rounded("x", scale, zero_point, axis=axis)
    found = run_gradients(nodes, {"x": x, **constants}, ["x"])["x"]
    along = [-1 if index == axis % len(shape) else 1 for index in range(len(shape))]
    kept = is_kept(x, scale.astype(np.float64).reshape(along), zero_point.reshape(along))
    np.testing.assert_array_equal(found, kept.astype(np.float32))


def test_without_a_zero_point_the_integers_are_uint8():
    node = helper.make_node("QuantizeLinear", ["x", "scale"], ["q"])
    back = helper.make_node("DequantizeLinear", ["q", "scale"], ["y"])
    x = np.float32([-1.0, 0.0, 25.5, 25.6])
    found = run_gradients([node, back], {"x": x, "scale": np.float32(0.1)}, ["x"])
    np.testing.assert_array_equal(found["x"], [0, 1, 1, 0])


def test_a_scale_that_follows_the_weight_passes_all_of_its_gradient():
    """The largest weight of a channel sits at the end of the range and must still learn."""
    rng = np.random.default_rng(7)
    w = rng.normal(size=(50, 9)).astype(np.float32)
    nodes = [
        helper.make_node("Abs", ["w"], ["sizes"]),
        helper.make_node("ReduceMax", ["sizes"], ["largest"], axes=[1], keepdims=0),
        helper.make_node("Mul", ["largest", "inverse"], ["w.scale"]),
    ]
    rounding, constants = rounded("w", np.zeros(50), np.zeros(50, np.int8), axis=0)
    del constants["w.scale"]
    found = run_gradients(
        [*nodes, *rounding], {"w": w, "inverse": np.float32(1 / 127), **constants}, ["w"]
    )
    np.testing.assert_array_equal(found["w"], np.ones_like(w))


def test_gradients_through_an_integer_weight_reach_the_input():
    """Where nothing is rounded on the way, the gradient is exact: compare with differences."""
    rng = np.random.default_rng(3)
    weight = rng.integers(-127, 128, (4, 3)).astype(np.int8)
    up = helper.make_node("DequantizeLinear", ["w.q", "s", "z"], ["w"], axis=0)
    product = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    constants = {"s": rng.uniform(0.01, 0.02, 4), "z": np.zeros(4, np.int8), "w.q": weight}
    inputs = {"x": rng.normal(size=(5, 3)), "b": rng.normal(size=4)}
    check_gradients([up, product], {**inputs, **constants}, ["x", "b"], batch_axes={"x": 0})


@pytest.mark.parametrize(
    ("last", "op"), [("sums", "MatMulInteger"), ("q", "DynamicQuantizeLinear")]
)
def test_integer_operators_are_refused_with_advice(last, op):
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="the_rounding"),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["sums"], name="the_product"),
        helper.make_node("Cast", [last], ["floats"], to=TensorProto.FLOAT),
    ]
    with pytest.raises(TrainingError) as refusal:
        require_rules(nodes, ["x"])
    assert refusal.value.code == "E-MODEL-UNSUPPORTED-OPS"
    assert f"{op} 'the_" in str(refusal.value)
    assert "--quantize static" in str(refusal.value)
    require_rules(nodes, ["s"])
