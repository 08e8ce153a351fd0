"""The whole compiler on random models: gradients of onnxruntime against float64 differences.

The few dozen examples of an ordinary run are random anew each time; `-m long` tries thousands.
"""

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, event, given, settings
from onnx import numpy_helper

from edgefl.training.bundle import EVAL_ONNX, read_bundle
from edgefl.training.evaluate import split_params
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.rules import covered_operators
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests import random_models
from tests.gradient_check import evaluator, in_double

HUGE_LR = 2.0**40
STEP = 1e-6
DIRECTIONS = 5
# Of the gradient's norm. Float32 loses digits where large parts cancel.
TOLERANCE = 2e-3
FLOOR = 1e-5


# Operators with a rule that models are not drawn with.
NOT_DRAWN = {
    # They end a gradient, or are folded away before it is taken.
    *("And", "ArgMax", "ArgMin", "Cast", "Ceil", "ConstantOfShape", "Equal", "Floor", "IsInf"),
    *("GreaterOrEqual", "IsNaN", "LessOrEqual", "NonZero", "Not", "Or", "Round", "Shape", "Sign"),
    *("Size", "Xor"),
    # Their gradient is no slope: straight through a rounding.
    *("DequantizeLinear", "QuantizeLinear"),
    # A pole near any drawn value, or a logarithm of negative sums.
    *("ReduceLogSum", "Tan"),
    # They read whole numbers as data; tested with their rules.
    *("GatherElements", "GatherND"),
}


def loss_in_double(bundle, x, y):
    """Cross-entropy as a function of the flat vector, by onnx's evaluator in float64."""
    graph = onnx.load_from_string(bundle.content(EVAL_ONNX))
    wide = evaluator(in_double(graph))
    slots = bundle.manifest.parameters

    def loss(flat):
        tensors = {
            slot.name: flat[slot.offset : slot.offset + slot.size].reshape(slot.shape)
            for slot in slots
        }
        logits = wide.run(None, {"x": x.astype(np.float64), **tensors})[0]
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_sums = np.log(np.exp(shifted).sum(axis=1))
        return float(np.mean(log_sums - shifted[np.arange(len(y)), y]))

    return loss


def slope(loss, start, direction):
    """The central difference, or None where a kink or a jump lies within its reach."""
    found = [
        (loss(start + step * direction) - loss(start - step * direction)) / (2 * step)
        for step in (STEP, STEP / 4)
    ]
    middle = loss(start)
    one_sided = (loss(start + STEP * direction) - middle) / STEP
    is_smooth = abs(found[0] - found[1]) < 1e-4 * (1 + abs(found[0]))
    return (
        found[0] if is_smooth and abs(one_sided - found[0]) < 1e-3 * (1 + abs(found[0])) else None
    )


def check(model):
    bundle = read_bundle(compile_with(model, CompileOptions()).bundle_bytes)
    x = random_models.inputs_of(model)
    y = np.arange(len(x)) % random_models.CLASSES
    trainer = OnnxTrainer(bundle)
    rng = np.random.default_rng(0)
    trained = trainer.fit(x, y, epochs=1, batch_size=len(x), lr=HUGE_LR, rng=rng)
    gradient = trainer.delta().astype(np.float64) / -HUGE_LR
    loss = loss_in_double(bundle, x, y)
    start = bundle.initial_params.astype(np.float64)
    assert trained == pytest.approx(loss(start), rel=1e-4, abs=1e-5)
    norm = float(np.linalg.norm(gradient))
    for _ in range(DIRECTIONS):
        direction = rng.normal(size=len(start))
        direction /= np.linalg.norm(direction)
        expected = slope(loss, start, direction)
        if expected is None:
            event("a kink")
            continue
        found = float(gradient @ direction)
        assert (
            abs(found - expected)
            <= TOLERANCE * (norm / np.sqrt(len(start)) + abs(expected)) + FLOOR
        )
    tensors = split_params(gradient.astype(np.float32), bundle.manifest.parameters)
    assert any(np.abs(tensor).max() > 0 for tensor in tensors.values())


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(model=random_models.models())
def test_random_models_train_in_the_direction_of_their_slope(model):
    check(model)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(model=random_models.models(least=4, most=14))
def test_thousands_of_random_models(model):
    check(model)


def test_models_are_drawn_from_all_rules():
    assert set(covered_operators()) == random_models.DRAWN | NOT_DRAWN
    assert not random_models.DRAWN & NOT_DRAWN


def test_settings_of_drawn_models_are_no_weights():
    """The drawn scales of a Resize and statistics of a BatchNormalization are not trained."""
    draft = random_models.Draft()
    draft.values["x"] = np.ones((random_models.BATCH, 2, 4))
    random_models._batch_norm(draft, None)
    model = draft.model()
    bundle = read_bundle(compile_with(model, CompileOptions()).bundle_bytes)
    statistics = set(model.graph.node[0].input[3:])
    assert statistics.isdisjoint(slot.name for slot in bundle.manifest.parameters)
    by_name = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert all((by_name[name] != 0).any() for name in statistics)
