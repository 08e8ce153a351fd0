"""Gradients of matrix products."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from edgefl.errors import TrainingError
from tests.gradient_check import check_gradients, run_gradients

RNG = np.random.default_rng(13)


def values(*shape):
    return RNG.normal(size=shape)


def node(op, inputs, **attributes):
    return helper.make_node(op, list(inputs), ["y"], name=f"the_{op}", **attributes)


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product([0, 1], repeat=2)))
@pytest.mark.parametrize("bias", [None, (), (4,), (1,), (1, 4), (2, 1), (2, 4)], ids=str)
def test_gemm(trans_a, trans_b, bias):
    inputs = {"x": values(*((3, 2) if trans_a else (2, 3)))}
    inputs["w"] = values(*((4, 3) if trans_b else (3, 4)))
    if bias is not None:
        inputs["b"] = values(*bias)
    source = node("Gemm", inputs, transA=trans_a, transB=trans_b, alpha=0.5, beta=2.0)
    check_gradients(source, inputs)
    if bias != (2, 1) and bias != (2, 4):
        check_gradients(source, inputs, batch_axes={"x": trans_a})


PRODUCTS = [
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((1, 5, 2, 3), (6, 1, 3, 4)),
]


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul(shapes):
    a, b = (values(*shape) for shape in shapes)
    check_gradients(node("MatMul", ["a", "b"]), {"a": a, "b": b})


@pytest.mark.parametrize(
    ("a", "b", "batch_axes"),
    [
        ((4, 3), (3,), {"a": 0}),
        ((4, 3), (3, 2), {"a": 0}),
        ((4, 5, 3), (3,), {"a": 0}),
        ((4, 5, 3), (3, 2), {"a": 0}),
        ((4, 5, 3), (4, 3, 2), {"a": 0, "b": 0}),
        ((5, 3), (4, 3, 2), {"b": 0}),
        ((3,), (4, 3, 2), {"b": 0}),
        ((5, 3), (3, 4), {"b": 1}),
        ((2, 5, 3), (3, 4), {"b": 1}),
        ((2, 4, 3), (2, 3, 6), {"a": 1}),
    ],
)
def test_matmul_with_an_open_batch(a, b, batch_axes):
    check_gradients(
        node("MatMul", ["a", "b"]), {"a": values(*a), "b": values(*b)}, batch_axes=batch_axes
    )


def test_a_product_over_the_batch_is_refused():
    inputs = {"a": values(3, 4), "b": values(4, 2)}
    for source in (node("MatMul", "ab"), node("Gemm", "ab")):
        with pytest.raises(TrainingError, match="sums over the batch axis"):
            run_gradients(source, inputs, batch_axes={"a": 1, "b": 0})


def test_matrix_products_emit_one_node_per_gradient():
    inputs = {"a": values(2, 3), "b": values(3, 4)}
    graph = check_gradients(node("MatMul", "ab"), inputs)
    assert graph.emitted == ("Gemm", "Gemm")


@settings(max_examples=40)
@given(st.data())
def test_matmul_over_any_broadcast(data):
    leading = data.draw(st.lists(st.integers(1, 3), max_size=3))
    sides = []
    for matrix in ((2, 3), (3, 4)):
        cut = data.draw(st.integers(0, len(leading)))
        kept = [1 if data.draw(st.booleans()) else size for size in leading[cut:]]
        sides.append((*kept, *matrix))
    check_gradients(node("MatMul", ["a", "b"]), {"a": values(*sides[0]), "b": values(*sides[1])})
