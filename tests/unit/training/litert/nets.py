"""Small networks of several kinds, as ONNX models, with data that they can learn from."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
BATCH_AXIS = "N"


class Net:
    """Collects nodes and weights; each call names its result after the operator."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes = []
        self.weights = []

    def emit(self, op_type, *inputs, outputs=1, **attributes):
        names = [f"{op_type.lower()}{len(self.nodes)}.{i}" for i in range(outputs)]
        node = helper.make_node(op_type, list(inputs), names, name=names[0], **attributes)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def weight(self, name, *shape, scale=0.4):
        values = self.rng.normal(size=shape) * scale
        return self.given(name, values.astype(np.float32))

    def given(self, name, values):
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def model(self, result, classes, *shape, kind=FLOAT):
        self.nodes.append(helper.make_node("Identity", [result], ["output"], name="output"))
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", kind, [BATCH_AXIS, *shape])],
            [helper.make_tensor_value_info("output", FLOAT, [BATCH_AXIS, classes])],
            self.weights,
        )
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8)


def mlp(inputs=12, hidden=16, classes=3, activation="Relu", seed=0):
    net = Net(seed)
    z = net.emit("Gemm", "x", net.weight("w1", hidden, inputs), net.weight("b1", hidden), transB=1)
    h = net.emit(activation, z)
    head = net.weight("w2", classes, hidden), net.weight("b2", classes)
    return net.model(net.emit("Gemm", h, *head, transB=1), classes, inputs)


def image_net():
    """Depthwise and pointwise convolutions, frozen statistics, overlapping maxima, averages."""
    net = Net(1)
    z = net.emit(
        "Conv",
        "x",
        net.weight("c1", 8, 3, 3, 3),
        net.weight("cb1", 8),
        pads=[1] * 4,
        strides=[2, 2],
    )
    scale, shift = net.given("bn.scale", np.full(8, 1.2, np.float32)), net.weight("bn.shift", 8)
    mean, variance = net.weight("bn.mean", 8), net.given("bn.var", np.full(8, 0.7, np.float32))
    z = net.emit("Relu", net.emit("BatchNormalization", z, scale, shift, mean, variance))
    z = net.emit("MaxPool", z, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    z = net.emit("Conv", z, net.weight("dw", 8, 1, 3, 3), pads=[1] * 4, group=8)
    z = net.emit("Conv", net.emit("Sigmoid", z), net.weight("pw", 12, 8, 1, 1))
    z = net.emit("LeakyRelu", z, alpha=0.1)
    z = net.emit("AveragePool", z, kernel_shape=[2, 2], strides=[2, 2])
    z = net.emit("Flatten", net.emit("GlobalAveragePool", z))
    head = net.weight("head", 4, 12), net.weight("head.bias", 4)
    return net.model(net.emit("Gemm", z, *head, transB=1), 4, 3, 16, 16)


def sound_net():
    """Convolutions over one axis: gaps, groups, plain maxima, a squashed result."""
    net = Net(2)
    z = net.emit("Conv", "x", net.weight("c1", 6, 4, 3), net.weight("cb1", 6), dilations=[2])
    z = net.emit("MaxPool", net.emit("Tanh", z), kernel_shape=[2], strides=[2])
    z = net.emit("Relu", net.emit("Conv", z, net.weight("c2", 8, 3, 3), group=2, pads=[1, 1]))
    z = net.emit("AveragePool", z, kernel_shape=[3], strides=[2], pads=[1, 1])
    z = net.emit("ReduceMean", z, axes=[2], keepdims=0)
    head = net.weight("head", 8, 3), net.weight("head.bias", 3)
    return net.model(net.emit("Add", net.emit("MatMul", z, head[0]), head[1]), 3, 4, 40)


def word_net():
    """An embedding, attention of one head, normalisation over the last axis, GELU."""
    net = Net(3)
    words = net.emit("Gather", net.weight("words", 11, 8), "x")
    query, key, value = (net.emit("MatMul", words, net.weight(f"a{i}", 8, 8)) for i in range(3))
    scores = net.emit("MatMul", query, net.emit("Transpose", key, perm=[0, 2, 1]))
    scaled = net.emit("Mul", scores, net.given("scale", np.float32(0.35)))
    mixed = net.emit("MatMul", net.emit("Softmax", scaled, axis=-1), value)
    total = net.emit("Add", words, mixed)
    ones = net.given("ln.scale", np.ones(8, np.float32))
    normal = net.emit("LayerNormalization", total, ones, net.weight("ln.bias", 8), axis=-1)
    bent = net.emit("Erf", net.emit("Mul", normal, net.given("root", np.float32(0.70710677))))
    shifted = net.emit("Add", bent, net.given("one", np.float32(1)))
    gelu = net.emit("Mul", net.emit("Mul", normal, shifted), net.given("half", np.float32(0.5)))
    mean = net.emit("ReduceMean", gelu, axes=[1], keepdims=0)
    head = net.weight("head", 3, 8), net.weight("head.bias", 3)
    return net.model(net.emit("Gemm", mean, *head, transB=1), 3, 6, kind=INT64)


def labelled(model, n, classes, seed=0):
    """Return rows whose class shows in them, so that a loss can fall."""
    rng = np.random.default_rng(seed)
    value = model.graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in value.shape.dim[1:]]
    y = rng.integers(0, classes, n)
    if value.elem_type == INT64:
        return (rng.integers(0, 3, (n, *shape)) + 3 * y[:, None]).astype(np.int64), y
    means = rng.normal(size=(classes, *shape))
    return (means[y] + rng.normal(size=(n, *shape))).astype(np.float32), y
