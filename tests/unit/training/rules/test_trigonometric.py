"""Gradients of trigonometric and hyperbolic functions."""

import numpy as np
import pytest
from onnx import helper

from tests.gradient_check import check_gradients
from tests.node_models import check_node_model, node_models

FUNCTIONS = ("Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh")
NODE_MODELS = node_models({op: op.lower() for op in FUNCTIONS})


@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}])
def test_function(op, batch_axes):
    x = np.linspace(-1.4, 1.3, 12).reshape(3, 4)
    check_gradients(helper.make_node(op, ["x"], ["y"]), {"x": x}, batch_axes=batch_axes)


@pytest.mark.parametrize("case", NODE_MODELS, ids=lambda case: case.name)
def test_node_model_of_onnx(case):
    check_node_model(case)
