"""What `edgefl model check` finds: each kind of obstacle, all of them at once, by node name."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.training.kinds import Loss, QuantizationMode
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import QuantizationRequest
from edgefl.training.onnx.compile.report import Coverage, Verdict, examine
from tests.small_models import conv_net, initializer, small_model, two_layers

WEIGHTS = [initializer("w", 4, 3), initializer("b", 3)]
GEMM = ("Gemm", ["x", "w", "b"], "h", {})


def report_of(model, **options):
    return examine(model, CompileOptions(**options))


def found(report):
    return [(error.code, error.found) for error in report.obstacles]


def integer_layer():
    """Return x -> int8 -> QLinearMatMul -> float, and a float layer behind it."""
    rng = np.random.default_rng(0)
    zero = numpy_helper.from_array(np.array(0, np.int8), "zero")
    w8 = numpy_helper.from_array(rng.integers(-90, 90, (4, 6)).astype(np.int8), "w8")
    nodes = [
        ("QuantizeLinear", ["x", "s", "zero"], "x8", {}),
        ("QLinearMatMul", ["x8", "s", "zero", "w8", "s", "zero", "s", "zero"], "h8", {}),
        ("DequantizeLinear", ["h8", "s", "zero"], "h", {}),
        ("Gemm", ["h", "w", "b"], "y", {}),
    ]
    tensors = [initializer("w", 6, 3), initializer("b", 3), initializer("s", value=0.05), zero, w8]
    return small_model(nodes, tensors)


def test_a_good_model_has_a_table_and_a_bundle():
    report = report_of(conv_net(), trainable="head")
    assert report.verdict is Verdict.TRAINABLE
    assert report.obstacles == ()
    assert report.prepared is not None
    counts = {(one.operator, one.coverage): one.count for one in report.operators}
    assert counts["Conv", Coverage.OFF_PATH] == 2
    assert counts["Gemm", Coverage.COVERED] == 1
    assert not any(one.coverage is Coverage.REFUSED for one in report.operators)


def test_operators_without_rules_and_rules_that_refuse_come_together():
    nodes = [
        ("Gemm", ["x", "w", "b"], "h", {}),
        ("Hardmax", ["h"], "e", {}),
        ("ReduceMean", ["e"], "m", {"axes": [0], "keepdims": 1}),
        ("Sub", ["e", "m"], "s", {}),
        ("Hardmax", ["s"], "y", {}),
    ]
    report = report_of(small_model(nodes, WEIGHTS))
    assert report.verdict is Verdict.INFERENCE_ONLY
    assert report.prepared is None
    codes = [error.code for error in report.obstacles]
    assert codes.count("E-MODEL-UNSUPPORTED-OPS") == 2
    assert "E-MODEL-OP-FORM" in codes
    text = " ".join(error.found for error in report.obstacles)
    for name in ("Hardmax_e", "Hardmax_y"):
        assert name in text
    assert "'m'" in text or "ReduceMean_m" in text


def test_wrong_options_are_told_from_models_that_cannot_train():
    report = report_of(two_layers(), trainable="first.wieght")
    assert report.verdict is Verdict.OPTIONS
    assert "first.weight" in report.obstacles[0].advice
    assert {one.coverage for one in report.operators} == {Coverage.COVERED}
    both = report_of(small_model([GEMM, ("Hardmax", ["h"], "y", {})], WEIGHTS), trainable="nothing")
    assert both.verdict is Verdict.INFERENCE_ONLY
    assert [error.code for error in both.obstacles] == [
        "E-MODEL-TRAINABLE",
        "E-MODEL-UNSUPPORTED-OPS",
    ]


def test_a_fully_quantized_layer_is_named_and_its_head_still_trains():
    nodes = [
        ("Gemm", ["x", "w", "b"], "h", {}),
        ("DynamicQuantizeLinear", ["h"], "h8", {}),
    ]
    model = small_model(nodes, WEIGHTS)
    del model.graph.node[1].output[:]
    model.graph.node[1].output.extend(["h8", "hs", "hz"])
    model.graph.node.extend(
        [
            helper.make_node("MatMulInteger", ["h8", "w8", "hz"], ["i"], name="ints"),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["f", "hs"], ["y"]),
        ]
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((3, 3), np.int8), "w8"))
    report = report_of(model)
    text = " | ".join(str(error) for error in report.obstacles)
    assert "MatMulInteger 'ints'" in text or "DynamicQuantizeLinear" in text
    assert "--quantize static" in text
    head = report_of(integer_layer(), trainable="head")
    assert head.verdict is Verdict.TRAINABLE, found(head)


def test_layers_before_integers_cannot_train():
    model = integer_layer()
    model.graph.initializer.append(initializer("shift", 4))
    model.graph.node.insert(0, helper.make_node("Add", ["x", "shift"], ["xs"], name="shift_inputs"))
    model.graph.node[1].input[0] = "xs"
    report = report_of(model)
    assert report.verdict is Verdict.INFERENCE_ONLY
    assert any(
        "fully quantized" in error.found and "QLinearMatMul_h8" in error.found
        for error in report.obstacles
    )


def test_a_scale_that_is_not_stored_is_named():
    model = integer_layer()
    kept = [tensor for tensor in model.graph.initializer if tensor.name != "s"]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, initializer("half", value=0.025)])
    model.graph.node.insert(0, helper.make_node("Add", ["half", "half"], ["s"], name="made"))
    report = report_of(model, trainable="head")
    messages = [str(error) for error in report.obstacles if error.code == "E-MODEL-QUANTIZER"]
    assert len(messages) == 2
    assert "scale" in messages[0]
    assert "QuantizeLinear_x8" in messages[0]
    assert "Add 'made'" in messages[0]


def test_a_batch_normalization_in_training_mode_is_named():
    model = conv_net()
    node = next(n for n in model.graph.node if n.op_type == "BatchNormalization")
    node.attribute.append(helper.make_attribute("training_mode", 1))
    node.output.extend(["running_mean", "running_var"])
    report = report_of(model)
    assert any("BATCHNORM" in error.code for error in report.obstacles), found(report)
    assert any("BatchNormalization_n1" in str(error) for error in report.obstacles)


def test_foreign_operators_and_external_data_are_found_before_anything_else():
    model = two_layers()
    model.graph.node[1].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    report = report_of(model)
    assert "Relu 'Relu_a' of com.example" in [error.found for error in report.obstacles]
    outside = two_layers()
    tensor = outside.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    tensor.ClearField("raw_data")
    report = report_of(outside)
    assert "E-MODEL-EXTERNAL-DATA" in [error.code for error in report.obstacles]
    assert report.verdict is Verdict.INFERENCE_ONLY


@pytest.mark.parametrize(
    ("model", "loss", "code"),
    [
        (
            small_model([("Relu", ["x"], "y", {})], [], output=("y", ["N", 4])),
            Loss.MSE,
            "TRAINABLE",
        ),
        (two_layers(outputs=1), Loss.CROSS_ENTROPY, "OUTPUT"),
        (
            small_model(
                [("Conv", ["x", "k"], "y", {})],
                [initializer("k", 3, 2, 3)],
                inputs=(("x", ["N", 2, 9]),),
                output=("y", ["N", 3, 7]),
            ),
            Loss.MSE,
            "OUTPUT",
        ),
    ],
)
def test_outputs_that_do_not_fit_the_loss_are_named(model, loss, code):
    report = report_of(model, loss=loss)
    assert report.obstacles[0].code == f"E-MODEL-{code}"


def test_models_newer_than_the_compiler_are_refused_in_one_line():
    model = two_layers()
    model.ir_version = 99
    report = report_of(model)
    assert report.obstacles
    assert all("\n" not in str(error) for error in report.obstacles)
    newer = two_layers()
    newer.opset_import[0].version = onnx.defs.onnx_opset_version() + 50
    assert report_of(newer).obstacles


@pytest.mark.parametrize(
    ("last", "loss"),
    [
        ("Softmax", Loss.CROSS_ENTROPY),
        ("LogSoftmax", Loss.CROSS_ENTROPY),
        ("Sigmoid", Loss.BINARY_CROSS_ENTROPY),
    ],
)
def test_a_final_activation_that_belongs_to_the_loss_is_a_warning(last, loss):
    report = report_of(two_layers(last=last), loss=loss)
    assert report.verdict is Verdict.TRAINABLE
    assert report.prepared is not None
    assert last in report.prepared.warnings[0]
    assert report.prepared.manifest.output.name == "z"


def test_a_final_activation_that_does_not_belong_to_it_stays_and_is_told():
    report = report_of(two_layers(last="Sigmoid"), loss=Loss.MSE)
    assert report.prepared is not None
    assert report.prepared.manifest.output.name == "y"
    assert "as it is" in report.prepared.warnings[0]


def branching(condition):
    """Return two linear layers with a branch between them that reads the first one's result."""
    bodies = [
        helper.make_graph(
            [helper.make_node(op, ["h"], [f"{op}_out"])],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, ["N", 6])],
        )
        for op in ("Relu", "Tanh")
    ]
    model = two_layers()
    model.graph.node[1].CopyFrom(
        helper.make_node(
            "If", ["c"], ["a"], name="branch", then_branch=bodies[0], else_branch=bodies[1]
        )
    )
    for node in reversed(condition):
        model.graph.node.insert(0, node)
    return model


def test_a_branch_that_reads_trained_values_inside_is_refused():
    condition = [
        helper.make_node("Size", ["x"], ["m"]),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
    ]
    model = branching(condition)
    report = report_of(model)
    assert report.verdict is Verdict.INFERENCE_ONLY
    assert [error.found for error in report.obstacles] == ["If 'branch'"]
    head = report_of(model, trainable="head")
    assert head.verdict is Verdict.TRAINABLE, found(head)


def test_a_model_without_weights_cannot_train():
    plain = small_model([("Relu", ["x"], "y", {})], [], output=("y", ["N", 4]))
    assert report_of(plain).verdict is Verdict.INFERENCE_ONLY


def test_missing_calibration_and_local_choices_are_a_matter_of_options():
    request = QuantizationRequest(mode=QuantizationMode.STATIC)
    report = report_of(two_layers(), quantization=request)
    assert [error.code for error in report.obstacles] == ["E-MODEL-CALIBRATION"]
    assert report.verdict is Verdict.OPTIONS
    report = report_of(two_layers(), local="nothing")
    assert [error.code for error in report.obstacles] == ["E-MODEL-LOCAL"]
    assert report.verdict is Verdict.OPTIONS
    assert {one.coverage for one in report.operators} == {Coverage.COVERED}
