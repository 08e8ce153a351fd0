"""Operators through which no gradient flows, beside a path on which one does."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, differentiated

COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
OF_FLAGS = ("And", "Or", "Xor", "Not")
OF_ONE_VALUE = ("ArgMax", "ArgMin", "IsInf", "IsNaN", "NonZero", "Shape", "Size")
STOPS = (*COMPARISONS, *OF_FLAGS, *OF_ONE_VALUE, "ConstantOfShape")


def stopping(op):
    """Nodes from x to `stopped`, the last but for casts and counts being the operator."""
    if op in COMPARISONS:
        return [helper.make_node(op, ["x", "bound"], ["stopped"])]
    if op in OF_FLAGS:
        flags = ["low", "high"][: 1 if op == "Not" else 2]
        return [
            helper.make_node("Less", ["x", "bound"], ["low"]),
            helper.make_node("Greater", ["x", "one"], ["high"]),
            helper.make_node(op, flags, ["stopped"]),
        ]
    if op == "NonZero":
        places = helper.make_node(op, ["x"], ["places"])
        return [places, helper.make_node("Size", ["places"], ["stopped"])]
    if op == "ConstantOfShape":
        sizes = helper.make_node("Shape", ["x"], ["sizes"])
        ones = helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0])
        return [sizes, helper.make_node(op, ["sizes"], ["stopped"], value=ones)]
    return [helper.make_node(op, ["x"], ["stopped"])]


def counted(op):
    """The same, summed to the float scalar `count`."""
    return [
        *stopping(op),
        helper.make_node("Cast", ["stopped"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["count"], keepdims=0),
    ]


def values():
    x = np.random.default_rng(2).permutation(np.linspace(-1.9, 2.1, 12)).reshape(3, 4)
    return {"x": x, "bound": 0.5, "one": 1.0}


@pytest.mark.parametrize("op", STOPS)
def test_it_counts_as_constant(op):
    factor = [
        helper.make_node("Add", ["count", "one"], ["factor"]),
        helper.make_node("Mul", ["x", "factor"], ["y"]),
    ]
    check_gradients([*counted(op), *factor], values(), ["x"])


@pytest.mark.parametrize("op", STOPS)
def test_alone_it_leaves_no_gradient(op):
    with pytest.raises(TrainingError, match="E-MODEL-NO-GRADIENT"):
        differentiated(counted(op), values(), ["x"])
