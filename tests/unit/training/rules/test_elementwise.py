"""Gradients of arithmetic value by value: broadcasting, conventions at kinks, values near zero."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, differentiated, run_gradients
from tests.node_models import check_node_model, node_models

# Sizes of the operands, and the batch axis of each that has one.
BROADCASTS = {
    "equal": ((3, 4), (3, 4), {}),
    "trailing": ((2, 3, 4), (4,), {}),
    "ones": ((2, 3, 4), (2, 1, 1), {}),
    "fewer axes and ones": ((2, 3, 4), (3, 1), {}),
    "scalar": ((3, 4), (), {}),
    "both": ((3, 1), (1, 4), {}),
    "first": ((4,), (2, 3, 4), {}),
    "batch, one example": ((5, 3, 4), (3, 4), {"a": 0}),
    "batch, ones": ((5, 3, 4), (1, 3, 1), {"a": 0}),
    "batch, scalar": ((5, 3), (), {"a": 0}),
    "batch, first operand": ((4,), (5, 3, 4), {"b": 0}),
    "batch, both": ((5, 3, 1), (3, 4), {"a": 0}),
    "batch moved": ((3, 5, 4), (3, 1, 4), {"a": 1}),
    "batch moved, fewer axes": ((3, 4, 5), (4, 1), {"a": 2}),
    "batch moved, both": ((1, 5, 4), (3, 1, 1), {"a": 1}),
    "two batches": ((5, 3, 4), (5, 1, 4), {"a": 0, "b": 0}),
    "two batches, fewer axes": ((2, 5, 4), (5, 1), {"a": 1, "b": 0}),
}
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean")
UNARY = ("Neg", "Abs", "Exp", "Sqrt", "Log", "Reciprocal")
STEPS = ("Ceil", "Floor", "Round", "Sign")
LEFT_OUT = {
    "test_pow": "powers of negative numbers are NaN",
    "test_pow_types_float32_uint32": "onnxruntime has no kernel",
    "test_pow_types_float32_uint64": "onnxruntime has no kernel",
    "test_pow_types_int32_float32": "the base is no float",
    "test_pow_types_int64_float32": "the base is no float",
    "test_clip_min_greater_than_max": "bounds that cross are a mistake of the model",
}
NODE_MODELS = node_models({op: op.lower() for op in [*BINARY, *UNARY, "Clip"]}, left_out=LEFT_OUT)


def node(op, inputs, **attributes):
    return helper.make_node(op, inputs, ["y"], name=f"the_{op}", **attributes)


def operands(a_shape, b_shape, seed=0):
    """Values from 0.5 to 3.5, no two of them equal: smooth for every operator here."""
    rng = np.random.default_rng([seed, *a_shape, *b_shape])
    count = int(np.prod(a_shape))
    size = count + int(np.prod(b_shape))
    values = rng.permutation(np.linspace(0.5, 3.5, size))
    if b_shape == ():
        # A scalar at either end would always or never be the extreme.
        values = np.append(np.sort(values)[np.arange(size) != size // 2], np.median(values))
    return {"a": values[:count].reshape(a_shape), "b": values[count:].reshape(b_shape)}


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("pattern", BROADCASTS)
def test_broadcast_operands(op, pattern):
    a_shape, b_shape, batch_axes = BROADCASTS[pattern]
    check_gradients(node(op, ["a", "b"]), operands(a_shape, b_shape), batch_axes=batch_axes)


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}])
def test_one_operand(op, batch_axes):
    x = np.linspace(0.4, 2.5, 12).reshape(3, 4) * np.where(op in {"Neg", "Abs", "Exp"}, -1, 1)
    check_gradients(node(op, ["x"]), {"x": x}, batch_axes=batch_axes)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_any_number_of_operands(op, count):
    shapes = [(2, 3, 4), (3, 1), (2, 1, 4), (4,)][:count]
    size = sum(int(np.prod(shape)) for shape in shapes)
    values = np.random.default_rng(count).permutation(np.linspace(-2, 2, size))
    parts = np.split(values, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
    names = [f"x{index}" for index in range(count)]
    inputs = {n: part.reshape(s) for n, part, s in zip(names, parts, shapes, strict=True)}
    check_gradients(node(op, list(inputs)), inputs)


@pytest.mark.parametrize("case", NODE_MODELS, ids=lambda case: case.name)
def test_node_model_of_onnx(case):
    check_node_model(case, zero_allowed=("min", "max") if case.op_type == "Clip" else ())


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_a_value_with_itself(op):
    x = {"x": np.linspace(0.4, 2.5, 12).reshape(3, 4)}
    constant = ("x",) if op in {"Sub", "Div"} else ()
    check_gradients(node(op, ["x", "x"]), x, zero_allowed=constant)


def test_a_square_takes_two_nodes():
    graph = differentiated(node("Mul", ["x", "x"]), {"x": np.ones((3, 4))})
    assert graph.emitted == ("Mul", "Mul")


@pytest.mark.parametrize(
    "exponent", [-1.5, -1.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.float32([0.0, 2.0, 1.5])]
)
def test_powers_by_a_fixed_exponent(exponent):
    inputs = {"x": np.linspace(0.4, 2.5, 12).reshape(4, 3), "p": exponent}
    check_gradients(node("Pow", ["x", "p"]), inputs, ["x"], batch_axes={"x": 0})


@pytest.mark.parametrize("exponent", [np.int64(3), np.int32([2, 1, 0, 3])])
def test_powers_by_whole_numbers(exponent):
    x = np.linspace(-1.4, 2.5, 12).reshape(3, 4)
    check_gradients(node("Pow", ["x", "p"]), {"x": x, "p": exponent}, ["x"])


def test_powers_by_computed_whole_numbers():
    nodes = [
        helper.make_node("Cast", ["x"], ["p"], to=TensorProto.INT64),
        node("Pow", ["x", "p"]),
    ]
    x = np.linspace(-2.3, 2.4, 12).reshape(3, 4)
    check_gradients(nodes, {"x": x}, batch_axes={"x": 0})


def test_power_zero_has_no_gradient():
    with pytest.raises(TrainingError, match="E-MODEL-NO-GRADIENT"):
        differentiated(node("Pow", ["x", "p"]), {"x": np.ones(3), "p": 0.0}, ["x"])


def test_powers_at_zero_are_those_of_pytorch():
    # torch 2.x, x.pow(p).sum().backward(): x.grad = 0, 1, 0, 0 and p.grad = 0 everywhere.
    inputs = {"x": np.zeros(4), "p": np.float32([0, 1, 2, 3])}
    found = run_gradients(node("Pow", ["x", "p"]), inputs)
    np.testing.assert_array_equal(found["x"], [0, 1, 0, 0])
    np.testing.assert_array_equal(found["p"], [0, 0, 0, 0])
    fixed = run_gradients(node("Pow", ["x", "p"]), inputs, ["x"])
    np.testing.assert_array_equal(fixed["x"], [0, 1, 0, 0])


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_of_equal_operands_the_first_takes_all(op):
    inputs = {"a": np.float32([0, 1, 2]), "b": np.float32([0, 1, 2]), "c": np.float32([0, 1, 2])}
    found = run_gradients(node(op, ["a", "b", "c"]), inputs)
    np.testing.assert_array_equal(found["a"], [1, 1, 1])
    np.testing.assert_array_equal(found["b"], [0, 0, 0])
    np.testing.assert_array_equal(found["c"], [0, 0, 0])


def test_the_first_of_the_equal_greatest_takes_all():
    inputs = {"a": np.float32([0, 5]), "b": np.float32([1, 2]), "c": np.float32([1, 5])}
    found = run_gradients(node("Max", ["a", "b", "c"]), inputs)
    np.testing.assert_array_equal([found[name] for name in "abc"], [[0, 1], [1, 0], [0, 0]])


def test_a_maximum_with_a_constant_takes_three_nodes():
    graph = differentiated(node("Max", ["x", "p"]), {"x": np.ones(3), "p": 0.0}, ["x"])
    assert graph.emitted == ("Equal", "Cast", "Mul")


def test_absolute_value_at_zero():
    found = run_gradients(node("Abs", ["x"]), {"x": np.float32([-2, 0, 3])})
    np.testing.assert_array_equal(found["x"], [-1, 0, 1])


CLIP_BOUNDS = {
    "none": ["x"],
    "lower": ["x", "low"],
    "upper": ["x", "", "high"],
    "both": ["x", "low", "high"],
}


@pytest.mark.parametrize("bounds", CLIP_BOUNDS)
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}])
def test_clip(bounds, batch_axes):
    names = CLIP_BOUNDS[bounds]
    x = np.random.default_rng(3).permutation(np.linspace(-2, 2, 20)).reshape(5, 4)
    inputs = {"x": x, "low": -0.63, "high": 0.81}
    read = [name for name in names if name]
    check_gradients(node("Clip", names), inputs, read, batch_axes=batch_axes)
    graph = check_gradients(node("Clip", names), inputs, ["x"], batch_axes=batch_axes)
    assert graph.emitted == (() if bounds == "none" else ("Equal", "Cast", "Mul"))


def test_clip_at_its_bounds_passes_the_gradient_to_x():
    inputs = {"x": np.float32([-2, -1, 0, 1, 2]), "low": np.float32(-1), "high": np.float32(1)}
    found = run_gradients(node("Clip", ["x", "low", "high"]), inputs)
    np.testing.assert_array_equal(found["x"], [0, 1, 1, 1, 0])
    assert (found["low"], found["high"]) == (1, 1)


@pytest.mark.parametrize("op", STEPS)
def test_steps_stop_the_gradient(op):
    x = {"x": np.linspace(-2, 2, 12).reshape(3, 4)}
    with pytest.raises(TrainingError, match="E-MODEL-NO-GRADIENT"):
        differentiated(node(op, ["x"]), x)
    beside = [
        helper.make_node(op, ["x"], ["steps"]),
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Add", ["steps", "square"], ["y"]),
    ]
    found = run_gradients(beside, x)
    np.testing.assert_allclose(found["x"], 2 * x["x"], rtol=1e-6)


@pytest.mark.parametrize("op", BINARY)
def test_the_batch_axis_and_a_fixed_size_do_not_meet(op):
    inputs = operands((5, 4), (5, 4))
    with pytest.raises(TrainingError, match=f"E-MODEL-BATCH.*the_{op}"):
        differentiated(node(op, ["a", "b"]), inputs, batch_axes={"a": 0})


@pytest.mark.parametrize(
    ("op", "wanted", "emitted"),
    [
        ("Sub", ["a"], ()),
        ("Mul", ["b"], ("Mul",)),
        ("Div", ["a"], ("Div",)),
        ("Mean", ["b"], ("Mul",)),
        ("Pow", ["b"], ("Equal", "Where", "Log", "Mul", "Mul")),
    ],
)
def test_nothing_is_emitted_that_is_not_wanted(op, wanted, emitted):
    graph = differentiated(node(op, ["a", "b"]), operands((3, 4), (3, 4)), wanted)
    assert graph.emitted == emitted


def test_near_zero_the_gradients_are_those_of_pytorch():
    # torch 2.x in float32: y = x.sqrt(), x.log(), x.reciprocal() and 1 / x, at x = 1e-30.
    x = {"x": np.float32([1e-30])}
    assert run_gradients(node("Sqrt", ["x"]), x)["x"] == pytest.approx(5e14, rel=1e-5)
    assert run_gradients(node("Log", ["x"]), x)["x"] == pytest.approx(1e30, rel=1e-5)
    ratio = run_gradients(node("Div", ["one", "x"]), {"one": np.float32([1.0]), **x})
    assert ratio["one"] == pytest.approx(1e30, rel=1e-5)
    assert ratio["x"] == -np.inf
    assert run_gradients(node("Sqrt", ["x"]), {"x": np.zeros(1)})["x"] == np.inf
