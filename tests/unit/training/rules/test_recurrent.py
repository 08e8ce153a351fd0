"""Recurrent layers against finite differences, PyTorch's gradients, and the two forms of a loop."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules import recurrent_loop
from edgefl.training.onnx.runtime.quiet import onnxruntime
from tests.gradient_check import check_gradients, run_gradients
from tests.node_models import node_models

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 4, 3
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": ["y", "y_h", "y_c"], "GRU": ["y", "y_h"], "RNN": ["y", "y_h"]}
NODE_MODELS = node_models({"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"})
VECTORS = Path(__file__).parents[3] / "vectors" / "recurrent_torch.json"


def tensors(operator, directions=1, *, steps=STEPS, bias=True, initial=True):
    rng = np.random.default_rng([GATES[operator], directions])
    rows = GATES[operator] * HIDDEN
    values = {
        "x": rng.normal(size=(steps, BATCH, FEATURES)),
        "w": rng.normal(size=(directions, rows, FEATURES)),
        "r": rng.normal(size=(directions, rows, HIDDEN)),
    }
    if bias:
        values["b"] = rng.normal(size=(directions, 2 * rows))
    if initial:
        values["h0"] = rng.normal(size=(directions, BATCH, HIDDEN))
        if operator == "LSTM":
            values["c0"] = rng.normal(size=(directions, BATCH, HIDDEN))
    return values


def layer(operator, values, outputs=None, **attributes):
    inputs = [
        name if name in values else "" for name in ["x", "w", "r", "b", "no lengths", "h0", "c0"]
    ]
    while not inputs[-1]:
        inputs.pop()
    return helper.make_node(
        operator,
        inputs,
        OUTPUTS[operator] if outputs is None else outputs,
        name="the_layer",
        hidden_size=HIDDEN,
        **attributes,
    )


def batch_axes(values):
    return {name: 1 for name in ["x", "h0", "c0"] if name in values}


FORMS = [
    ("LSTM", {}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"linear_before_reset": 0}),
    ("RNN", {}),
]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("operator", "attributes"), FORMS)
def test_all_gradients_agree_with_finite_differences(operator, attributes, direction):
    directions = 2 if direction == "bidirectional" else 1
    values = tensors(operator, directions)
    if operator == "RNN":
        # The reference evaluator does not fill in the standard's default for two directions.
        attributes = {"activations": ["Tanh"] * directions}
    node = layer(operator, values, direction=direction, **attributes)
    check_gradients(node, values, list(values), batch_axes=batch_axes(values), step=1e-5)


@pytest.mark.parametrize(("operator", "attributes"), FORMS)
@pytest.mark.parametrize(("bias", "initial"), [(False, True), (True, False), (False, False)])
def test_bias_and_initial_states_may_be_absent(operator, attributes, bias, initial):
    values = tensors(operator, bias=bias, initial=initial)
    node = layer(operator, values, **attributes)
    check_gradients(node, values, list(values), batch_axes=batch_axes(values), step=1e-5)


@pytest.mark.parametrize(("operator", "attributes"), FORMS)
def test_each_output_alone_may_reach_the_loss(operator, attributes):
    values = tensors(operator)
    for output in OUTPUTS[operator]:
        node = layer(operator, values, **attributes)
        check_gradients(
            node,
            values,
            list(values),
            batch_axes=batch_axes(values),
            outputs=[output],
            step=1e-5,
        )


@pytest.mark.parametrize(("operator", "attributes"), FORMS)
def test_hidden_states_that_the_model_does_not_ask_for_are_asked_for(operator, attributes):
    values = tensors(operator, initial=False)
    node = layer(operator, values, outputs=["", "y_h"], **attributes)
    graph = check_gradients(node, values, list(values), batch_axes=batch_axes(values), step=1e-5)
    assert operator in graph.emitted
    assert list(node.output) == ["", "y_h"], "the exported model has this node too"


@pytest.mark.parametrize(("operator", "attributes"), FORMS)
def test_one_step_is_enough(operator, attributes):
    values = tensors(operator, steps=1)
    node = layer(operator, values, **attributes)
    check_gradients(node, values, list(values), batch_axes=batch_axes(values), step=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("operator", "attributes"), FORMS)
def test_scanned_and_unrolled_loops_agree(operator, attributes, direction, monkeypatch):
    values = tensors(operator, 2 if direction == "bidirectional" else 1)
    node = layer(operator, values, direction=direction, **attributes)
    found = []
    for longest in (STEPS - 1, STEPS):
        monkeypatch.setattr(recurrent_loop, "LONGEST_UNROLLED_STEPS", longest)
        found.append(run_gradients(node, values, list(values), batch_axes=batch_axes(values)))
    for name in values:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-5, atol=1e-6)


def test_only_long_sequences_are_scanned():
    longest = recurrent_loop.LONGEST_UNROLLED_STEPS
    for steps, scans in [(longest, False), (longest + 1, True)]:
        values = tensors("GRU", steps=steps)
        assert ("Scan" in emitted(layer("GRU", values), values)) is scans


def test_unwanted_gradients_cost_nothing():
    values = tensors("LSTM")
    operators = emitted(layer("LSTM", values), values, ["b"])
    assert operators.count("Gemm") == 2, "the two products of the gates, none for W and R"


def emitted(node, values, wanted=None):
    """The operators of the reverse pass, those in loops left out."""
    nodes, _, _ = reverse_pass(node, values, wanted or [name for name in values if name != "x"])
    return [made.op_type for made in nodes]


def reverse_pass(node, values, wanted):
    """Emitted nodes, emitted constants and gradients by name, from the gradient `dy` of `y`."""
    sizes = [len(values["x"]), "N", values["x"].shape[2]]
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in values.items() if n != "x"],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    emitter = GraphEmitter(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    gradients = differentiate(emitter, [node], wanted, "y", "dy")
    return emitter.nodes, emitter.constants, gradients


def with_input(values, position):
    node = layer("LSTM", values)
    node.input.extend([""] * (position + 1 - len(node.input)))
    node.input[position] = "extra"
    return node


REFUSED = {
    "clip": lambda v: layer("LSTM", v, clip=3.0),
    "direction sideways": lambda v: layer("LSTM", v, direction="sideways"),
    "input_forget": lambda v: layer("LSTM", v, input_forget=1),
    "layout=1": lambda v: layer("LSTM", v, layout=1),
    "hardsigmoid": lambda v: layer("LSTM", v, activations=["HardSigmoid", "Tanh", "Tanh"]),
    "sequence_lens": lambda v: with_input(v, 4),
    "peepholes": lambda v: with_input(v, 7),
}


@pytest.mark.parametrize("what", REFUSED)
def test_forms_without_a_rule_are_refused_by_name(what):
    values = tensors("LSTM")
    with pytest.raises(TrainingError, match=f"(?s)E-MODEL-OP-FORM.*LSTM 'the_layer'.*{what}"):
        emitted(REFUSED[what](values), values)


def test_default_activations_may_be_spelled_out():
    values = tensors("LSTM")
    node = layer("LSTM", values, activations=["sigmoid", "TANH", "Tanh"])
    assert "MatMul" in emitted(node, values)


def has_no_rule(case):
    node = case.model.graph.node[0]
    return "P" in node.input or any(a.name == "layout" and a.i for a in node.attribute)


@pytest.mark.parametrize(
    "case", [c for c in NODE_MODELS if not has_no_rule(c)], ids=lambda case: case.name
)
def test_node_models_of_onnx_agree(case):
    outputs = [name for name in case.model.graph.node[0].output if name]
    # Their inputs up to 12 saturate tanh, whose slope 1 - y^2 has no digits left in float32.
    inputs = {name: value * (0.2 if name == "X" else 1) for name, value in case.inputs.items()}
    is_one_step = len(inputs["X"]) == 1
    check_gradients(
        case.model,
        inputs,
        list(inputs),
        outputs=outputs,
        step=1e-5,
        zero_allowed=["R"] if is_one_step else [],
    )


@pytest.mark.parametrize(
    "case", [c for c in NODE_MODELS if has_no_rule(c)], ids=lambda case: case.name
)
def test_node_models_of_onnx_without_a_rule_are_refused(case):
    with pytest.raises(TrainingError, match="E-MODEL-OP-FORM"):
        check_gradients(case.model, case.inputs, list(case.inputs), run_onnxruntime=False)


def torch_cases(*, reference_knows):
    cases = json.loads(VECTORS.read_text())["cases"]
    return [
        pytest.param(case, id=case["name"])
        for case in cases
        if (case["activation"] == "Tanh") is reference_knows
    ]


def torch_layer(case):
    values = {name: np.array(value) for name, value in case["inputs"].items()}
    seeds = {name: np.array(value) for name, value in case["seeds"].items()}
    attributes = {"GRU": {"linear_before_reset": 1}}.get(case["operator"], {})
    if case["operator"] == "RNN":
        attributes = {"activations": [case["activation"]] * case["directions"]}
    node = layer(
        case["operator"],
        values,
        direction="bidirectional" if case["directions"] == 2 else "forward",
        **attributes,
    )
    next(a for a in node.attribute if a.name == "hidden_size").i = values["r"].shape[-1]
    return node, values, seeds


def assert_close_to_torch(case, found):
    for name, expected in case["gradients"].items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=3e-6 * scale, err_msg=name)


@pytest.mark.parametrize("case", torch_cases(reference_knows=True))
def test_scans_agree_with_pytorch(case):
    node, values, seeds = torch_layer(case)
    found = run_gradients(node, values, list(values), batch_axes=batch_axes(values), seeds=seeds)
    assert_close_to_torch(case, found)


@pytest.mark.parametrize("case", torch_cases(reference_knows=False))
def test_relu_layers_agree_with_pytorch(case):
    # The reference evaluator has no relu here, so the graph is put together without it: what
    # arrives at Y_h is added to the step of Y that it is a copy of.
    node, values, seeds = torch_layer(case)
    dy = seeds["y"]
    dy[-1, 0] += seeds["y_h"][0]
    dy[0, 1] += seeds["y_h"][1]
    feeds = {name: value.astype(np.float32) for name, value in {**values, "dy": dy}.items()}
    nodes, constants, gradients = reverse_pass(node, values, list(values))
    graph = helper.make_graph(
        [node, *nodes],
        "relu",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in gradients.values()],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results = session.run(list(gradients.values()), feeds)
    assert_close_to_torch(case, dict(zip(gradients, results, strict=True)))
