"""Clipped steps of whole bundles, against PyTorch and against plain steps on single examples."""

import base64
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.bundle import TRAIN_ONNX, read_bundle
from edgefl.training.kinds import Loss
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.session import open_session
from edgefl.training.onnx.runtime.trainer import OnnxTrainer

VECTORS = Path(__file__).parents[2] / "vectors" / "perexample_torch.json"
CASES = json.loads(VECTORS.read_text())["cases"]
SLOW = "one after another"


def prepared(model, **options):
    return compile_with(model, CompileOptions(clips_examples=True, **options))


def step(bundle, x, y, *, clip, weights=None):
    """The change of one step over all examples with learning rate 1."""
    trainer = OnnxTrainer(bundle)
    trainer.fit(
        x,
        y,
        epochs=1,
        batch_size=len(x),
        lr=1.0,
        rng=np.random.default_rng(0),
        sample_weight=weights,
        example_clip=clip,
    )
    return trainer.delta()


def norms_of(bundle, x, y):
    """Run the training graph itself; it gives the norms beside the step."""
    session = open_session(bundle.content(TRAIN_ONNX))
    feeds = {bundle.manifest.input.name: x, names.TARGET: y}
    feeds[names.SAMPLE_WEIGHT] = np.ones(len(x), np.float32)
    for slot in bundle.manifest.parameters:
        values = bundle.initial_params[slot.offset : slot.offset + slot.size]
        feeds[slot.name] = values.reshape(slot.shape)
        feeds[names.received(slot.name)] = feeds[slot.name]
    for value in session.get_inputs():
        feeds.setdefault(value.name, np.ones(1, np.float32))
    declared = {value.name for value in session.get_inputs()}
    return session.run([names.EXAMPLE_NORMS], {n: v for n, v in feeds.items() if n in declared})[0]


def vector_case(case):
    result = prepared(onnx.load_from_string(base64.b64decode(case["onnx"])))
    assert not any(SLOW in warning for warning in result.warnings)
    bundle = read_bundle(result.bundle_bytes)
    element = bundle.manifest.input.element_type.value
    return bundle, np.array(case["x"], element), np.array(case["target"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_norms_agree_with_pytorch(case):
    np.testing.assert_allclose(norms_of(*vector_case(case)), case["norms"], rtol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_clipped_steps_agree_with_pytorch(case):
    bundle, x, y = vector_case(case)
    weights = np.array(case["weights"], np.float32)
    gradient = -step(bundle, x, y, clip=case["clip"], weights=weights)
    assert np.linalg.norm(gradient) == pytest.approx(case["clipped_norm"], rel=1e-5)
    slots = {slot.name: slot for slot in bundle.manifest.parameters}
    assert slots.keys() >= case["clipped"].keys()
    for name, expected in case["clipped"].items():
        found = gradient[slots[name].offset : slots[name].offset + slots[name].size]
        # Parameters after a step of length 1 keep the digits of the parameters, not of the step.
        np.testing.assert_allclose(found, np.ravel(expected), rtol=0, atol=3e-7, err_msg=name)


def examples(manifest, count=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, *manifest.input.shape)).astype(np.float32)
    if manifest.loss.takes_labels:
        return x, rng.integers(0, manifest.output.shape[0], count)
    return x, rng.uniform(size=(count, *manifest.output.shape)).astype(np.float32)


@pytest.mark.parametrize("loss", list(Loss), ids=lambda loss: loss.value)
def test_each_loss_is_clipped_as_plain_steps_on_single_examples_say(loss):
    plain = read_bundle(compile_with(demo_model(3), CompileOptions(loss=loss)).bundle_bytes)
    clipped = read_bundle(prepared(demo_model(3), loss=loss).bundle_bytes)
    x, y = examples(plain.manifest)
    singles = np.array(
        [step(plain, x[i : i + 1], y[i : i + 1], clip=None) for i in range(len(x))], float
    )
    norms = np.linalg.norm(singles, axis=1)
    clip = float(np.median(norms))
    expected = np.minimum(1, clip / norms) @ singles / len(x)
    np.testing.assert_allclose(step(clipped, x, y, clip=clip), expected, rtol=0, atol=3e-7)


def test_rows_of_no_weight_fill_up_the_last_batch():
    bundle = read_bundle(prepared(demo_model(3)).bundle_bytes)
    x, y = examples(bundle.manifest, count=5)
    weights = np.array([1, 1, 1, 0, 0], np.float32)
    padded = step(bundle, x, y, clip=0.2, weights=weights)
    np.testing.assert_allclose(padded, step(bundle, x[:3], y[:3], clip=0.2), rtol=0, atol=1e-7)


def tied_model():
    """x W W' + b: two products share one weight."""
    rng = np.random.default_rng(4)
    weights = {"w": rng.normal(size=(4, 4)) / 2, "b": np.zeros(4), "v": rng.normal(size=(4, 3))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Tanh", ["a"], ["h"], name="between"),
        helper.make_node("MatMul", ["h", "w"], ["c"], name="second"),
        helper.make_node("Gemm", ["c", "v"], ["y"], name="head"),
    ]
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_slow_form_is_said_and_gives_the_same():
    result = prepared(tied_model(), trainable=["w", "v"])
    assert any(SLOW in w and "two nodes read the parameter 'w'" in w for w in result.warnings)
    assert result.manifest.programs[0].facts["example_clipping"] == "scan"
    bundle = read_bundle(result.bundle_bytes)
    plain = read_bundle(
        compile_with(tied_model(), CompileOptions(trainable=["w", "v"])).bundle_bytes
    )
    x, y = examples(bundle.manifest)
    singles = np.array(
        [step(plain, x[i : i + 1], y[i : i + 1], clip=None) for i in range(len(x))], float
    )
    norms = np.linalg.norm(singles, axis=1)
    clip = float(np.median(norms))
    expected = np.minimum(1, clip / norms) @ singles / len(x)
    np.testing.assert_allclose(step(bundle, x, y, clip=clip), expected, rtol=0, atol=3e-7)
    np.testing.assert_allclose(norms_of(bundle, x, y), norms, rtol=3e-6)


def test_a_clip_norm_must_be_given_exactly_where_it_is_read():
    plain = read_bundle(compile_with(demo_model(3), CompileOptions()).bundle_bytes)
    clipped = read_bundle(prepared(demo_model(3)).bundle_bytes)
    x, y = examples(plain.manifest)
    for bundle, clip in ((plain, 1.0), (clipped, None), (clipped, 0.0), (clipped, -1.0)):
        with pytest.raises(TrainingError):
            step(bundle, x, y, clip=clip)
