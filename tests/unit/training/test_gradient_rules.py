"""Gradients of whole bundles against float64 finite differences; rules one by one are in rules/."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.training.bundle import Bundle, read_bundle
from edgefl.training.evaluate import split_params
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.compile.rules import covered_operators
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer

BATCH = 3
CLASSES = 4
STEP = 1e-5


def model_around(nodes, input_shape, weights, *, opset=17):
    """A model from `x` through `nodes` to `y`, then by a fixed random projection to logits."""
    graph = helper.make_graph(
        nodes,
        "rule",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *input_shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    bare = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(bare, strict_mode=True, data_prop=True)
    dims = inferred.graph.output[0].type.tensor_type.shape.dim[1:]
    size = int(np.prod([dim.dim_value for dim in dims]))
    # Small logits: a softmax that is sure of the right class has no gradient to compare.
    scale = 0.3 / np.sqrt(size)
    random = np.random.default_rng(size).normal(size=(size, CLASSES))
    projection = (scale * random).astype(np.float32)
    graph.node.append(helper.make_node("Flatten", ["y"], ["flat"], name="flatten"))
    graph.node.append(
        helper.make_node("MatMul", ["flat", "projection"], ["logits"], name="project")
    )
    graph.initializer.append(numpy_helper.from_array(projection, "projection"))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def in_double(graph_bytes):
    """The same graph with every float32 constant and declaration widened to float64."""
    model = onnx.load_from_string(graph_bytes)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            wide = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    return ReferenceEvaluator(model)


def reference_loss(evaluator, bundle: Bundle, flat, x, y):
    """Cross-entropy in float64 by onnx's own reference implementation of the forward pass."""
    tensors = split_params(flat, bundle.manifest.parameters)
    feed = {name: value.astype(np.float64) for name, value in tensors.items()}
    feed[bundle.manifest.input.name] = x.astype(np.float64)
    logits = evaluator.run(None, feed)[0]
    shifted = logits - logits.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(y)), y]))


def compare(model, trainable, *, seed=0, directions=6):
    """Compare a step's update with central differences along coordinates and random directions."""
    bundle = read_bundle(compile_bundle(model, trainable=trainable).bundle_bytes)
    manifest = bundle.manifest
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(BATCH, *manifest.input.shape)).astype(np.float32)
    y = rng.integers(0, manifest.classes, BATCH)
    trainer = OnnxTrainer(bundle)
    trainer.fit(x, y, epochs=1, batch_size=BATCH, lr=1.0, rng=rng)
    # The step in float32 loses digits where a weight is large beside its gradient: hence the
    # absolute floor below.
    gradient = -trainer.delta().astype(np.float64)
    evaluator = in_double(bundle.content("eval.onnx"))
    start = bundle.initial_params.astype(np.float64)
    for index in range(directions):
        direction = rng.normal(size=manifest.dimension)
        if index % 2:
            direction = np.eye(1, manifest.dimension, rng.integers(manifest.dimension))[0]
        direction /= np.linalg.norm(direction)
        ahead = reference_loss(evaluator, bundle, start + STEP * direction, x, y)
        behind = reference_loss(evaluator, bundle, start - STEP * direction, x, y)
        expected = (ahead - behind) / (2 * STEP)
        assert gradient @ direction == pytest.approx(expected, rel=2e-4, abs=5e-6)
    assert np.linalg.norm(gradient) > 1e-4, "a gradient of zero would agree with a constant"


def weight(*shape, seed=5):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def node(op, inputs, **attributes):
    return helper.make_node(op, inputs, ["y"], name=f"the_{op}", **attributes)


CASES = {
    "Gemm": ([node("Gemm", ["x", "w", "b"])], (5,), {"w": weight(5, 3), "b": weight(3)}),
    "Gemm, transB": (
        [node("Gemm", ["x", "w", "b"], transB=1, alpha=0.5, beta=2.0)],
        (5,),
        {"w": weight(3, 5), "b": weight(1, 3)},
    ),
    "Gemm, weight first": (
        [
            helper.make_node("Transpose", ["x"], ["xt"], perm=[1, 0]),
            helper.make_node("Gemm", ["w", "xt"], ["yt"], transA=1),
            node("Transpose", ["yt"], perm=[1, 0]),
        ],
        (5,),
        {"w": weight(5, 3)},
    ),
    "MatMul": ([node("MatMul", ["x", "w"])], (3, 4), {"w": weight(4, 5)}),
    "MatMul, batched weight": ([node("MatMul", ["x", "w"])], (3, 2, 4), {"w": weight(3, 4, 5)}),
    "MatMul, left weight": ([node("MatMul", ["w", "x"])], (3, 4), {"w": weight(2, 3)}),
    "Conv": (
        [node("Conv", ["x", "w", "b"], strides=[2])],
        (3, 10),
        {"w": weight(4, 3, 3), "b": weight(4)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule_agrees_with_finite_differences(name):
    nodes, shape, weights = CASES[name]
    trainable = [key for key, value in weights.items() if value.dtype == np.float32]
    compare(model_around(nodes, shape, weights), trainable)


def test_every_operator_with_a_rule_is_named_in_a_test():
    texts = [path.read_text() for path in Path(__file__).parent.rglob("test_*.py")]
    assert [op for op in covered_operators() if not any(f'"{op}"' in text for text in texts)] == []


def test_input_gradients_of_products_flow_through_two_layers():
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Gemm", ["b", "second"], ["c"], transB=1, alpha=1.5),
        helper.make_node("Gemm", ["third", "c"], ["d"], transA=1, transB=1),
        helper.make_node("Transpose", ["d"], ["y"], perm=[1, 0]),
    ]
    weights = {"first": weight(5, 6), "second": weight(4, 6), "third": weight(4, 3)}
    compare(model_around(nodes, (5,), weights), list(weights))


def test_a_value_read_twice_collects_both_gradients():
    nodes = [
        helper.make_node("Mul", ["x", "p"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Mul", ["c", "p"], ["y"]),
    ]
    compare(model_around(nodes, (3, 4), {"p": weight(4)}), ["p"])


def test_the_whole_demo_model_agrees():
    compare(demo_model(3), "all", directions=10)
