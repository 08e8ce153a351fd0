"""Models that are damaged, or that somebody wrote to do harm, get one line and no traceback."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from edgefl.errors import EdgeflError, TrainingError
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.compile.normalize import load_model
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.report import examine
from edgefl.training.onnx.compile.rules import covered_operators
from tests.small_models import conv_net, initializer, linear_model, small_model, two_layers
from tests.unit.training.perexample_cases import CASES

HEADER = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
WEIGHT = "<float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}>"


def refused(model, code):
    """Return the line that both ways of looking at a model give."""
    report = examine(model, CompileOptions())
    assert [error.code for error in report.obstacles] == [code]
    with pytest.raises(TrainingError) as caught:
        compile_bundle(model)
    assert caught.value.code == code
    return str(caught.value)


@pytest.mark.parametrize("name", [b"Gemm_y", b"Gemm", b"small"])
def test_names_that_are_no_text_are_refused(name):
    content = linear_model().SerializeToString()
    damaged = onnx.ModelProto.FromString(content.replace(name, b"\xc4" + name[1:]))
    assert "UTF-8" in refused(damaged, "E-MODEL-INVALID")


def test_graphs_without_outputs_are_refused():
    model = linear_model()
    del model.graph.output[:]
    assert "outputs" in refused(model, "E-MODEL-INVALID")


def test_nodes_without_outputs_are_refused():
    model = two_layers()
    del model.graph.node[1].output[:]
    assert "Relu" in refused(model, "E-MODEL-INVALID")


def test_tensors_of_unknown_types_are_refused():
    model = linear_model()
    model.graph.initializer[0].data_type = 77
    assert "'w'" in refused(model, "E-MODEL-INVALID")


def test_damaged_tensors_in_attributes_are_refused():
    model = small_model(
        [
            ("Constant", [], "c", {"value": numpy_helper.from_array(np.ones(3, np.float32), "c0")}),
            ("Gemm", ["x", "w", "b"], "h", {}),
            ("Add", ["h", "c"], "y", {}),
        ],
        [initializer("w", 4, 3), initializer("b", 3)],
    )
    model.graph.node[0].attribute[0].t.dims[0] = 4
    assert "'c0'" in refused(model, "E-MODEL-INVALID")


def test_sparse_tensors_are_refused_by_name():
    model = linear_model()
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0, 5]), "places"))
    sparse.dims.extend([4, 3])
    del model.graph.initializer[0]
    assert "sparse" in refused(model, "E-MODEL-INVALID")


def test_weights_that_are_no_numbers_are_refused_before_anything_is_shipped():
    model = linear_model()
    model.graph.initializer[0].CopyFrom(initializer("w", 4, 3, value=np.nan))
    assert "'w'" in refused(model, "E-MODEL-WEIGHTS")


def test_infinite_bounds_stay_allowed():
    model = small_model(
        [("Gemm", ["x", "w", "b"], "h", {}), ("Clip", ["h", "", "most"], "y", {})],
        [initializer("w", 4, 3), initializer("b", 3), initializer("most", value=np.inf)],
    )
    assert compile_bundle(model).manifest.dimension == 15


def test_functions_that_double_at_each_level_are_not_unfolded():
    text = (
        HEADER + f"g (float[N,4] x) => (float[N,3] y) {WEIGHT} {{ h = MatMul(x,w) y = own.f30(h) }}"
    )
    own = '<domain: "own", opset_import: ["" : 17, "own" : 1]>'
    text += f"{own} f0 (a) => (b) {{ b = Relu(a) }}"
    for level in range(1, 31):
        below = f"own.f{level - 1}"
        text += f"{own} f{level} (a) => (b) {{ c = {below}(a) b = {below}(c) }}"
    assert "functions" in refused(parser.parse_model(text), "E-MODEL-INVALID")


@pytest.mark.parametrize(
    "attributes", [{"group": 0}, {"dilations": [1000]}, {"group": 2}], ids=["none", "wide", "odd"]
)
def test_windows_that_cannot_be_are_refused_by_node(attributes):
    model = small_model(
        [
            ("Conv", ["x", "w"], "h", attributes),
            ("GlobalAveragePool", ["h"], "p", {}),
            ("Flatten", ["p"], "y", {}),
        ],
        [initializer("w", 3, 1, 3)],
        inputs=(("x", ["N", 1, 8]),),
    )
    with pytest.raises(EdgeflError, match="Conv_h"):
        compile_bundle(model)


def test_names_cannot_break_the_line_or_steer_a_terminal():
    name = "layer\n\x1b[31m\u202eweight"
    model = small_model(
        [("Gemm", ["x", "w", "b"], "h", {}), ("Hardmax", ["h"], "y", {})],
        [initializer("w", 4, 3), initializer("b", 3)],
    )
    model.graph.node[1].name = name
    with pytest.raises(TrainingError) as caught:
        compile_bundle(model)
    line = str(caught.value)
    assert line.isprintable()
    assert r"layer\n\x1b[31m\u202eweight" in line


def test_flipped_bits_never_end_in_anything_but_one_of_our_errors(tmp_path):
    rng = np.random.default_rng(11)
    sources = [
        model.SerializeToString()
        for model in (linear_model(2, 2), two_layers(2, 2, 2, last="Softmax"), conv_net(1, 4))
    ]
    path = tmp_path / "model.onnx"
    outcomes = {"read": 0, "refused": 0}
    for _ in range(250):
        content = bytearray(sources[rng.integers(len(sources))])
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            model = load_model(path)
        except TrainingError:
            continue
        obstacles = examine(model, CompileOptions()).obstacles
        outcomes["refused" if obstacles else "read"] += 1
    assert min(outcomes.values()) > 10


def _change(model, rng):
    """Do to one node what an exporter never would."""
    node = model.graph.node[rng.integers(len(model.graph.node))]
    index = int(rng.integers(max(len(node.input), 1)))
    match int(rng.integers(6)):
        case 0 if node.input:
            del node.input[-1]
        case 1 if node.input:
            node.input[index] = ""
        case 2 if node.input:
            node.input.append(node.input[index])
        case 3 if node.attribute:
            attribute = node.attribute[rng.integers(len(node.attribute))]
            attribute.i, attribute.s = int(rng.integers(-9, 9)), b"\xff"
            del attribute.ints[len(attribute.ints) // 2 :]
        case 4:
            names = ["direction", "auto_pad", "mode", "perm", "axis", "group", "training_mode"]
            values = [b"\xff", "sideways", 3, -3, [1, 2], [0, 9, 1]]
            value = values[rng.integers(len(values))]
            node.attribute.append(
                onnx.helper.make_attribute(names[rng.integers(len(names))], value)
            )
        case _:
            operators = covered_operators()
            node.op_type = operators[rng.integers(len(operators))]


def test_nodes_that_no_exporter_writes_never_end_in_anything_but_one_of_our_errors(capfd):
    rng = np.random.default_rng(0)
    sources = [conv_net(), two_layers(), *(make().model for make in CASES.values())]
    found = 0
    for number in range(300):
        model = onnx.ModelProto()
        model.CopyFrom(sources[number % len(sources)])
        for _ in range(rng.integers(1, 3)):
            _change(model, rng)
        trainable = ("all", "head")[rng.integers(2)]
        found += len(examine(model, CompileOptions(trainable=trainable)).obstacles)
    assert found > 200
    assert capfd.readouterr().out == ""


def test_an_input_of_another_type_is_not_blamed_on_the_batch():
    model = linear_model()
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert "Gemm_y" in refused(model, "E-MODEL-INVALID")
