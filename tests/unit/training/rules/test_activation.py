"""Gradients of activation functions: smooth points, conventions at kinks, far ends."""

import numpy as np
import pytest
from onnx import helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, differentiated, run_gradients
from tests.node_models import check_node_model, node_models

ACTIVATIONS = {
    "Relu": {},
    "LeakyRelu": {"alpha": 0.2},
    "Elu": {"alpha": 0.7},
    "Selu": {},
    "Celu": {"alpha": 1.7},
    "ThresholdedRelu": {"alpha": 0.6},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.45},
    "HardSwish": {},
    "Sigmoid": {},
    "Tanh": {},
    "Softplus": {},
    "Softsign": {},
    "Erf": {},
}
AT_A_KINK = "touches a kink"
LEFT_OUT = {
    "test_leakyrelu_example": AT_A_KINK,
    "test_elu_example": AT_A_KINK,
    "test_selu_example": AT_A_KINK,
    "test_thresholdedrelu_example": AT_A_KINK,
}
NODE_MODELS = node_models({op: op.lower() for op in [*ACTIVATIONS, "PRelu"]}, left_out=LEFT_OUT)


def node(op, inputs=("x",), **attributes):
    return helper.make_node(op, list(inputs), ["y"], name=f"the_{op}", **attributes)


def smooth_points(seed=1):
    """Values from -6 to 6, none within 0.02 of a kink of any activation here."""
    return np.random.default_rng(seed).permutation(np.linspace(-5.93, 5.97, 60)).reshape(5, 3, 4)


@pytest.mark.parametrize("op", ACTIVATIONS)
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}, {"x": 2}])
def test_activation(op, batch_axes):
    x = {"x": smooth_points()}
    check_gradients(node(op, **ACTIVATIONS[op]), x, batch_axes=batch_axes)


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_activation_with_its_default_attributes(op):
    check_gradients(node(op), {"x": smooth_points(2)})


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("LeakyRelu", {"alpha": -0.3}),
        ("LeakyRelu", {"alpha": 1.5}),
        ("LeakyRelu", {"alpha": 0.0}),
        ("Elu", {"alpha": 2.5}),
        ("Selu", {"alpha": 1.1, "gamma": 1.1}),
        ("Selu", {"alpha": 0.5, "gamma": 3.0}),
        ("Celu", {"alpha": 0.3}),
        ("ThresholdedRelu", {"alpha": -0.7}),
        ("HardSigmoid", {"alpha": -0.25, "beta": 0.6}),
    ],
)
def test_other_attributes(op, attributes):
    check_gradients(node(op, **attributes), {"x": smooth_points(3)})


@pytest.mark.parametrize("case", NODE_MODELS, ids=lambda case: case.name)
def test_node_model_of_onnx(case):
    check_node_model(case)


@pytest.mark.parametrize("slope_shape", [(5, 3, 4), (3, 4), (3, 1), (4,), (1,), (), (1, 3, 1)])
@pytest.mark.parametrize("wanted", [["x", "slope"], ["x"], ["slope"]])
def test_parametric_relu(slope_shape, wanted):
    slope = np.random.default_rng(4).uniform(-0.5, 1.5, slope_shape)
    inputs = {"x": smooth_points(), "slope": slope}
    check_gradients(node("PRelu", ["x", "slope"]), inputs, wanted)
    if slope_shape != (5, 3, 4):
        check_gradients(node("PRelu", ["x", "slope"]), inputs, wanted, batch_axes={"x": 0})


KINKS = {
    # Gradients just at the points; PyTorch gives the same, but where stated.
    "Relu": ({}, [0.0], [0.0]),
    "LeakyRelu": ({"alpha": 0.25}, [0.0], [0.25]),
    "Elu": ({"alpha": 0.5}, [0.0], [0.5]),
    "Selu": ({"alpha": 2.0, "gamma": 1.5}, [0.0], [3.0]),
    "Celu": ({"alpha": 2.0}, [0.0], [1.0]),
    "ThresholdedRelu": ({"alpha": 1.0}, [1.0], [0.0]),
    "HardSigmoid": ({"alpha": 0.25, "beta": 0.5}, [-2.0, 2.0], [0.0, 0.0]),
    "HardSwish": ({}, [-3.0, 3.0], [0.0, 1.0]),
}


@pytest.mark.parametrize("op", KINKS)
def test_convention_at_a_kink(op):
    attributes, points, expected = KINKS[op]
    found = run_gradients(node(op, **attributes), {"x": np.float32(points)})
    np.testing.assert_allclose(found["x"], expected, rtol=1e-6)


def test_parametric_relu_at_zero():
    inputs = {"x": np.float32([0.0]), "slope": np.float32([0.25])}
    found = run_gradients(node("PRelu", ["x", "slope"]), inputs)
    assert (found["x"], found["slope"]) == (0.25, 0.0)


FAR_ENDS = {
    # Slopes at -100 and 100, as PyTorch gives them in float32.
    "Relu": [0, 1],
    "Elu": [0, 1],
    "Selu": [0, 1.0507010],
    "Celu": [0, 1],
    "HardSigmoid": [0, 0],
    "HardSwish": [0, 1],
    "Sigmoid": [0, 0],
    "Tanh": [0, 0],
    "Softplus": [0, 1],
    "Softsign": [1 / 101**2, 1 / 101**2],
    "Erf": [0, 0],
}


@pytest.mark.parametrize("op", FAR_ENDS)
def test_slopes_far_from_zero(op):
    found = run_gradients(node(op), {"x": np.float32([-100, 100])})
    np.testing.assert_allclose(found["x"], FAR_ENDS[op], rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_slopes_of_huge_values_are_finite(op):
    found = run_gradients(node(op), {"x": np.float32([-1e30, -1e10, 1e10, 1e30])})
    assert np.isfinite(found["x"]).all()


@pytest.mark.parametrize(
    ("op", "attributes"), [("Elu", {"alpha": -0.5}), ("Selu", {"gamma": -1.0})]
)
def test_negative_factors_are_refused(op, attributes):
    with pytest.raises(TrainingError, match=f"E-MODEL-OP-FORM.*the_{op}"):
        differentiated(node(op, **attributes), {"x": np.ones(3)})


def test_the_gated_units_that_exporters_write_out():
    gelu = [
        helper.make_node("Div", ["x", "root"], ["scaled"]),
        helper.make_node("Erf", ["scaled"], ["erf"]),
        helper.make_node("Add", ["erf", "one"], ["gate"]),
        helper.make_node("Mul", ["x", "gate"], ["product"]),
        helper.make_node("Mul", ["product", "half"], ["y"]),
    ]
    silu = [node("Sigmoid", ["x"]), helper.make_node("Mul", ["x", "y"], ["z"])]
    mish = [
        helper.make_node("Softplus", ["x"], ["softplus"]),
        helper.make_node("Tanh", ["softplus"], ["gate"]),
        helper.make_node("Mul", ["x", "gate"], ["z"]),
    ]
    constants = {"root": np.sqrt(2), "one": 1.0, "half": 0.5}
    for nodes in (gelu, silu, mish):
        inputs = {"x": smooth_points(), **(constants if nodes is gelu else {})}
        check_gradients(nodes, inputs, ["x"], batch_axes={"x": 0})


def test_masks_avoid_the_slow_where():
    for op in ("Relu", "LeakyRelu", "ThresholdedRelu", "Selu"):
        graph = differentiated(node(op), {"x": np.ones((2, 3))}, batch_axes={"x": 0})
        assert "Where" not in graph.emitted
