"""Frozen int8 layers run on integers in TFLite, and say what onnxruntime's say."""

import numpy as np
import pytest

from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import QuantizationMode, Runtime
from edgefl.training.litert.export import export_int8_tflite, export_tflite
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.litert.runtime.features import FeatureMaker
from edgefl.training.litert.runtime.trainer import LitertTrainer
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.unit.training.litert.nets import Net, labelled
from tests.unit.training.litert.test_export import outputs_of
from tests.unit.training.litert.test_trainer import fit


def mixed_net():
    """Borders, strides, depthwise and pointwise kernels, then products; the head is trained."""
    net = Net(5)
    z = net.emit(
        "Conv",
        "x",
        net.weight("c1", 8, 3, 3, 3),
        net.weight("cb1", 8),
        pads=[1] * 4,
        strides=[2, 2],
    )
    z = net.emit("Relu", z)
    z = net.emit(
        "Conv", z, net.weight("dw", 8, 1, 3, 3), net.weight("dwb", 8), pads=[1] * 4, group=8
    )
    z = net.emit("Relu", z)
    z = net.emit("Relu", net.emit("Conv", z, net.weight("pw", 6, 8, 1, 1), net.weight("pwb", 6)))
    z = net.emit("Flatten", net.emit("GlobalAveragePool", z))
    middle = net.weight("middle", 10, 6), net.weight("middle.bias", 10)
    z = net.emit("Relu", net.emit("Gemm", z, *middle, transB=1))
    last = net.weight("last", 10, 10), net.weight("last.bias", 10)
    z = net.emit("Relu", net.emit("Gemm", z, *last, transB=1))
    head = net.weight("head", 4, 10), net.weight("head.bias", 4)
    return net.model(net.emit("Gemm", z, *head, transB=1), 4, 3, 12, 12)


def prepare(model, classes, mode, trainable="head"):
    x, y = labelled(model, 48, classes)
    request = QuantizationRequest(mode=mode, calibration=x)
    options = CompileOptions(
        trainable=trainable, quantization=request, runtimes=(Runtime.ONNX, Runtime.LITERT)
    )
    return read_bundle(compile_with(model, options).bundle_bytes), x, y


@pytest.fixture(scope="module", params=["demo", "mixed"])
def static(request):
    model, classes = (demo_model(2), 7) if request.param == "demo" else (mixed_net(), 4)
    return request.param, prepare(model, classes, QuantizationMode.STATIC)


def operators_on_integers(content):
    (subgraph,) = read_model(content).subgraphs
    kinds = {Builtin.CONV_2D, Builtin.DEPTHWISE_CONV_2D}
    layers = [one for one in subgraph.operators if one.code in kinds]
    whole = [one for one in layers if subgraph.tensors[one.inputs[0]].kind is TensorType.INT8]
    return layers, whole


def test_every_frozen_layer_runs_on_integers(static):
    name, (bundle, _, _) = static
    layers, whole = operators_on_integers(bundle.content("features.tflite"))
    # The last one gives float32 features; a product on integers is a convolution too.
    assert len(layers) == len(whole) == {"demo": 2, "mixed": 4}[name]
    assert all(one.options.get("activation") in {1, 3} for one in whole)


def test_features_agree_with_onnxruntime_to_a_step_or_so(static):
    _, (bundle, x, _) = static
    maker = FeatureMaker(bundle.content("features.tflite"), bundle.manifest, threads=1)
    (found,) = maker.compute(x)
    session = onnxruntime.InferenceSession(bundle.content("features.onnx"))
    (expected,) = session.run(None, {bundle.manifest.input.name: x})
    assert found.dtype == expected.dtype
    differences = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    assert expected.astype(np.float64).std() > 0
    # The releases round the last bit of a product differently, which later layers pass on.
    assert differences.max() <= 0.05 * np.ptp(expected.astype(np.float64))
    assert np.mean(differences) <= 0.006 * np.ptp(expected.astype(np.float64))


def test_heads_train_alike(static):
    _, (bundle, x, y) = static
    trainers = OnnxTrainer(bundle), LitertTrainer(bundle)
    losses = [fit(trainer, x, y, epochs=5) for trainer in trainers]
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)
    assert np.abs(trainers[1].delta()).max() > 1e-2


def test_exports_keep_the_integers(static):
    name, (bundle, x, y) = static
    trainer = LitertTrainer(bundle)
    fit(trainer, x, y)
    for export in (export_tflite, export_int8_tflite):
        content = export(bundle, trainer.params())
        _, whole = operators_on_integers(content)
        assert len(whole) == {"demo": 2, "mixed": 4}[name]
        expected = trainer.predict(x[:8])
        found = outputs_of(content, bundle, x[:8])
        assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("mode", [QuantizationMode.QAT, QuantizationMode.GRID])
def test_modes_that_round_while_training(mode):
    bundle, x, y = prepare(demo_model(2), 7, mode, trainable="all")
    trainers = OnnxTrainer(bundle), LitertTrainer(bundle)
    losses = [fit(trainer, x, y, epochs=3, lr=0.05) for trainer in trainers]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    deltas = [trainer.delta() for trainer in trainers]
    assert np.abs(deltas[0]).max() > 1e-2
    # A value that lies halfway between two integers may go either way; most do not.
    assert np.linalg.norm(deltas[0] - deltas[1]) < 0.1 * np.linalg.norm(deltas[0])
