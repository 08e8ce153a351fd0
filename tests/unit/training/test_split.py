"""The frozen front part: what is split off, that training does not notice, and the cache."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import ElementType, QuantizationMode
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from edgefl.training.onnx.compile.report import Verdict, examine
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.small_models import conv_net, initializer, small_model, two_layers


def bundle_of(model, **options):
    return read_bundle(compile_with(model, CompileOptions(**options)).bundle_bytes)


def operators(bundle, name):
    return [node.op_type for node in onnx.load_from_string(bundle.content(name)).graph.node]


def examples(bundle, rows=30, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, *bundle.manifest.input.shape)).astype(np.float32)
    return x, rng.integers(0, bundle.manifest.classes, rows)


def delta(bundle, epochs=3, **options):
    trainer = OnnxTrainer(bundle, **options)
    x, y = examples(bundle)
    trainer.fit(x, y, epochs=epochs, batch_size=8, lr=0.1, rng=np.random.default_rng(1))
    return trainer.delta(), trainer.feature_rows_computed


@pytest.mark.parametrize("trainable", ["head", "last:2", "head.bias"])
def test_training_behind_the_split_equals_training_the_whole(trainable):
    split = bundle_of(conv_net(), trainable=trainable)
    whole = bundle_of(conv_net(), trainable=trainable, splits_front=False)
    assert split.manifest.features
    assert not whole.manifest.features
    assert split.manifest.vector_sha256 == whole.manifest.vector_sha256
    found, _ = delta(split)
    expected, rows = delta(whole)
    assert rows == 0
    assert np.abs(expected).max() > 1e-3
    assert np.abs(found - expected).max() < 1e-6


def test_convolutions_lie_in_front_and_the_step_reads_their_result():
    bundle = bundle_of(conv_net(), trainable="head")
    assert operators(bundle, "features.onnx").count("Conv") == 2
    assert "Conv" not in operators(bundle, "train.onnx")
    assert operators(bundle, "eval.onnx").count("Conv") == 2
    (feature,) = bundle.manifest.features
    assert feature.shape == (4,)
    names = {v.name for v in onnx.load_from_string(bundle.content("train.onnx")).graph.input}
    assert feature.name in names
    assert "x" not in names


def test_features_are_computed_once_per_training_if_they_fit():
    bundle = bundle_of(conv_net(), trainable="head")
    cached, rows_cached = delta(bundle, epochs=4)
    anew, rows_anew = delta(bundle, epochs=4, feature_cache_bytes=0)
    assert rows_cached == 30
    assert rows_anew == 4 * 30
    assert np.array_equal(cached, anew)
    assert delta(bundle, epochs=1)[1] == 30


def test_new_data_get_new_features():
    bundle = bundle_of(conv_net(), trainable="head")
    trainer = OnnxTrainer(bundle)
    settings = {"epochs": 2, "batch_size": 8, "lr": 0.1}
    for seed in (1, 2):
        x, y = examples(bundle, seed=seed)
        trainer.set_params(bundle.initial_params)
        trainer.fit(x, y, rng=np.random.default_rng(1), **settings)
    fresh = OnnxTrainer(bundle)
    fresh.fit(x, y, rng=np.random.default_rng(1), **settings)
    assert np.array_equal(trainer.delta(), fresh.delta())


def test_a_front_without_heavy_operators_is_no_split():
    nodes = [("Relu", ["x"], "a", {}), ("Gemm", ["a", "w", "b"], "y", {})]
    model = small_model(nodes, [initializer("w", 4, 3), initializer("b", 3)])
    assert not bundle_of(model).manifest.features
    assert not bundle_of(conv_net()).manifest.features


def test_a_rest_that_reads_the_input_too_is_no_split():
    nodes = [
        ("MatMul", ["x", "frozen"], "h", {}),
        ("Concat", ["x", "h"], "c", {"axis": 1}),
        ("Gemm", ["c", "w", "b"], "y", {}),
    ]
    tensors = [initializer("frozen", 4, 2), initializer("w", 6, 3), initializer("b", 3)]
    split = bundle_of(small_model(nodes, tensors), trainable=["w", "b"])
    assert [feature.name for feature in split.manifest.features] == ["c"]
    nodes[1] = ("Mul", ["x", "gains"], "g", {})
    nodes.insert(2, ("Concat", ["g", "h"], "c", {"axis": 1}))
    beside = bundle_of(
        small_model(nodes, [*tensors, initializer("gains", 4)]), trainable=["w", "b", "gains"]
    )
    assert not beside.manifest.features


def test_several_features_keep_their_order_and_types():
    nodes = [
        ("MatMul", ["x", "frozen"], "h", {}),
        ("Relu", ["h"], "r", {}),
        ("Mul", ["r", "gain"], "m", {}),
        ("Add", ["m", "h"], "s", {}),
        ("Gemm", ["s", "w", "b"], "y", {}),
    ]
    tensors = [
        initializer("frozen", 4, 5),
        initializer("gain", 5),
        initializer("w", 5, 3),
        initializer("b", 3),
    ]
    model = small_model(nodes, tensors)
    split = bundle_of(model, trainable=["gain", "w", "b"])
    whole = bundle_of(model, trainable=["gain", "w", "b"], splits_front=False)
    assert [feature.name for feature in split.manifest.features] == ["h", "r"]
    assert np.abs(delta(split)[0] - delta(whole)[0]).max() < 1e-6


def quantized_front():
    """Return an int8 layer (as QuantizeLinear, DequantizeLinear and MatMul) before a float head."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.integers(-90, 90, (4, 6)).astype(np.int8), "w8")
    zero = numpy_helper.from_array(np.array(0, np.int8), "zero")
    nodes = [
        ("QuantizeLinear", ["x", "sx", "zero"], "x8", {}),
        ("DequantizeLinear", ["x8", "sx", "zero"], "xd", {}),
        ("DequantizeLinear", ["w8", "sw", "zero"], "wd", {}),
        ("MatMul", ["xd", "wd"], "h", {}),
        ("QuantizeLinear", ["h", "sh", "zero"], "h8", {}),
        ("DequantizeLinear", ["h8", "sh", "zero"], "hd", {}),
        ("Gemm", ["hd", "w", "b"], "y", {}),
    ]
    tensors = [
        weight,
        zero,
        initializer("sx", value=0.03),
        initializer("sw", value=0.01),
        initializer("sh", value=0.05),
        initializer("w", 6, 3),
        initializer("b", 3),
    ]
    return small_model(nodes, tensors)


def test_an_int8_front_hands_over_int8_features():
    split = bundle_of(quantized_front(), trainable="head")
    (feature,) = split.manifest.features
    assert (feature.name, feature.element_type) == ("h8", ElementType.INT8)
    assert operators(split, "features.onnx")[-1] == "QuantizeLinear"
    assert operators(split, "train.onnx")[0] == "DequantizeLinear"
    whole = bundle_of(quantized_front(), trainable="head", splits_front=False)
    assert np.abs(delta(split)[0] - delta(whole)[0]).max() < 1e-6


def test_a_feature_whose_first_axis_is_not_the_batch_is_made_by_the_step():
    nodes = [
        ("MatMul", ["x", "frozen"], "h", {}),
        ("Transpose", ["h"], "t", {"perm": [1, 0]}),
        ("Transpose", ["t"], "u", {"perm": [1, 0]}),
        ("Mul", ["u", "gain"], "m", {}),
        ("Gemm", ["m", "w", "b"], "y", {}),
    ]
    tensors = [
        initializer("frozen", 4, 5),
        initializer("gain", 5),
        initializer("w", 5, 3),
        initializer("b", 3),
    ]
    split = bundle_of(small_model(nodes, tensors), trainable=["gain", "w", "b"])
    assert all(feature.shape == (5,) for feature in split.manifest.features)
    assert len(split.manifest.features) == 1


def test_token_inputs_go_through_the_front():
    nodes = [
        ("Gather", ["table", "x"], "e", {}),
        ("MatMul", ["e", "frozen"], "h", {}),
        ("ReduceMean", ["h"], "m", {"axes": [1], "keepdims": 0}),
        ("Gemm", ["m", "w", "b"], "y", {}),
    ]
    tensors = [
        initializer("table", 10, 4),
        initializer("frozen", 4, 5),
        initializer("w", 5, 3),
        initializer("b", 3),
    ]
    model = small_model(nodes, tensors)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.INT64, ["N", 7]))
    split = bundle_of(model, trainable=["w", "b"])
    assert split.manifest.input.element_type is ElementType.INT64
    trainer = OnnxTrainer(split)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 10, (20, 7)), rng.integers(0, 3, 20)
    before = trainer.evaluate(x, y).loss
    trainer.fit(x, y, epochs=30, batch_size=5, lr=0.1, rng=rng)
    assert trainer.evaluate(x, y).loss < before
    assert trainer.feature_rows_computed == 20


def test_the_first_layer_trained_means_no_front():
    assert not bundle_of(two_layers(), trainable="first.bias").manifest.features
    assert bundle_of(two_layers(), trainable="second.bias").manifest.features


def behind_a_frozen_layer(*nodes, settings=()):
    """x w, then the nodes from "a" to "b", then a head that is trained."""
    return small_model(
        [
            ("MatMul", ["x", "w"], "a", {}),
            *nodes,
            ("Gemm", ["b", "head.weight", "head.bias"], "y", {"transB": 1}),
        ],
        [
            initializer("w", 4, 6),
            initializer("head.weight", 3, 6),
            initializer("head.bias", 3),
            *settings,
        ],
    )


MIXING = {
    "ReduceMean": [("ReduceMean", ["a"], "m", {"axes": [0]}), ("Sub", ["a", "m"], "b", {})],
    "Softmax": [("Softmax", ["a"], "b", {"axis": 0})],
    "LayerNormalization": [("LayerNormalization", ["a", "one"], "b", {"axis": 0})],
    "MatMul": [
        ("Transpose", ["a"], "t", {"perm": [1, 0]}),
        ("MatMul", ["a", "t"], "products", {}),
        ("MatMul", ["products", "a"], "b", {}),
    ],
}


@pytest.mark.parametrize("operator", MIXING)
def test_a_frozen_front_that_mixes_examples_is_refused(operator):
    source = behind_a_frozen_layer(
        *MIXING[operator], settings=[initializer("one", 1, 6, value=1.0)]
    )
    if operator != "LayerNormalization":
        source.graph.initializer.pop()
    with pytest.raises(TrainingError, match=f"E-MODEL-OP-FORM.*{operator} .* mixes examples"):
        bundle_of(source, trainable="head")
    report = examine(source, CompileOptions(trainable="head"))
    assert report.verdict is Verdict.INFERENCE_ONLY
    assert [error.code for error in report.obstacles] == ["E-MODEL-OP-FORM"]


def test_layers_along_other_axes_keep_examples_apart():
    nodes = [
        ("ReduceMean", ["a"], "m", {"axes": [1]}),
        ("Sub", ["a", "m"], "c", {}),
        ("Softmax", ["c"], "b", {"axis": -1}),
    ]
    bundle = bundle_of(behind_a_frozen_layer(*nodes), trainable="head")
    assert bundle.manifest.features


@pytest.mark.parametrize("mode", [QuantizationMode.NONE, QuantizationMode.STATIC])
def test_a_frozen_normalization_by_the_batch_is_refused(mode):
    source = conv_net()
    for node in source.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(helper.make_attribute("training_mode", 1))
            node.output.extend(["new.mean", "new.var"])
    rows = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)
    request = QuantizationRequest(
        mode=mode, calibration=None if mode is QuantizationMode.NONE else rows
    )
    with pytest.raises(TrainingError, match=r"E-MODEL-BATCHNORM-TRAINING.*BatchNormalization_n1"):
        bundle_of(source, trainable="head", quantization=request)
