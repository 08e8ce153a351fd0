"""Small float networks and data for tests of the quantized modes."""

import functools

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgefl.training.bundle import export_model, read_bundle
from edgefl.training.kinds import Loss, Optimizer, QuantizationMode
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from edgefl.training.onnx.runtime.trainer import OnnxTrainer

LENGTH, CHANNELS, CLASSES = 16, 3, 4


def sensor_net(*, seed=0, with_norm=False, with_softmax=False):
    """Two convolutions with pooling, a mean over time and a linear head."""
    rng = np.random.default_rng(seed)
    conv1 = "raw1" if with_norm else "conv1"
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], [conv1], pads=[1, 1]),
        helper.make_node("Relu", ["conv1"], ["relu1"]),
        helper.make_node("MaxPool", ["relu1"], ["pool1"], kernel_shape=[2], strides=[2]),
        helper.make_node("Conv", ["pool1", "conv2.weight", "conv2.bias"], ["conv2"], pads=[1, 1]),
        helper.make_node("Relu", ["conv2"], ["relu2"]),
        helper.make_node("GlobalAveragePool", ["relu2"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["features"]),
        helper.make_node("Gemm", ["features", "head.weight", "head.bias"], ["logits"], transB=1),
    ]
    values = {
        "conv1.weight": rng.normal(0, 0.5, (8, CHANNELS, 3)),
        "conv1.bias": rng.normal(0, 0.1, 8),
        "conv2.weight": rng.normal(0, 0.3, (12, 8, 3)),
        "conv2.bias": rng.normal(0, 0.1, 12),
        "head.weight": rng.normal(0, 0.5, (CLASSES, 12)),
        "head.bias": rng.normal(0, 0.1, CLASSES),
    }
    if with_norm:
        parts = [f"norm.{part}" for part in ("scale", "shift", "mean", "var")]
        nodes.insert(1, helper.make_node("BatchNormalization", ["raw1", *parts], ["conv1"]))
        drawn = [rng.uniform(0.5, 2, 8), rng.normal(size=8), rng.normal(size=8), rng.random(8) + 1]
        values |= dict(zip(parts, drawn, strict=True))
    if with_softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"]))
    return model_of(nodes, values, "probabilities" if with_softmax else "logits")


@functools.cache
def trained_net():
    """The sensor net, trained in float32 where it was made; devices then fine-tune it."""
    bundle = read_bundle(prepared(sensor_net(), "none", rows=[]).bundle_bytes)
    trainer = OnnxTrainer(bundle)
    x, y = windows(300, seed=3)
    trainer.fit(x, y, epochs=20, batch_size=20, lr=0.2, rng=np.random.default_rng(0))
    return onnx.load_from_string(export_model(bundle, trainer.params()))


def moved_windows(rows, seed=1):
    """The same classes as a device worn another way round sees them."""
    x, y = windows(rows, seed)
    return x[:, [1, 0, 2]] * np.float32(0.8), y


def model_of(nodes, values, output, input_shape=(CHANNELS, LENGTH), classes=CLASSES):
    for node in nodes:
        node.name = f"make_{node.output[0]}"
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *input_shape])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", classes])],
        [numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def windows(rows, seed=1):
    """Windows whose class is the channel and half that hold a wave."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, rows)
    x = rng.normal(0, 0.3, (rows, CHANNELS, LENGTH)).astype(np.float32)
    wave = np.sin(np.arange(LENGTH // 2)).astype(np.float32)
    for row, label in enumerate(y):
        start = (label // 2) * LENGTH // 2
        x[row, label % 2, start : start + LENGTH // 2] += 1.5 * wave
    return x, y.astype(np.int64)


def prepared(
    model,
    mode,
    *,
    trainable="all",
    local=(),
    rows=None,
    optimizer=Optimizer.SGD,
    loss=Loss.CROSS_ENTROPY,
):
    """Prepare a model with calibration rows of the right kind; returns the `PreparedBundle`."""
    calibration = windows(64, seed=9)[0] if rows is None else rows
    options = CompileOptions(
        loss=loss,
        trainable=trainable,
        local=local,
        optimizer=OptimizerSettings(kind=optimizer),
        quantization=QuantizationRequest(
            mode=QuantizationMode(mode), calibration=None if len(calibration) == 0 else calibration
        ),
    )
    return compile_with(model, options)
