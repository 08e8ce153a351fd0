"""The int8 model of a bundle: the bytes that an ONNX writer would make, without onnx."""

import contextlib
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnxruntime import quantization

from edgefl.errors import TrainingError
from edgefl.training.base import TrainingData
from edgefl.training.bundle import (
    EXPORT_TEMPLATE,
    INT8_SLOTS,
    INT8_TEMPLATE,
    export_model,
    read_bundle,
)
from edgefl.training.int8_evaluate import evaluate_int8
from edgefl.training.int8_export import export_int8_model, has_int8_model
from edgefl.training.int8_slots import Encoding, parse_slots
from edgefl.training.int8_values import (
    activation_scale,
    bias_scales,
    to_floats,
    to_integers,
    weight_scales,
)
from edgefl.training.kinds import Loss, QuantizationMode
from edgefl.training.onnx.compile.normalize import normalize
from edgefl.training.onnx.compile.quantize.build import build
from edgefl.training.onnx.compile.quantize.plan import make_plan
from edgefl.training.onnx.compile.quantize.ranges import measure_ranges
from edgefl.training.onnx.runtime.session import open_session
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.unit.training.quant_nets import (
    CLASSES,
    model_of,
    moved_windows,
    prepared,
    sensor_net,
    trained_net,
    windows,
)
from tests.unit.training.test_quantize import tensors_of, with_values


def bundle_of(*args, **kwargs):
    return read_bundle(prepared(*args, **kwargs).bundle_bytes)


def fitted(bundle, *, lr=0.05):
    trainer = OnnxTrainer(bundle)
    x, y = moved_windows(60)
    trainer.fit(x, y, epochs=2, batch_size=20, lr=lr, rng=np.random.default_rng(4))
    assert np.abs(trainer.delta()).max() > 1e-3
    return trainer


def tensors(model_bytes):
    model = onnx.load_from_string(model_bytes)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@pytest.mark.parametrize(
    ("mode", "trainable", "local"),
    [
        ("none", "all", ()),
        ("none", "conv2.weight", ()),
        ("static", "head", ()),
        ("static", "biases", ()),
        ("static", "head", ("head.bias",)),
        ("qat", "all", ()),
        ("qat", "conv1.weight,head.weight", ("head.weight",)),
    ],
)
def test_the_export_is_the_model_that_the_onnx_package_would_write(mode, trainable, local):
    """The oracle quantizes the float model with the trained values in it, on the onnx side."""
    source = sensor_net()
    bundle = bundle_of(source, mode, trainable=trainable, local=local)
    trainer = fitted(bundle)
    changed = tensors_of(bundle, trainer.params())
    changed |= {
        slot.name: trainer.local()[slot.offset : slot.offset + slot.size].reshape(slot.shape)
        for slot in bundle.manifest.local
    }
    base = normalize(source)
    plan = make_plan(base.graph, measure_ranges(base, windows(64, seed=9)[0]))
    expected = build(with_values(base, changed), plan).model.SerializeToString(deterministic=True)
    found = export_int8_model(bundle, trainer.params(), trainer.local())
    assert found == expected
    onnx.checker.check_model(onnx.load_from_string(found), full_check=True)


def test_weights_are_int8_per_channel_and_biases_int32():
    bundle = bundle_of(sensor_net(), "qat")
    trainer = fitted(bundle)
    found = tensors(export_int8_model(bundle, trainer.params()))
    weight = tensors_of(bundle, trainer.params())["conv2.weight"]
    assert found["conv2.weight_quantized"].dtype == np.int8
    assert found["conv2.bias_quantized"].dtype == np.int32
    assert (np.abs(found["conv2.weight_quantized"]).max(axis=(1, 2)) == 127).all()
    scale = found["conv2.weight_scale"]
    back = found["conv2.weight_quantized"] * scale[:, None, None]
    assert np.abs(back - weight).max() <= scale.max() / 2 * 1.0001
    products = scale * found["pool1_scale"]
    np.testing.assert_allclose(found["conv2.bias_scale"], products, rtol=1e-6)
    assert "conv2.weight" not in found


def test_weights_on_a_grid_are_exported_exactly():
    bundle = bundle_of(sensor_net(), "grid")
    trainer = fitted(bundle)
    found = tensors(export_int8_model(bundle, trainer.params()))
    for name in ("conv1.weight", "conv2.weight", "head.weight"):
        back = to_floats(
            found[f"{name}_quantized"], found[f"{name}_scale"], 0, zero_point=np.zeros((), np.int8)
        )
        np.testing.assert_array_equal(back, tensors_of(bundle, trainer.params())[name])


def test_low_rank_changes_are_in_the_int8_weights():
    bundle = bundle_of(trained_net(), "static", trainable="lora:2")
    trainer = fitted(bundle, lr=0.3)
    found = tensors(export_int8_model(bundle, trainer.params()))
    merged = tensors(export_model(bundle, trainer.params()))
    first = tensors(export_model(bundle, bundle.initial_params))
    assert not any("lora" in name.lower() for name in found)
    for name in ("conv2.weight", "head.weight"):
        assert np.abs(merged[name] - first[name]).max() > 1e-3
        scale = found[f"{name}_scale"]
        back = to_floats(found[f"{name}_quantized"], scale, 0, zero_point=np.zeros((), np.int8))
        assert np.abs(back - merged[name]).max() <= scale.max() / 2 * 1.0001


def test_the_int8_model_is_smaller():
    wide = model_of(
        [
            helper.make_node("Flatten", ["x"], ["flat"]),
            helper.make_node("Gemm", ["flat", "w1", "b1"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w2"], ["logits"]),
        ],
        {
            "w1": np.random.default_rng(0).normal(size=(48, 200)) * 0.1,
            "b1": np.zeros(200),
            "w2": np.random.default_rng(1).normal(size=(200, CLASSES)) * 0.1,
        },
        "logits",
    )
    bundle = bundle_of(wide, "none")
    int8 = export_int8_model(bundle, bundle.initial_params)
    assert len(int8) < 0.4 * len(export_model(bundle, bundle.initial_params))
    x, _ = windows(64, seed=9)
    plain = open_session(wide.SerializeToString()).run(None, {"x": x})[0]
    rounded = open_session(int8, fuses_int8=True).run(None, {"x": x})[0]
    assert np.abs(plain - rounded).max() < 0.03 * np.abs(plain).max()


def test_one_weight_of_two_layers_stays_one_weight():
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c1"], pads=[1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w", "b"], ["c2"], pads=[1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "h", "hb"], ["logits"], transB=1),
    ]
    rng = np.random.default_rng(0)
    values = {
        "w": rng.normal(size=(3, 3, 3)),
        "b": rng.normal(size=3),
        "h": rng.normal(size=(CLASSES, 3)),
        "hb": np.zeros(CLASSES),
    }
    bundle = bundle_of(model_of(nodes, values, "logits"), "qat")
    trainer = fitted(bundle)
    x, y = moved_windows(50)
    int8 = evaluate_int8(bundle, trainer.params(), TrainingData(x=x, y=y))
    assert int8.loss == pytest.approx(trainer.evaluate(x, y).loss, rel=0.05)


@pytest.mark.parametrize("loss", [Loss.CROSS_ENTROPY, Loss.MSE])
def test_the_measured_loss_is_that_of_the_value_the_loss_reads(loss):
    """A model may end with a softmax that training takes off; evaluation must take it off too."""
    with_softmax = loss is Loss.CROSS_ENTROPY
    bundle = bundle_of(sensor_net(with_softmax=with_softmax), "qat", loss=loss)
    x, y = windows(100)
    if loss is Loss.MSE:
        y = np.eye(CLASSES, dtype=np.float32)[y]
    trainer = OnnxTrainer(bundle)
    int8 = evaluate_int8(bundle, trainer.params(), TrainingData(x=x, y=y))
    assert int8.loss == pytest.approx(trainer.evaluate(x, y).loss, rel=0.03)


# ---------------------------------------------------------------- models that are quantized already


class Rows(quantization.CalibrationDataReader):
    def __init__(self, rows):
        self._batches = iter([{"x": rows}])

    def get_next(self):
        return next(self._batches, None)


def by_onnxruntime(folder, **options):
    """The trained net, quantized by onnxruntime's own tool."""
    source, result = folder / "float.onnx", folder / "qdq.onnx"
    onnx.save(trained_net(), source)
    quantization.quantize_static(
        source,
        result,
        Rows(windows(64, seed=9)[0]),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        **options,
    )
    return onnx.load(result)


@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
def test_a_model_that_onnxruntime_quantized_is_trained_and_exported(tmp_path, activations):
    kind = getattr(quantization.QuantType, activations)
    source = by_onnxruntime(tmp_path, activation_type=kind)
    bundle = bundle_of(source, "none", rows=[])
    assert bundle.manifest.quantization.mode is QuantizationMode.QAT
    assert {slot.name for slot in bundle.manifest.parameters} == set(tensors_of_source())
    held = TrainingData(**dict(zip("xy", moved_windows(200, seed=2), strict=True)))
    untouched = evaluate_int8(bundle, bundle.initial_params, held)
    logits = open_session(source.SerializeToString(), optimize=False).run(None, {"x": held.x})[0]
    assert untouched.accuracy == pytest.approx(float((logits.argmax(1) == held.y).mean()), abs=0.01)
    trainer = OnnxTrainer(bundle)
    x, y = moved_windows(200)
    trainer.fit(x, y, epochs=15, batch_size=20, lr=0.05, rng=np.random.default_rng(0))
    after = evaluate_int8(bundle, trainer.params(), held)
    assert after.accuracy > untouched.accuracy + 0.1
    assert after.accuracy == pytest.approx(trainer.evaluate(held.x, held.y).accuracy, abs=0.03)


def test_the_float_export_of_a_quantized_model_is_what_is_predicted_before_weights_are_rounded(
    tmp_path,
):
    source = by_onnxruntime(tmp_path, activation_type=quantization.QuantType.QInt8)
    bundle = bundle_of(source, "none", rows=[])
    trainer = OnnxTrainer(bundle)
    x, y = moved_windows(200)
    trainer.fit(x, y, epochs=15, batch_size=20, lr=0.05, rng=np.random.default_rng(0))
    exported = onnx.load_from_string(export_model(bundle, trainer.params()))
    weights = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
    rounded = {}
    for slot in parse_slots(bundle.content(INT8_SLOTS)):
        if slot.encoding is Encoding.WEIGHT:
            scales, zero = np.array(slot.scale, np.float32), np.zeros((), np.int8)
            integers = to_integers(weights[slot.tensor], scales, slot.axis, zero_point=zero)
            rounded[slot.tensor] = to_floats(integers, scales, slot.axis, zero_point=zero)
    assert len(rounded) == 3

    def outputs(model):
        return open_session(model.SerializeToString(), optimize=False).run(None, {"x": x})[0]

    predicted = trainer.predict(x)
    np.testing.assert_array_equal(outputs(with_values(exported, rounded)), predicted)
    assert 0 < np.abs(outputs(exported) - predicted).max() < 0.05 * np.abs(predicted).max()
    # Biases become int32, which may move a value by one step of the last layer's int8 output.
    int8 = onnx.load_from_string(export_int8_model(bundle, trainer.params()))
    (step,) = (
        numpy_helper.to_array(tensor)
        for tensor in int8.graph.initializer
        if tensor.name == int8.graph.node[-1].input[1]
    )
    assert np.abs(outputs(int8) - predicted).max() <= 1.01 * step


def tensors_of_source():
    return [tensor.name for tensor in trained_net().graph.initializer]


def test_parts_of_a_quantized_model_that_are_frozen_stay_bit_by_bit(tmp_path):
    source = by_onnxruntime(tmp_path, activation_type=quantization.QuantType.QInt8)
    bundle = bundle_of(source, "none", rows=[], trainable="head")
    trainer = fitted(bundle)
    before = {t.name: numpy_helper.to_array(t) for t in source.graph.initializer}
    found = tensors(export_int8_model(bundle, trainer.params()))
    for name in ("conv1.weight_quantized", "conv1.bias_quantized", "conv2.weight_quantized"):
        np.testing.assert_array_equal(found[name], before[name])
    assert not np.array_equal(found["head.weight_quantized"], before["head.weight_quantized"])


def test_an_exported_int8_model_can_be_prepared_again():
    first = bundle_of(trained_net(), "qat")
    exported = export_int8_model(first, first.initial_params)
    second = bundle_of(onnx.load_from_string(exported), "static", rows=[], trainable="head")
    assert second.manifest.quantization.mode is QuantizationMode.QAT
    x, y = moved_windows(100)
    data = TrainingData(x=x, y=y)
    one, two = (evaluate_int8(b, b.initial_params, data) for b in (first, second))
    assert two.loss == pytest.approx(one.loss, rel=1e-4)


def test_a_quantized_model_with_rows_says_that_they_are_not_used():
    first = bundle_of(trained_net(), "qat")
    exported = onnx.load_from_string(export_int8_model(first, first.initial_params))
    warnings = prepared(exported, "grid").warnings
    assert any("not used" in line for line in warnings)


# ---------------------------------------------------------------- without onnx, and damage


def test_neither_export_nor_training_needs_the_onnx_package(tmp_path):
    prepared_bundle = prepared(sensor_net(), "grid")
    (tmp_path / "bundle.efl").write_bytes(prepared_bundle.bundle_bytes)
    program = (
        "import sys; sys.modules['onnx'] = None\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from edgefl.training.bundle import read_bundle\n"
        "from edgefl.training.int8_export import export_int8_model\n"
        "from edgefl.training.onnx.runtime.trainer import OnnxTrainer\n"
        "bundle = read_bundle(Path(sys.argv[1]))\n"
        "trainer = OnnxTrainer(bundle)\n"
        "x = np.random.default_rng(0).normal(size=(8, 3, 16)).astype(np.float32)\n"
        "y = np.arange(8) % 4\n"
        "trainer.fit(x, y, epochs=1, batch_size=4, lr=0.1, rng=np.random.default_rng(0))\n"
        "print(len(export_int8_model(bundle, trainer.params())))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "bundle.efl")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(done.stdout) > 1000


def test_a_bundle_without_calibration_has_no_int8_model():
    bundle = bundle_of(sensor_net(), "none", rows=[])
    assert not has_int8_model(bundle)
    with pytest.raises(TrainingError, match="E-BUNDLE-PART"):
        export_int8_model(bundle, bundle.initial_params)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_slots_are_named_and_nothing_else_is_raised(data):
    bundle = _GRID
    document = json.loads(bundle.content(INT8_SLOTS))
    slot = data.draw(st.sampled_from(document["slots"]))
    key = data.draw(st.sampled_from(sorted(slot)))
    wrong = [None, -5, 2**70, 1.5, "w", [], [0], [10**9], ["a"], {}, [-1], True, [1e999], 31]
    slot[key] = data.draw(st.sampled_from(wrong))
    contents = {**bundle.contents, INT8_SLOTS: json.dumps(document).encode()}
    damaged = replace(bundle, contents=contents)
    with contextlib.suppress(TrainingError):
        export_int8_model(damaged, bundle.initial_params)


_GRID = bundle_of(sensor_net(), "qat")


@pytest.mark.parametrize(
    "change",
    [
        {"scale": [0.1] * 7},
        {"zero_point": []},
        {"zero_point": [0] * 5},
        {"axis": 3},
        {"shape": [], "scale": [0.1, 0.2]},
        {"shape": [8, 1, 9], "axis": 1, "scale": [0.1] * 1000},
    ],
)
def test_scales_that_do_not_fit_the_tensor_are_refused(change):
    document = json.loads(_GRID.content(INT8_SLOTS))
    next(slot for slot in document["slots"] if slot["encoding"] == "weight").update(change)
    with pytest.raises(ValueError, match=r"int8 slot for 'conv1.weight'"):
        parse_slots(json.dumps(document).encode())


def test_a_hole_behind_the_end_of_the_template_is_refused():
    document = json.loads(_GRID.content(INT8_SLOTS))
    document["slots"][-1]["offset"] = 2**62
    contents = {**_GRID.contents, INT8_SLOTS: json.dumps(document).encode()}
    with pytest.raises(TrainingError, match="E-BUNDLE-DAMAGED"):
        export_int8_model(replace(_GRID, contents=contents), _GRID.initial_params)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"format":2,"slots":[]}', b"\xff", b'{"format":1}'])
def test_slots_that_are_no_slots_are_refused(text):
    with pytest.raises(ValueError, match=r"slots|JSON|Expecting"):
        parse_slots(text)


def test_both_templates_are_verified():
    bundle = bundle_of(sensor_net(), "qat")
    assert {EXPORT_TEMPLATE, INT8_TEMPLATE, INT8_SLOTS} <= set(bundle.manifest.files)


# ---------------------------------------------------------------- numbers


@given(
    low=st.floats(-1e6, 1e6, width=32),
    high=st.floats(-1e6, 1e6, width=32),
)
def test_activation_scales_hit_zero_and_both_ends(low, high):
    low, high = min(low, high), max(low, high)
    chosen = activation_scale(low, high)
    assert -128 <= chosen.zero_point <= 127
    scale = float(chosen.scale)
    lowest = (-128 - chosen.zero_point) * scale
    highest = (127 - chosen.zero_point) * scale
    assert lowest - scale / 2 * 1.01 <= min(low, 0) <= lowest + scale * 0.51 or low > 0
    assert highest >= high - scale * 0.51


def test_channels_of_zeros_have_a_scale():
    weight = np.zeros((2, 3), np.float32)
    weight[1] = [0.5, -1.27, 0]
    scales = weight_scales(weight, 0)
    assert (scales > 0).all()
    integers = to_integers(weight, scales, 0, zero_point=np.zeros((), np.int8))
    np.testing.assert_array_equal(integers, [[0, 0, 0], [50, -127, 0]])


def test_a_bias_far_larger_than_its_products_still_fits_int32():
    bias = np.float32([1e6, 0.5])
    scales = bias_scales(bias, np.float32([1e-12, 1e-3]))
    integers = to_integers(bias, scales, 0, zero_point=np.zeros((), np.int32))
    np.testing.assert_allclose(integers * scales.astype(np.float64), bias, rtol=1e-6)
    assert scales[1] == np.float32(1e-3)
