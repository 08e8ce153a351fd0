"""Low-rank changes: nothing at first, exact gradients, and merged into the weights for export."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgefl.errors import ConfigError, TrainingError
from edgefl.training.bundle import export_model, read_bundle
from edgefl.training.evaluate import Evaluator
from edgefl.training.onnx.compile.bundle import compile_bundle, compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.small_models import conv_net, initializer, small_model, two_layers


def matmul_net():
    """Return a MatMul, one that reads its weight through a Transpose, and a scaled Gemm."""
    nodes = [
        ("MatMul", ["x", "w1"], "h1", {}),
        ("Relu", ["h1"], "a1", {}),
        ("Transpose", ["w2"], "t2", {"perm": [1, 0]}),
        ("MatMul", ["a1", "t2"], "h2", {}),
        ("Relu", ["h2"], "a2", {}),
        ("Gemm", ["a2", "w3", "b3"], "y", {"alpha": 2.0, "beta": 0.5}),
    ]
    return small_model(
        nodes,
        [
            initializer("w1", 4, 6),
            initializer("w2", 5, 6),
            initializer("w3", 5, 3),
            initializer("b3", 3),
        ],
    )


NETS = {"gemm": two_layers, "conv": conv_net, "matmul": matmul_net}


def prepared(net, **options):
    bundle_bytes = compile_with(NETS[net](), CompileOptions(**options)).bundle_bytes
    return read_bundle(bundle_bytes)


def examples(bundle, rows=24, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, *bundle.manifest.input.shape)).astype(np.float32)
    return x, rng.integers(0, bundle.manifest.classes, rows)


def trained(bundle, epochs=3, lr=0.1):
    trainer = OnnxTrainer(bundle)
    x, y = examples(bundle)
    trainer.fit(x, y, epochs=epochs, batch_size=8, lr=lr, rng=np.random.default_rng(1))
    return trainer


def run(model_bytes, x):
    session = onnxruntime.InferenceSession(model_bytes, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def weights(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


@pytest.mark.parametrize("net", NETS)
def test_the_changed_model_begins_as_the_model_itself(net):
    changed, plain = prepared(net, trainable="lora:2"), prepared(net)
    x, _ = examples(plain)
    expected = Evaluator(plain).predict(plain.initial_params, x)
    found = Evaluator(changed).predict(changed.initial_params, x)
    # onnxruntime folds a BatchNormalization into the Conv before it, but not past the sum.
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("alpha", [None, 6.0])
def test_the_export_is_the_source_model_with_the_product_added(net, alpha):
    bundle = prepared(
        net, trainable="lora:2,*.bias" if net != "matmul" else "lora:2,b3", lora_alpha=alpha
    )
    trainer = trained(bundle)
    x, _ = examples(bundle, seed=4)
    before = trainer.predict(x)
    exported = export_model(bundle, trainer.params())
    source = NETS[net]()
    model = onnx.load_from_string(exported)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == [n.op_type for n in source.graph.node]
    assert np.abs(run(exported, x) - before).max() < 1e-4 * np.abs(before).max()
    original, found = weights(source), weights(model)
    assert set(found) == set(original)
    changed = {name for name in found if not np.array_equal(found[name], original[name])}
    assert changed == {merge.target for merge in bundle.manifest.merges} | {
        slot.name for slot in bundle.manifest.spliced
    }
    for merge in bundle.manifest.merges:
        rows = merge.shape[0]
        difference = (found[merge.target] - original[merge.target]).reshape(rows, -1)
        values = np.linalg.svd(difference.astype(np.float64), compute_uv=False)
        assert values[0] > 1e-3
        assert (values[2:] < 1e-4 * values[0]).all()


def test_exporting_the_first_parameters_gives_the_source_weights_back():
    bundle = prepared("conv", trainable="lora:3")
    found = weights(onnx.load_from_string(export_model(bundle, bundle.initial_params)))
    for name, array in weights(conv_net()).items():
        assert np.array_equal(found[name], array), name
    assert bundle.manifest.splice_offsets == ()


@pytest.mark.parametrize("net", NETS)
def test_training_a_low_rank_change_lowers_the_loss(net):
    bundle = prepared(net, trainable="lora:2")
    trainer = OnnxTrainer(bundle)
    x, y = examples(bundle)
    before = trainer.evaluate(x, y).loss
    trainer.fit(x, y, epochs=40, batch_size=8, lr=0.05, rng=np.random.default_rng(1))
    assert trainer.evaluate(x, y).loss < 0.9 * before


def test_gradients_are_those_of_the_merged_weight():
    """With y = x (W + A B), dA = dW B^T and dB = A^T dW: checked against training W itself."""
    model = small_model([("MatMul", ["x", "w"], "y", {})], [initializer("w", 4, 3)])
    change = read_bundle(compile_with(model, CompileOptions(trainable="lora:2")).bundle_bytes)
    plain = read_bundle(compile_bundle(model).bundle_bytes)
    rng = np.random.default_rng(0)
    a = rng.normal(size=(4, 2)).astype(np.float32)
    b = rng.normal(size=(2, 3)).astype(np.float32)
    x, y = examples(plain)
    settings = {"epochs": 1, "batch_size": len(x), "lr": 0.01}
    whole = OnnxTrainer(plain)
    whole.set_params((plain.initial_params.reshape(4, 3) + a @ b).reshape(-1))
    whole.fit(x, y, rng=np.random.default_rng(0), **settings)
    dw = whole.delta().reshape(4, 3).astype(np.float64)
    factors = OnnxTrainer(change)
    factors.set_params(np.concatenate([a.reshape(-1), b.reshape(-1)]))
    factors.fit(x, y, rng=np.random.default_rng(0), **settings)
    found = factors.delta()
    assert np.allclose(found[:8].reshape(4, 2), dw @ b.T, atol=1e-6)
    assert np.allclose(found[8:].reshape(2, 3), a.T @ dw, atol=1e-6)


def test_what_is_trained_whole_has_no_low_rank_change():
    manifest = prepared("gemm", trainable="lora:2,head").manifest
    assert [slot.name for slot in manifest.parameters] == [
        "second.weight",
        "second.bias",
        "first.weight.lora_a",
        "first.weight.lora_b",
    ]
    assert [merge.target for merge in manifest.merges] == ["first.weight"]
    assert "first.weight" in {tensor.name for tensor in manifest.frozen}


def test_a_pattern_names_the_weights_and_ranks_may_differ():
    manifest = prepared("conv", trainable="lora:3:conv2*,lora:1:head*").manifest
    shapes = {slot.name: slot.shape for slot in manifest.parameters}
    assert shapes == {
        "conv2.weight.lora_a": (3, 6, 3, 3),
        "conv2.weight.lora_b": (4, 3, 1, 1),
        "head.weight.lora_a": (1, 4),
        "head.weight.lora_b": (4, 1),
    }


def test_changes_can_stay_on_the_device():
    bundle = prepared("conv", trainable="lora:2:conv*,head", local="head")
    assert [slot.name for slot in bundle.manifest.local] == ["head.weight", "head.bias"]
    kept = prepared("conv", trainable="lora:2:conv*,head", local="*.lora_?")
    assert len(kept.manifest.local) == 4
    trainer = trained(kept)
    x, _ = examples(kept)
    exported = export_model(kept, trainer.params(), trainer.local())
    assert np.abs(run(exported, x) - trainer.predict(x)).max() < 1e-4


def test_first_values_follow_the_seed():
    first, again, other = (prepared("gemm", trainable="lora:2", seed=s) for s in (1, 1, 2))
    assert first.sha256 == again.sha256
    assert not np.array_equal(first.initial_params, other.initial_params)


def test_weights_in_groups_or_with_two_readers_are_left_out_and_named():
    grouped = compile_with(conv_net(groups=2), CompileOptions(trainable="lora:2"))
    assert any("conv2.weight" in warning for warning in grouped.warnings)
    assert "conv2.weight" not in {merge.target for merge in grouped.manifest.merges}
    tied = small_model(
        [
            ("MatMul", ["x", "w"], "h", {}),
            ("Relu", ["h"], "a", {}),
            ("MatMul", ["a", "w"], "y", {}),
        ],
        [initializer("w", 4, 4)],
        output=("y", ["N", 4]),
    )
    with pytest.raises(TrainingError, match=r"E-MODEL-LORA.*unfit: w"):
        compile_with(tied, CompileOptions(trainable="lora:2"))


def test_a_change_of_no_layer_is_refused():
    with pytest.raises(TrainingError, match="E-MODEL-LORA"):
        prepared("conv", trainable="lora:2:nothing*")
    with pytest.raises(ConfigError, match="E-MODEL-LORA"):
        CompileOptions(lora_alpha=0.0)
