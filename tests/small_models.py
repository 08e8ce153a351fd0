"""Small ONNX models for tests of the compiler."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def initializer(name, *shape, value=None, seed=None):
    """Return a float32 tensor: random, or filled with one value."""
    rng = np.random.default_rng(len(name) if seed is None else seed)
    array = rng.normal(size=shape) if value is None else np.full(shape, value)
    return numpy_helper.from_array(np.asarray(array, np.float32), name)


def small_model(
    nodes, initializers, *, inputs=(("x", ["N", 4]),), output=("y", ["N", 3]), opset=17
):
    """Return a model of nodes given as (operator, inputs, output, attributes)."""
    graph = helper.make_graph(
        [helper.make_node(op, i, [o], name=f"{op}_{o}", **a) for op, i, o, a in nodes],
        "small",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(output[0], FLOAT, output[1])],
        initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def linear_model(inputs=4, outputs=3):
    """Return y = x w + b."""
    return small_model(
        [("Gemm", ["x", "w", "b"], "y", {})],
        [initializer("w", inputs, outputs), initializer("b", outputs)],
        inputs=(("x", ["N", inputs]),),
        output=("y", ["N", outputs]),
    )


def two_layers(inputs=5, hidden=6, outputs=3, last=None):
    """Return two linear layers with a Relu between, and a last operator if asked for."""
    nodes = [
        ("Gemm", ["x", "first.weight", "first.bias"], "h", {"transB": 1}),
        ("Relu", ["h"], "a", {}),
        ("Gemm", ["a", "second.weight", "second.bias"], "z" if last else "y", {"transB": 1}),
    ]
    if last:
        nodes.append((last, ["z"], "y", {}))
    return small_model(
        nodes,
        [
            initializer("first.weight", hidden, inputs),
            initializer("first.bias", hidden),
            initializer("second.weight", outputs, hidden),
            initializer("second.bias", outputs),
        ],
        inputs=(("x", ["N", inputs]),),
        output=("y", ["N", outputs]),
    )


def conv_net(channels=3, size=8, classes=4, groups=1):
    """Return Conv, BatchNormalization, Relu, Conv, pool and a linear layer, with a bias each."""
    nodes = [
        ("Conv", ["x", "conv1.weight", "conv1.bias"], "c1", {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", ["c1", "bn.weight", "bn.bias", "bn.mean", "bn.var"], "n1", {}),
        ("Relu", ["n1"], "r1", {}),
        ("Conv", ["r1", "conv2.weight", "conv2.bias"], "c2", {"group": groups}),
        ("Relu", ["c2"], "r2", {}),
        ("GlobalAveragePool", ["r2"], "g", {}),
        ("Flatten", ["g"], "f", {}),
        ("Gemm", ["f", "head.weight", "head.bias"], "y", {"transB": 1}),
    ]
    return small_model(
        nodes,
        [
            initializer("conv1.weight", 6, channels, 3, 3),
            initializer("conv1.bias", 6),
            initializer("bn.weight", 6),
            initializer("bn.bias", 6),
            initializer("bn.mean", 6, value=0.1),
            initializer("bn.var", 6, value=1.5),
            initializer("conv2.weight", 4, 6 // groups, 3, 3),
            initializer("conv2.bias", 4),
            initializer("head.weight", classes, 4),
            initializer("head.bias", classes),
        ],
        inputs=(("x", ["N", channels, size, size]),),
        output=("y", ["N", classes]),
    )
