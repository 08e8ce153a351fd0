"""What the compiler changes, chooses and refuses; each refusal names its cause."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.bundle import export_model, read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.normalize import load_model, normalize
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.small_models import initializer
from tests.small_models import small_model as model

FLOAT = TensorProto.FLOAT


GEMM = ("Gemm", ["x", "w", "b"], "y", {})
WEIGHTS = [initializer("w", 4, 3), initializer("b", 3)]


def trained(bundle_bytes, seed=0):
    trainer = OnnxTrainer(bundle_bytes)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, *trainer.manifest.input.shape)).astype(np.float32)
    y = rng.integers(0, trainer.manifest.classes, 12)
    trainer.fit(x, y, epochs=1, batch_size=6, lr=0.1, rng=rng)
    return trainer.delta()


def refusal(source, **settings):
    with pytest.raises(TrainingError) as caught:
        compile_bundle(source, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_all_unsupported_operators_are_named_at_once():
    nodes = [
        ("Gemm", ["x", "w", "b"], "h", {}),
        ("Hardmax", ["h"], "e", {}),
        ("Shrink", ["e"], "s", {}),
        ("Relu", ["s"], "y", {}),
    ]
    message = refusal(model(nodes, WEIGHTS))
    assert "E-MODEL-UNSUPPORTED-OPS" in message
    assert "Hardmax 'Hardmax_e', Shrink 'Shrink_s'" in message
    assert "Relu '" not in message


def test_an_operator_before_the_trained_layers_needs_no_rule():
    nodes = [("Hardmax", ["x"], "e", {}), ("Gemm", ["e", "w", "b"], "y", {})]
    assert np.any(trained(compile_bundle(model(nodes, WEIGHTS)).bundle_bytes))


def test_operators_of_other_domains_are_refused_even_off_the_path():
    source = model([("Hardmax", ["x"], "e", {}), ("Gemm", ["e", "w", "b"], "y", {})], WEIGHTS)
    source.graph.node[0].domain = "com.example"
    source.opset_import.append(helper.make_opsetid("com.example", 1))
    del source.graph.value_info[:]
    message = refusal(source)
    assert "E-MODEL" in message


def test_unknown_names_come_with_close_matches():
    message = refusal(demo_model(1), trainable=["head.wieght", "head.bias"])
    assert "E-MODEL-TRAINABLE" in message
    assert "did you mean head.weight" in message
    assert "there are w, b" in refusal(model([GEMM], WEIGHTS), trainable=["zzzzzz"])


def test_a_model_without_weights_is_refused():
    message = refusal(model([("Relu", ["x"], "y", {})], [], output=("y", ["N", 4])))
    assert "E-MODEL-TRAINABLE" in message


def test_names_and_head_choose_in_model_order():
    chosen = compile_bundle(demo_model(1), trainable=["head.bias", "conv1.bias"]).manifest
    assert [slot.name for slot in chosen.parameters] == ["conv1.bias", "head.bias"]
    head = compile_bundle(demo_model(1), trainable="head")
    assert [slot.name for slot in head.manifest.parameters] == ["head.weight", "head.bias"]
    assert head.manifest.dimension == 7 * 16 + 7
    only = compile_bundle(demo_model(1), trainable="head.bias").manifest
    assert only.dimension == 7


def test_head_takes_a_separate_bias_with_its_product():
    nodes = [
        ("MatMul", ["x", "w"], "h", {}),
        ("Add", ["h", "b"], "r", {}),
        ("Relu", ["r"], "a", {}),
        ("MatMul", ["a", "w2"], "m", {}),
        ("Add", ["m", "b2"], "y", {}),
    ]
    source = model(nodes, [*WEIGHTS, initializer("w2", 3, 3), initializer("b2", 3)])
    manifest = compile_bundle(source, trainable="head").manifest
    assert [slot.name for slot in manifest.parameters] == ["w2", "b2"]


def test_training_the_head_moves_only_the_head_in_the_exported_model():
    bundle_bytes = compile_bundle(demo_model(1), trainable="head").bundle_bytes
    bundle = read_bundle(bundle_bytes)
    params = bundle.initial_params + trained(bundle_bytes)
    exported = onnx.load_from_string(export_model(bundle, params))
    before = {t.name: numpy_helper.to_array(t) for t in demo_model(1).graph.initializer}
    after = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert moved == {"head.weight", "head.bias"}


def test_tensors_without_gradient_are_named():
    nodes = [GEMM, ("Gemm", ["x", "u", "b"], "unused", {})]
    source = model(nodes, [*WEIGHTS, initializer("u", 4, 3)])
    message = refusal(source, trainable=["w", "u"])
    assert "E-MODEL-NO-GRADIENT" in message
    assert "'u'" in message
    assert "'w'" not in message
    assert np.any(trained(compile_bundle(source, trainable="all").bundle_bytes))


def test_a_pass_that_misses_a_tensor_says_so():
    source = normalize(model([GEMM], [*WEIGHTS, initializer("u", 4, 3)]))
    with pytest.raises(TrainingError, match=r"E-MODEL-NO-GRADIENT.*'u'"):
        differentiate(GraphEmitter(source), source.graph.node, ["w", "u"], "y", "dy")


def test_a_final_softmax_is_taken_off_with_a_warning():
    plain = compile_bundle(model([GEMM], WEIGHTS))
    nodes = [("Gemm", ["x", "w", "b"], "z", {}), ("Softmax", ["z"], "y", {"axis": -1})]
    softmax = compile_bundle(model(nodes, WEIGHTS))
    assert plain.warnings == ()
    assert "Softmax" in softmax.warnings[0]
    assert np.array_equal(trained(softmax.bundle_bytes), trained(plain.bundle_bytes))
    exported = export_model(read_bundle(softmax.bundle_bytes), trained(softmax.bundle_bytes))
    assert onnx.load_from_string(exported).graph.node[-1].op_type == "Softmax"


def test_a_dropout_warns_and_drops_nothing():
    nodes = [("Gemm", ["x", "w", "b"], "h", {}), ("Dropout", ["h"], "y", {})]
    dropout = compile_bundle(model(nodes, WEIGHTS))
    assert dropout.warnings == ("Dropout 'Dropout_y' drops nothing while training on a device",)
    plain = compile_bundle(model([GEMM], WEIGHTS))
    assert np.array_equal(trained(dropout.bundle_bytes), trained(plain.bundle_bytes))


def test_sizes_that_are_not_fixed_are_refused():
    source = model([GEMM], WEIGHTS, inputs=(("x", ["N", "features"]),))
    assert "E-MODEL-INPUTS" in refusal(source)
    nodes = [
        ("Conv", ["x", "k"], "c", {}),
        ("GlobalAveragePool", ["c"], "p", {}),
        ("Flatten", ["p"], "y", {}),
    ]
    source = model(nodes, [initializer("k", 3, 2, 3)], inputs=(("x", ["N", 2, "time"]),))
    message = refusal(source)
    assert "E-MODEL-INPUTS" in message
    assert "'x' with sizes [2, '?']" in message


def test_a_batch_size_baked_into_the_model_is_refused():
    nodes = [("Add", ["x", "of_each_row"], "r", {}), ("Gemm", ["r", "w", "b"], "y", {})]
    tensors = [*WEIGHTS, initializer("of_each_row", 2, 4)]
    source = model(nodes, tensors, inputs=(("x", [2, 4]),), output=("y", [2, 3]))
    assert "E-MODEL-BATCH" in refusal(source)


def test_a_batch_size_only_in_the_declaration_is_opened():
    source = model([GEMM], WEIGHTS, inputs=(("x", [1, 4]),), output=("y", [1, 3]))
    assert np.any(trained(compile_bundle(source).bundle_bytes))


def test_outputs_that_are_no_logits_are_refused():
    nodes = [("Conv", ["x", "k"], "y", {})]
    source = model(
        nodes, [initializer("k", 3, 2, 3)], inputs=(("x", ["N", 2, 9]),), output=("y", ["N", 3, 7])
    )
    assert "E-MODEL-OUTPUT" in refusal(source)


def test_two_inputs_are_refused():
    nodes = [("Add", ["x", "z"], "s", {}), ("Gemm", ["s", "w", "b"], "y", {})]
    source = model(nodes, WEIGHTS, inputs=(("x", ["N", 4]), ("z", ["N", 4])))
    assert "E-MODEL-INPUTS" in refusal(source)
    assert "x, z" in refusal(source)


def test_a_mean_over_the_batch_is_refused():
    nodes = [
        ("Gemm", ["x", "w", "b"], "h", {}),
        ("ReduceMean", ["h"], "m", {"axes": [0], "keepdims": 1}),
        ("Sub", ["h", "m"], "y", {}),
    ]
    assert "E-MODEL-OP-FORM" in refusal(model(nodes, WEIGHTS))


def test_external_data_are_refused():
    source = model([GEMM], WEIGHTS)
    tensor = source.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    tensor.ClearField("raw_data")
    assert "E-MODEL-EXTERNAL-DATA" in refusal(source)


def test_invalid_models_and_files_give_one_line(tmp_path):
    broken = model([("Gemm", ["nowhere", "w", "b"], "y", {})], WEIGHTS)
    assert "E-MODEL-INVALID" in refusal(broken)
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"\xff\xfe nothing")
    for path in (garbage, tmp_path / "missing.onnx"):
        with pytest.raises(TrainingError, match="E-MODEL-UNREADABLE") as caught:
            load_model(path)
        assert "\n" not in str(caught.value)


def test_a_training_graph_is_no_source_model():
    graph = onnx.load_from_string(
        read_bundle(compile_bundle(demo_model(1)).bundle_bytes).content("eval.onnx")
    )
    graph.graph.node[0].output[0] = "edgefl.mine"
    graph.graph.node[1].input[0] = "edgefl.mine"
    for name in ("conv1", "conv2", "head"):
        for part in ("weight", "bias"):
            source = next(t for t in demo_model(1).graph.initializer if t.name == f"{name}.{part}")
            graph.graph.initializer.append(source)
    assert "E-MODEL-NAMES" in refusal(graph)


def test_unknown_losses_and_optimisers_are_refused():
    assert "cross_entropy" in refusal(demo_model(1), loss="hinge")
    assert "sgd" in refusal(demo_model(1), optimizer="lion")


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_graphs_are_capped_for_old_runtimes(opset):
    nodes = [("Gemm", ["x", "w", "b"], "h", {}), ("Relu", ["h"], "y", {})]
    prepared = compile_bundle(model(nodes, WEIGHTS, opset=opset))
    bundle = read_bundle(prepared.bundle_bytes)
    for graph_bytes in (
        bundle.content("train.onnx"),
        bundle.content("eval.onnx"),
        _exported(bundle),
    ):
        graph = onnx.load_from_string(graph_bytes)
        assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", 17)]
        assert graph.ir_version == 8
        assert {node.domain for node in graph.graph.node} == {""}
    assert np.any(trained(prepared.bundle_bytes))


def _exported(bundle):
    return export_model(bundle, bundle.initial_params)


def test_a_newer_reduce_mean_is_brought_to_the_target_opset():
    axes = numpy_helper.from_array(np.array([1]), "axes")
    nodes = [
        ("MatMul", ["x", "w"], "h", {}),
        ("ReduceMean", ["h", "axes"], "y", {"keepdims": 0}),
    ]
    source = model(nodes, [WEIGHTS[0], axes], inputs=(("x", ["N", 5, 4]),), opset=18)
    assert np.any(trained(compile_bundle(source).bundle_bytes))


def test_weights_in_constant_nodes_are_trainable():
    nodes = [("Constant", [], "w", {"value": WEIGHTS[0]}), ("MatMul", ["x", "w"], "y", {})]
    prepared = compile_bundle(model(nodes, []))
    assert [slot.name for slot in prepared.manifest.parameters] == ["w"]
    assert np.any(trained(prepared.bundle_bytes))


def test_tensors_merged_by_an_exporter_are_trained_apart():
    nodes = [
        ("Identity", ["b"], "b2", {}),
        ("Gemm", ["x", "w", "b"], "h", {}),
        ("Relu", ["h"], "a", {}),
        ("Add", ["a", "b2"], "y", {}),
    ]
    prepared = compile_bundle(model(nodes, WEIGHTS))
    assert {slot.name for slot in prepared.manifest.parameters} == {"w", "b", "b2"}
    delta = trained(prepared.bundle_bytes)
    by_name = {s.name: delta[s.offset : s.offset + s.size] for s in prepared.manifest.parameters}
    assert not np.array_equal(by_name["b"], by_name["b2"])


def test_a_tensor_used_twice_is_trained_as_one():
    nodes = [
        ("MatMul", ["x", "square"], "h", {}),
        ("Relu", ["h"], "a", {}),
        ("MatMul", ["a", "square"], "y", {}),
    ]
    source = model(nodes, [initializer("square", 4, 4)], output=("y", ["N", 4]))
    assert compile_bundle(source).manifest.dimension == 16
