"""Operators that let no gradient through: what surrounds them is differentiated as if constant."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, run_gradients

X = np.array([[0.5, -1.25, 2.0], [1.75, 0.25, -0.5]])


def node(op, inputs, outputs, **attributes):
    return helper.make_node(
        op, list(inputs), list(outputs), name=f"the_{op}_{outputs[0]}", **attributes
    )


def flags(op, *, operands=("x", "half")):
    """x times the flags that the operator makes of x."""
    return [
        node(op, operands, ["flags"]),
        node("Cast", ["flags"], ["stopped"], to=TensorProto.FLOAT),
    ]


def of_flags(op, *, operands):
    return [node("Greater", ["x", "half"], ["greater"]), *flags(op, operands=operands)]


def counts(op, **attributes):
    return [
        node(op, ["x"], ["count"], **attributes),
        node("Cast", ["count"], ["stopped"], to=TensorProto.FLOAT),
    ]


CASES = {
    "And": of_flags("And", operands=("greater", "yes")),
    "ArgMax": counts("ArgMax", axis=1),
    "ArgMin": counts("ArgMin", axis=1),
    "ConstantOfShape": [
        node("Shape", ["x"], ["sizes"]),
        node("ConstantOfShape", ["sizes"], ["ones"], value=numpy_helper.from_array(np.array([1]))),
        node("Cast", ["ones"], ["stopped"], to=TensorProto.FLOAT),
    ],
    "Equal": flags("Equal"),
    "Greater": flags("Greater"),
    "GreaterOrEqual": flags("GreaterOrEqual"),
    "IsInf": flags("IsInf", operands=("x",)),
    "IsNaN": flags("IsNaN", operands=("x",)),
    "Less": flags("Less"),
    "LessOrEqual": flags("LessOrEqual"),
    "NonZero": [
        node("Greater", ["x", "half"], ["greater"]),
        node("NonZero", ["greater"], ["places"]),
        node("Size", ["places"], ["count"]),
        node("Cast", ["count"], ["stopped"], to=TensorProto.FLOAT),
    ],
    "Not": of_flags("Not", operands=("greater",)),
    "Or": of_flags("Or", operands=("greater", "no")),
    "Shape": counts("Shape", start=1),
    "Size": counts("Size"),
    "Xor": of_flags("Xor", operands=("greater", "yes")),
}
FIXED = {"half": np.array(0.5), "yes": np.array(True), "no": np.array(False)}


@pytest.mark.parametrize("op", CASES)
def test_a_stopped_factor_counts_as_constant(op):
    nodes = [
        *CASES[op],
        node("Add", ["stopped", "half"], ["factor"]),
        node("Mul", ["x", "factor"], "y"),
    ]
    x = np.where(X == 0.5, 0.6, X)
    check_gradients(nodes, {"x": x, **FIXED}, wanted=["x"])


def test_a_tensor_behind_nothing_else_is_refused():
    with pytest.raises(TrainingError, match="no gradient for 'x'"):
        run_gradients(
            [*flags("Greater"), node("Mul", ["stopped", "half"], "y")], {"x": X, **FIXED}, ["x"]
        )
