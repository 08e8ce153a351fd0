"""The quantized modes of training: what runs on integers, what is rounded, and what it learns."""

import collections

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgefl.errors import DataError, TrainingError
from edgefl.training.base import TrainingData
from edgefl.training.bundle import EXPORT_TEMPLATE, FEATURES_ONNX, TRAIN_ONNX, read_bundle
from edgefl.training.int8_evaluate import evaluate_int8
from edgefl.training.int8_values import along, to_integers, weight_scales
from edgefl.training.kinds import ElementType, Provider, QuantizationMode
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.normalize import normalize
from edgefl.training.onnx.compile.quantize.build import build
from edgefl.training.onnx.compile.quantize.fold import fold_batch_normalization
from edgefl.training.onnx.compile.quantize.forms import GRID_HEADROOM
from edgefl.training.onnx.compile.quantize.plan import make_plan
from edgefl.training.onnx.compile.quantize.ranges import measure_ranges
from edgefl.training.onnx.compile.quantize.request import load_calibration, parse_quantization
from edgefl.training.onnx.runtime.features import FeatureMaker
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.session import open_session
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.unit.training.quant_nets import moved_windows, prepared, sensor_net, trained_net, windows

WEIGHTS = ("conv1.weight", "conv2.weight", "head.weight")


def bundle_of(*args, **kwargs):
    return read_bundle(prepared(*args, **kwargs).bundle_bytes)


def one_step(bundle, x, y, *, lr=0.5, seed=0, start=None, steps=1):
    trainer = OnnxTrainer(bundle)
    if start is not None:
        trainer.set_params(start)
    rng = np.random.default_rng(seed)
    trainer.fit(x, y, epochs=steps, batch_size=len(x), lr=lr, rng=rng)
    return trainer


def tensors_of(bundle, flat):
    return {
        slot.name: flat[slot.offset : slot.offset + slot.size].reshape(slot.shape)
        for slot in bundle.manifest.parameters
    }


def with_values(model, values):
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in values:
            array = np.asarray(values[tensor.name], np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return changed


def optimized_operators(graph_bytes, folder):
    path = folder / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(graph_bytes, options, providers=["CPUExecutionProvider"])
    return collections.Counter(node.op_type for node in onnx.load(path).graph.node)


# ---------------------------------------------------------------- static


def test_the_frozen_front_part_runs_on_fused_int8_kernels(tmp_path):
    bundle = bundle_of(sensor_net(), "static", trainable="head")
    operators = optimized_operators(bundle.content(FEATURES_ONNX), tmp_path)
    assert operators["QLinearConv"] == 2, operators
    assert not {"Conv", "FusedConv"} & set(operators), operators


def test_features_are_int8_and_are_kept_as_int8():
    bundle = bundle_of(sensor_net(), "static", trainable="head")
    assert [f.element_type for f in bundle.manifest.features] == [ElementType.INT8]
    x, _ = windows(10)
    maker = FeatureMaker(bundle, threads=1, optimize=True, provider=Provider.CPU)
    (features,) = maker.compute(x)
    assert features.dtype == np.int8
    assert maker.bytes_per_row == 12
    assert len(np.unique(features)) > 20, "features that hardly differ would prove nothing"


def test_a_float_head_learns_on_int_features_as_on_float_ones():
    x, y = windows(200)
    held = TrainingData(**dict(zip("xy", windows(200, seed=2), strict=True)))
    found = {}
    for mode in ("none", "static"):
        trainer = OnnxTrainer(bundle_of(sensor_net(), mode, trainable="head"))
        rng = np.random.default_rng(0)
        trainer.fit(x, y, epochs=30, batch_size=20, lr=0.5, rng=rng)
        found[mode] = trainer.evaluate(held.x, held.y).accuracy
    assert found["none"] > 0.7
    assert abs(found["static"] - found["none"]) < 0.05


def test_what_is_measured_in_static_mode_is_the_int8_backbone_and_the_float_head():
    model = sensor_net()
    x, _ = windows(50)
    bundle = bundle_of(model, "static", trainable="head", rows=x)
    plain = open_session(model.SerializeToString()).run(None, {"x": x})[0]
    predicted = OnnxTrainer(bundle).predict(x)
    difference = np.abs(predicted - plain).max()
    assert 0 < difference < 0.05 * np.abs(plain).max()


# ---------------------------------------------------------------- through the rounding


def test_biases_learn_through_an_int8_backbone():
    """Weights are frozen integers; each bias gets a gradient and moves."""
    bundle = bundle_of(sensor_net(), "static", trainable="biases")
    assert {slot.name for slot in bundle.manifest.parameters} == {
        "conv1.bias",
        "conv2.bias",
        "head.bias",
    }
    x, y = windows(40)
    delta = tensors_of(bundle, one_step(bundle, x, y).delta())
    assert all(np.abs(change).max() > 1e-4 for change in delta.values()), delta
    assert "conv1.weight_quantized" in {tensor.name for tensor in bundle.manifest.frozen}


def test_low_rank_changes_learn_through_an_int8_backbone():
    bundle = bundle_of(trained_net(), "static", trainable="lora:2,head")
    x, y = moved_windows(200)
    held = moved_windows(200, seed=2)
    trainer = OnnxTrainer(bundle)
    before = trainer.evaluate(*held)
    trainer.fit(x, y, epochs=20, batch_size=20, lr=0.05, rng=np.random.default_rng(0))
    after = trainer.evaluate(*held)
    assert after.loss < 0.7 * before.loss
    int8 = evaluate_int8(bundle, trainer.params(), TrainingData(x=held[0], y=held[1]))
    assert int8.accuracy == pytest.approx(after.accuracy, abs=0.05)


def test_a_qat_step_is_the_float_step_of_the_rounded_weights():
    """The straight-through estimator, said differently: gradients are taken where one rounds to.

    The oracle is an ordinary model: its weights are float32 numbers that happen to lie on the int8
    grid, and only its activations are rounded.
    """
    source = normalize(sensor_net())
    rows = windows(64, seed=9)[0]
    x, y = windows(40)
    qat = bundle_of(sensor_net(), "qat")
    rounded = {}
    for tensor in source.graph.initializer:
        if tensor.name in WEIGHTS:
            values = numpy_helper.to_array(tensor)
            axis = 0
            scale = weight_scales(values, axis)
            zero = np.int8(0)
            integers = to_integers(values, scale, axis, zero_point=np.asarray(zero))
            rounded[tensor.name] = integers * along(scale, axis, values.ndim)
    plan = make_plan(source.graph, measure_ranges(source, rows))
    activations_only = build(
        with_values(source, rounded),
        type(plan)(activations=plan.activations, weights=(), biases=()),
    ).model
    oracle = bundle_of(activations_only, "none", rows=[])
    expected = tensors_of(oracle, one_step(oracle, x, y).delta())
    found = tensors_of(qat, one_step(qat, x, y).delta())
    assert set(found) == set(expected)
    for name, change in found.items():
        assert np.abs(change).max() > 1e-4
        np.testing.assert_allclose(change, expected[name], atol=2e-5, err_msg=name)


def test_qat_gradients_do_not_depend_on_the_optimizer_of_onnxruntime():
    bundle = bundle_of(sensor_net(), "qat")
    x, y = windows(40)
    deltas = []
    for optimize in (True, False):
        trainer = OnnxTrainer(bundle, optimize=optimize)
        trainer.fit(x, y, epochs=2, batch_size=20, lr=0.1, rng=np.random.default_rng(0))
        deltas.append(trainer.delta())
    np.testing.assert_allclose(deltas[0], deltas[1], atol=1e-6)


def test_qat_weights_may_outgrow_their_first_range():
    """Scales follow the weights, so that a model can start from random ones."""
    bundle = bundle_of(sensor_net(), "qat")
    x, y = windows(40)
    grown = bundle.initial_params * np.float32(3)
    trainer = one_step(bundle, x, y, start=grown)
    assert np.abs(trainer.delta()).max() > 1e-4
    largest = np.abs(grown).argmax()
    assert trainer.delta()[largest] != 0, "the largest weight sits at the end and must still move"


# ---------------------------------------------------------------- grid


def grid_of(bundle):
    """Scale of each trained weight of the sensor net, from its first values."""
    first = tensors_of(bundle, bundle.initial_params)
    return {name: weight_scales(first[name], 0, GRID_HEADROOM) for name in WEIGHTS}


def test_weights_stay_on_their_grid():
    bundle = bundle_of(sensor_net(), "grid")
    x, y = windows(60)
    trainer = one_step(bundle, x, y, lr=0.05, steps=3)
    found = tensors_of(bundle, trainer.params())
    for name, scale in grid_of(bundle).items():
        steps = found[name].astype(np.float64) / along(scale, 0, found[name].ndim)
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
        assert len(np.unique(np.round(steps))) > 20
    assert trainer.delta().dtype == np.float32


def test_rounding_onto_the_grid_is_right_on_average():
    """Mean of 400 rounded steps against the one float step; six standard errors are allowed."""
    bundle = bundle_of(sensor_net(), "grid")
    plain = bundle_of(sensor_net(), "qat")
    x, y = windows(40)
    runs = 400
    trainer = OnnxTrainer(bundle)
    rng = np.random.default_rng(5)
    total = np.zeros(trainer.dimension)
    for _ in range(runs):
        trainer.set_params(bundle.initial_params)
        trainer.fit(x, y, epochs=1, batch_size=len(x), lr=0.05, rng=rng)
        total += trainer.delta()
    mean = tensors_of(bundle, total / runs)
    # The float step of the same graph: quantization-aware, but with the grid's own scales, which
    # differ a little from those that follow the weights; hence compared through the mean only.
    assert set(mean) == {slot.name for slot in plain.manifest.parameters}
    expected = tensors_of(bundle, float_step(bundle, x, y, lr=0.05))
    for name, scale in grid_of(bundle).items():
        allowed = 6 * 0.5 * along(scale, 0, mean[name].ndim) / np.sqrt(runs) + 1e-6
        assert (np.abs(mean[name] - expected[name]) < allowed).all(), name
        # Rounding to the nearest would fail this: it would leave most weights where they were.
        nearest = np.abs(expected[name]) > allowed
        assert nearest.any(), "some changes must be larger than what chance explains"


def float_step(bundle, x, y, *, lr):
    """The step before rounding, from the same training graph with its rounding cut out."""
    model = onnx.load_from_string(bundle.content(TRAIN_ONNX))
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    makers = {output: node for node in cut.graph.node for output in node.output}
    for node in cut.graph.node:
        for name in WEIGHTS:
            if node.output[0] == names.updated(name):
                # Mul <- Clip <- Floor <- Add <- Div <- the step.
                value = node.output[0]
                for op_type in ("Mul", "Clip", "Floor", "Add", "Div"):
                    assert makers[value].op_type == op_type
                    value = makers[value].input[0]
                node.CopyFrom(onnx.helper.make_node("Identity", [value], [node.output[0]]))
    session = open_session(cut.SerializeToString())
    feeds = {
        "x": x,
        names.TARGET: y,
        names.SAMPLE_WEIGHT: np.ones(len(x), np.float32),
        names.LEARNING_RATE: np.float32([lr]),
        names.PROX_MU: np.float32([0]),
        names.MAX_GRADIENT_NORM: np.float32([np.inf]),
    }
    for name, value in tensors_of(bundle, bundle.initial_params).items():
        feeds[name] = feeds[names.received(name)] = value
    for value in session.get_inputs():
        if value.name not in feeds:
            feeds[value.name] = np.zeros(value.shape, np.float32)
    wanted = [names.updated(slot.name) for slot in bundle.manifest.parameters]
    results = session.run(wanted, feeds)
    return np.concatenate([r.reshape(-1) for r in results]) - bundle.initial_params


def test_parameters_between_grid_points_are_put_onto_the_grid_without_bias():
    """What arrives is a mean over devices. With a learning rate of 0 only the rounding acts."""
    bundle = bundle_of(sensor_net(), "grid")
    x, y = windows(8)
    received = bundle.initial_params + np.float32(0.0007)
    trainer = OnnxTrainer(bundle)
    rng = np.random.default_rng(2)
    deltas = []
    for _ in range(300):
        trainer.set_params(received)
        trainer.fit(x, y, epochs=1, batch_size=8, lr=0.0, rng=rng)
        deltas.append(trainer.delta())
    mean = tensors_of(bundle, np.mean(deltas, axis=0))
    for name, scale in grid_of(bundle).items():
        allowed = 6 * 0.5 * along(scale, 0, mean[name].ndim) / np.sqrt(len(deltas))
        assert (np.abs(mean[name]) < allowed).all(), name
    assert np.std(deltas, axis=0).max() > 1e-4, "nothing was rounded"


def test_equal_generators_give_equal_grid_steps():
    bundle = bundle_of(sensor_net(), "grid")
    x, y = windows(40)
    first, second, third = (one_step(bundle, x, y, seed=seed).delta() for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, third)


def test_a_learning_rate_that_throws_weights_to_the_ends_is_found():
    bundle = bundle_of(sensor_net(), "grid")
    x, y = windows(60)
    trainer = OnnxTrainer(bundle)
    with pytest.raises(TrainingError) as found:
        trainer.fit(x, y, epochs=5, batch_size=10, lr=50.0, rng=np.random.default_rng(0))
    assert found.value.code == "E-TRAIN-DIVERGED"
    with pytest.raises(TrainingError):
        trainer.delta()


# ---------------------------------------------------------------- all modes


@pytest.mark.parametrize(
    ("mode", "trainable", "lr", "loss_points"),
    [
        # Without rounding in training, values wander out of the ranges that were calibrated.
        ("none", "all", 0.05, 6),
        ("static", "head", 0.5, 3),
        ("qat", "all", 0.05, 2),
        ("grid", "all", 0.05, 2),
    ],
)
def test_every_mode_learns_and_its_int8_model_keeps_the_accuracy(mode, trainable, lr, loss_points):
    x, y = moved_windows(240)
    held = TrainingData(**dict(zip("xy", moved_windows(300, seed=2), strict=True)))
    bundle = bundle_of(trained_net(), mode, trainable=trainable)
    assert bundle.manifest.quantization.mode is QuantizationMode(mode)
    trainer = OnnxTrainer(bundle)
    before = trainer.evaluate(held.x, held.y).accuracy
    trainer.fit(x, y, epochs=25, batch_size=20, lr=lr, rng=np.random.default_rng(0))
    after = trainer.evaluate(held.x, held.y).accuracy
    int8 = evaluate_int8(bundle, trainer.params(), held).accuracy
    assert after > max(0.7, before + 0.2)
    assert int8 == pytest.approx(after, abs=loss_points / 100)


def test_equal_inputs_give_equal_bundles():
    first, second = (prepared(sensor_net(), "qat").bundle_bytes for _ in range(2))
    assert first == second


def test_without_calibration_there_is_no_int8_template():
    bundle = bundle_of(sensor_net(), "none", rows=[])
    assert set(bundle.contents) == {TRAIN_ONNX, "eval.onnx", EXPORT_TEMPLATE}
    assert bundle.manifest.quantization.facts == {"int8_export": False}


def test_batch_normalization_joins_the_convolution_before_it(tmp_path):
    model = normalize(sensor_net(with_norm=True))
    folded = fold_batch_normalization(model)
    assert "BatchNormalization" not in {node.op_type for node in folded.graph.node}
    x, _ = windows(20)
    before, after = (
        open_session(m.SerializeToString()).run(None, {"x": x})[0] for m in (model, folded)
    )
    np.testing.assert_allclose(after, before, atol=1e-5)
    kept = fold_batch_normalization(model, keep=["norm.scale"])
    assert kept.SerializeToString() == model.SerializeToString()
    bundle = bundle_of(sensor_net(with_norm=True), "static", trainable="head")
    assert "Conv" not in optimized_operators(bundle.content(FEATURES_ONNX), tmp_path)


def test_a_tensor_of_a_norm_that_is_trained_is_not_folded_away():
    bundle = bundle_of(sensor_net(with_norm=True), "none", trainable="norm.scale,norm.shift")
    x, y = windows(30)
    trainer = one_step(bundle, x, y)
    held = windows(100, seed=3)
    int8 = evaluate_int8(bundle, trainer.params(), TrainingData(x=held[0], y=held[1]))
    assert int8.loss == pytest.approx(trainer.evaluate(*held).loss, rel=0.03)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("mode", ["static", "qat", "grid"])
def test_a_float_model_needs_calibration(mode):
    with pytest.raises(TrainingError) as refusal:
        prepared(sensor_net(), mode, rows=[])
    assert refusal.value.code == "E-MODEL-CALIBRATION"
    assert f"--quantize {mode}:" in str(refusal.value)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((4, 3, 15), np.float32),
        np.zeros((4, 3, 16), np.int64),
        np.full((4, 3, 16), np.nan, np.float32),
        np.full((4, 3, 16), 1e38, np.float32),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows):
    with pytest.raises(DataError) as refusal:
        prepared(sensor_net(), "qat", rows=rows)
    assert refusal.value.code == "E-CALIBRATION-ROWS"


def test_what_the_user_writes_is_read(tmp_path):
    rows = windows(5)[0]
    np.savez(tmp_path / "rows.npz", x=rows.astype(np.float64))
    np.save(tmp_path / "rows.npy", rows)
    request = parse_quantization(f"static:{tmp_path / 'rows.npz'}")
    assert request.mode is QuantizationMode.STATIC
    np.testing.assert_array_equal(request.calibration, rows)
    beside = parse_quantization("none", tmp_path / "rows.npy")
    np.testing.assert_array_equal(beside.calibration, rows)
    assert parse_quantization("none").calibration is None
    with pytest.raises(TrainingError, match="E-MODEL-QUANTIZE"):
        parse_quantization("int4")


def test_files_that_hold_no_rows_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "words.npy", np.array(["a"]))
    for name in ("other.npz", "text.npz", "words.npy", "missing.npz"):
        with pytest.raises(DataError) as refusal:
            load_calibration(tmp_path / name)
        assert refusal.value.code == "E-CALIBRATION-ROWS"
