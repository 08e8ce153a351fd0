"""Gradients of normalisation: frozen running statistics, layers, instances, groups, vectors."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from tests.gradient_check import check_gradients, differentiated, run_gradients
from tests.node_models import check_node_model, node_models

NODE_MODELS = node_models(
    {
        "BatchNormalization": "batch_normalization",
        "InstanceNormalization": "instance_normalization",
        "LayerNormalization": "layernormalization",
        "LpNormalization": "lpnormalization",
    },
    left_out={
        # Refused: see the tests below.
        "test_batchnorm_epsilon_training_mode",
        "test_batchnorm_example_training_mode",
        # Holds a vector of zeros, at which the norm has a kink.
        "test_l2normalization_axis_0",
    },
)
STATISTICS = ("mean", "var")


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def batch_norm(**attributes):
    names = ["x", "scale", "bias", "mean", "var"]
    return helper.make_node("BatchNormalization", names, ["y"], name="the_norm", **attributes)


def batch_inputs(*shape):
    channels = shape[1]
    return {
        "x": random(*shape),
        "scale": random(channels, seed=1),
        "bias": random(channels, seed=2),
        "mean": random(channels, seed=3),
        "var": np.abs(random(channels, seed=4)) + 0.2,
    }


@pytest.mark.parametrize("case", NODE_MODELS, ids=lambda case: case.name)
def test_node_model_of_onnx(case):
    check_node_model(case, frozen=STATISTICS)


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4), (3, 2, 4, 3), (2, 2, 2, 3, 2)])
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}])
@pytest.mark.parametrize(
    "wanted", [["x", "scale", "bias"], ["x"], ["scale"], ["bias"], ["x", "bias"]]
)
def test_batch_normalization(shape, batch_axes, wanted):
    inputs = batch_inputs(*shape)
    check_gradients(batch_norm(epsilon=1e-3), inputs, wanted, batch_axes=batch_axes)


def test_batch_normalization_with_computed_statistics():
    nodes = [helper.make_node("Abs", ["raw"], ["var"]), batch_norm()]
    inputs = batch_inputs(4, 3, 5)
    inputs["raw"] = -inputs.pop("var")
    check_gradients(nodes, inputs, ["x", "scale", "bias"], batch_axes={"x": 0})


def test_frozen_batch_normalization_costs_one_product():
    graph = differentiated(batch_norm(), batch_inputs(4, 3, 5), ["x"], batch_axes={"x": 0})
    fixed = {tensor.name for tensor in graph.combined.graph.initializer}
    at_run_time = []
    for node in graph.combined.graph.node:
        if set(node.input) <= fixed:
            fixed.update(node.output)
        else:
            at_run_time.append(node.op_type)
    assert at_run_time == ["BatchNormalization", "Mul", "Identity"]


def test_batch_statistics_are_refused():
    node = batch_norm(training_mode=1)
    node.output.extend(["new_mean", "new_var"])
    with pytest.raises(TrainingError, match=r"E-MODEL-BATCHNORM-TRAINING.*the_norm.*eval mode"):
        differentiated(node, batch_inputs(4, 3, 5), ["x"], outputs=["y"])


@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_are_not_trained(name):
    with pytest.raises(TrainingError, match=f"E-MODEL-BATCHNORM-STATISTICS.*the_norm.*'{name}'"):
        differentiated(batch_norm(), batch_inputs(4, 3, 5), ["x", name])


def test_a_variance_of_zero_stays_finite():
    inputs = {**batch_inputs(4, 3, 5), "var": np.zeros(3)}
    found = run_gradients(batch_norm(), inputs, ["x", "scale", "bias"])
    assert all(np.isfinite(gradient).all() for gradient in found.values())


@pytest.mark.parametrize("axis", [None, 1, 2, -1, -2])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}])
def test_layer_normalization(axis, has_bias, batch_axes):
    x = random(3, 4, 5)
    shape = x.shape[-1 if axis is None else axis :]
    inputs = {"x": x, "scale": random(*shape, seed=1), "bias": random(*shape, seed=2)}
    names = list(inputs)[: 3 if has_bias else 2]
    attributes = {} if axis is None else {"axis": axis, "epsilon": 1e-3}
    node = helper.make_node("LayerNormalization", names, ["y"], **attributes)
    check_gradients(node, inputs, names, batch_axes=batch_axes)
    for name in names:
        check_gradients(node, inputs, [name], batch_axes=batch_axes)


def test_layer_normalization_beside_a_moved_batch_axis():
    inputs = {"x": random(3, 4, 5), "scale": random(5, seed=1)}
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"])
    check_gradients(node, inputs, batch_axes={"x": 1})


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_layer_normalization_over_the_batch_is_refused(axis):
    batch = 0 if axis == 0 else 1
    x = random(3, 4, 5)
    inputs = {"x": x, "scale": np.ones(x.shape[axis:])}
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], name="n", axis=axis)
    with pytest.raises(TrainingError, match=r"E-MODEL-OP-FORM.*'n' over the batch axis"):
        differentiated(node, inputs, ["x"], batch_axes={"x": batch})


def test_layer_normalization_of_equal_values_is_finite():
    # The standardized values are 0 and the rate is 1 / sqrt(epsilon); PyTorch gives the same.
    inputs = {"x": np.full((2, 4), 3.0), "scale": np.ones(4), "bias": np.zeros(4)}
    node = helper.make_node("LayerNormalization", list(inputs), ["y"], epsilon=1e-5)
    seeds = {"y": np.float32([[1, 0, 0, 0], [1, 2, 3, 4]])}
    found = run_gradients(node, inputs, seeds=seeds)
    rate = 1 / np.sqrt(1e-5)
    expected = rate * (seeds["y"] - seeds["y"].mean(axis=1, keepdims=True))
    np.testing.assert_allclose(found["x"], expected, rtol=1e-4)
    np.testing.assert_array_equal(found["scale"], np.zeros(4))


def test_layer_normalization_gets_a_bias_that_is_not_trained():
    # Without one, onnxruntime 1.16.3 aborts while it optimises such a graph.
    nodes = [
        helper.make_node("Add", ["x", "first"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("LayerNormalization", ["b", "scale"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["d"]),
        helper.make_node("Add", ["d", "a"], ["y"]),
    ]
    weights = {"first": random(4), "scale": random(4, seed=1), "w": random(4, 4)}
    graph = helper.make_graph(
        nodes,
        "without_bias",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    bundle = read_bundle(compile_bundle(model, trainable="all").bundle_bytes)
    assert {slot.name for slot in bundle.manifest.parameters} == set(weights)
    for content in ("train.onnx", "eval.onnx"):
        made = onnx.load_from_string(bundle.content(content)).graph.node
        norms = [node for node in made if node.op_type == "LayerNormalization"]
        assert [len(node.input) for node in norms] == [3] * len(norms)
        assert norms


@pytest.mark.parametrize("shape", [(3, 2, 5), (3, 2, 4, 3), (2, 3, 2, 2, 3)])
@pytest.mark.parametrize("batch_axes", [{}, {"x": 0}])
@pytest.mark.parametrize("wanted", [["x", "scale", "bias"], ["x"], ["scale"], ["bias"]])
def test_instance_normalization(shape, batch_axes, wanted):
    inputs = {k: v for k, v in batch_inputs(*shape).items() if k not in STATISTICS}
    node = helper.make_node("InstanceNormalization", list(inputs), ["y"], epsilon=1e-3)
    check_gradients(node, inputs, wanted, batch_axes=batch_axes)


def test_instance_normalization_of_equal_values_is_finite():
    inputs = {"x": np.ones((2, 3, 4)), "scale": np.ones(3), "bias": np.zeros(3)}
    node = helper.make_node("InstanceNormalization", list(inputs), ["y"])
    assert all(np.isfinite(found).all() for found in run_gradients(node, inputs).values())


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_normalization_as_exporters_write_it(groups):
    nodes = [
        helper.make_node("Reshape", ["x", "grouped"], ["a"]),
        helper.make_node("InstanceNormalization", ["a", "ones", "zeros"], ["b"]),
        helper.make_node("Reshape", ["b", "whole"], ["c"]),
        helper.make_node("Mul", ["c", "scale"], ["d"]),
        helper.make_node("Add", ["d", "bias"], ["y"]),
    ]
    inputs = {
        "x": random(3, 4, 2, 3),
        "grouped": np.array([0, groups, -1]),
        "ones": np.ones(groups),
        "zeros": np.zeros(groups),
        "whole": np.array([-1, 4, 2, 3]),
        "scale": random(4, 1, 1, seed=1),
        "bias": random(4, 1, 1, seed=2),
    }
    check_gradients(nodes, inputs, ["x", "scale", "bias"], batch_axes={"x": 0})


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_vector_normalization(p, axis):
    node = helper.make_node("LpNormalization", ["x"], ["y"], p=p, axis=axis)
    check_gradients(node, {"x": random(3, 4, 5)}, batch_axes={"x": 0})


@pytest.mark.parametrize("p", [1, 2])
def test_a_vector_of_zeros_has_no_gradient(p):
    node = helper.make_node("LpNormalization", ["x"], ["y"], p=p)
    found = run_gradients(node, {"x": np.zeros((2, 3))}, batch_axes={"x": 0})
    np.testing.assert_array_equal(found["x"], np.zeros((2, 3)))


def test_vector_normalization_over_the_batch_is_refused():
    node = helper.make_node("LpNormalization", ["x"], ["y"], axis=0)
    with pytest.raises(TrainingError, match="E-MODEL-OP-FORM"):
        differentiated(node, {"x": random(3, 4)}, batch_axes={"x": 0})
