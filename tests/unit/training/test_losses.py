"""Losses against float64 numpy, their gradients against differences, and logits of any size."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgefl.training.kinds import Loss
from edgefl.training.loss_values import row_losses
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.losses import emit_loss
from edgefl.training.onnx.runtime.session import open_session

LOSSES = list(Loss)


def run_loss(loss, outputs, targets, weights, factor=None):
    """Return loss and gradients that onnxruntime computes."""
    size = outputs.shape[1]
    kind = TensorProto.INT64 if loss.takes_labels else TensorProto.FLOAT
    target_shape = ["N"] if loss.takes_labels else ["N", size]
    inputs = [
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["N", size]),
        helper.make_tensor_value_info(names.TARGET, kind, target_shape),
        helper.make_tensor_value_info(names.SAMPLE_WEIGHT, TensorProto.FLOAT, ["N"]),
        helper.make_tensor_value_info("factor", TensorProto.FLOAT, [1]),
    ]
    emitter = GraphEmitter(helper.make_model(helper.make_graph([], "g", inputs, [])))
    emitted = emit_loss(emitter, loss, "z", size, factor=None if factor is None else "factor")
    results = [emitted.loss, emitted.output_gradient, emitted.example_gradients, emitted.weights]
    graph = helper.make_graph(
        emitter.nodes,
        "loss",
        inputs,
        [helper.make_empty_tensor_value_info(name) for name in results],
        emitter.constants,
    )
    opsets = [helper.make_opsetid("", 17)]
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )
    session = open_session(model.SerializeToString())
    feeds = {"z": outputs, names.TARGET: targets, names.SAMPLE_WEIGHT: weights}
    if factor is not None:
        feeds["factor"] = np.array([factor], np.float32)
    else:
        feeds["factor"] = np.zeros(1, np.float32)
    return session.run(results, feeds)


def batch(loss, rows=6, size=4, seed=0, spread=2.0):
    rng = np.random.default_rng(seed)
    outputs = (spread * rng.normal(size=(rows, size))).astype(np.float32)
    if loss.takes_labels:
        return outputs, rng.integers(0, size, rows), rng.random(rows).astype(np.float32)
    return outputs, rng.random((rows, size)).astype(np.float32), rng.random(rows).astype(np.float32)


def expected_loss(loss, outputs, targets, weights):
    wide = weights.astype(np.float64)
    return float((row_losses(loss, outputs, targets) * wide).sum() / wide.sum())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [2, 5])
def test_loss_is_the_weighted_mean_of_the_rows(loss, size):
    outputs, targets, weights = batch(loss, size=size)
    found = run_loss(loss, outputs, targets, weights)
    assert found[0].shape == ()
    assert found[0] == pytest.approx(expected_loss(loss, outputs, targets, weights), rel=1e-5)
    assert np.allclose(found[3], weights / weights.sum())


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if not loss.takes_labels])
def test_one_value_per_row_is_enough(loss):
    outputs, targets, weights = batch(loss, size=1)
    found = run_loss(loss, outputs, targets, weights)
    assert found[0] == pytest.approx(expected_loss(loss, outputs, targets, weights), rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_follow_float64_differences(loss):
    outputs, targets, weights = batch(loss, seed=3)
    _, gradient, examples, _ = run_loss(loss, outputs, targets, weights)
    step = 1e-4
    for row, column in np.ndindex(*outputs.shape):
        ahead, behind = outputs.astype(np.float64), outputs.astype(np.float64)
        ahead[row, column] += step
        behind[row, column] -= step
        of_row = (
            row_losses(loss, ahead, targets)[row] - row_losses(loss, behind, targets)[row]
        ) / (2 * step)
        assert examples[row, column] == pytest.approx(of_row, abs=1e-5)
        share = weights[row] / weights.sum()
        assert gradient[row, column] == pytest.approx(of_row * share, abs=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_factor_scales_the_gradient_and_not_the_loss(loss):
    outputs, targets, weights = batch(loss)
    plain = run_loss(loss, outputs, targets, weights)
    scaled = run_loss(loss, outputs, targets, weights, factor=0.25)
    assert scaled[0] == plain[0]
    assert np.allclose(scaled[1], 0.25 * plain[1])
    assert np.array_equal(scaled[2], plain[2])


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_of_weight_zero_count_for_nothing(loss):
    outputs, targets, weights = batch(loss, rows=8)
    weights[5:] = 0
    whole = run_loss(loss, outputs, targets, weights)
    short = run_loss(loss, outputs[:5], targets[:5], weights[:5])
    assert whole[0] == pytest.approx(float(short[0]), rel=1e-6)
    assert np.allclose(whole[1][:5], short[1])
    assert not whole[1][5:].any()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_without_weight_has_no_loss_and_no_gradient(loss):
    outputs, targets, weights = batch(loss)
    loss_value, gradient, _, _ = run_loss(loss, outputs, targets, np.zeros_like(weights))
    assert loss_value == 0.0
    assert not gradient.any()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_outputs_of_any_size_give_finite_losses(loss, size):
    outputs, targets, weights = batch(loss, spread=0.0)
    outputs[:, 1] = size
    found = run_loss(loss, outputs, targets, weights)
    assert found[0] == pytest.approx(expected_loss(loss, outputs, targets, weights), rel=1e-5)
    assert all(np.isfinite(array).all() for array in found)
    if loss in {Loss.CROSS_ENTROPY, Loss.BINARY_CROSS_ENTROPY, Loss.HUBER}:
        assert np.abs(found[2]).max() <= 1.0
