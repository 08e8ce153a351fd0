"""`edgefl model`: bundles are made, checked and shown; every obstacle is one line."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from edgefl.training.bundle import read_bundle


@pytest.fixture
def model(run, tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    assert run("model", "demo", "-o", path).code == 0
    return path


def test_a_prepared_bundle_is_what_inspect_says(run, model: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "model.efl"
    prepared = run("model", "prepare", model, "-o", bundle, "--json")
    assert prepared.code == 0
    facts = json.loads(prepared.out)
    inspected = json.loads(run("model", "inspect", bundle, "--json").out)
    assert facts["dimension"] == inspected["dimension"] == read_bundle(bundle).manifest.dimension
    assert facts["parameters"] == inspected["parameters"]
    assert facts["size_bytes"] == bundle.stat().st_size


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ("head", ["head.weight", "head.bias"]),
        ("conv1.bias, head.weight", ["conv1.bias", "head.weight"]),
    ],
)
def test_what_is_trained_can_be_chosen(run, model: Path, trainable: str, expected: list) -> None:
    checked = run("model", "check", model, "--trainable", trainable, "--json")
    assert checked.code == 0
    assert list(json.loads(checked.out)["parameters"]) == expected


def test_people_get_lines(run, model: Path) -> None:
    shown = run("model", "check", model)
    assert shown.code == 0
    assert "dimension: 1911" in shown.out
    assert "  head.bias [7]" in shown.out


def test_an_operator_without_a_rule_is_named(run, model: Path, tmp_path: Path) -> None:
    source = onnx.load(model)
    relu = next(node for node in source.graph.node if node.op_type == "Relu")
    relu.op_type = "Erf"
    broken = tmp_path / "erf.onnx"
    onnx.save(source, broken)
    bundle = tmp_path / "erf.efl"
    refused = run("model", "prepare", broken, "-o", bundle)
    assert refused.code == 2
    assert refused.error().startswith("E-MODEL-UNSUPPORTED-OPS")
    assert "Erf" in refused.error()
    assert not bundle.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("check", "{tmp}/absent.onnx"), "E-MODEL-UNREADABLE"),
        (("check", "{tmp}"), "E-MODEL-UNREADABLE"),
        (("check", "{tmp}/text.onnx"), "E-MODEL-UNREADABLE"),
        (("check", "{model}", "--trainable", "no.such"), "E-MODEL-TRAINABLE"),
        (("check", "{model}", "--trainable", ","), "E-MODEL-TRAINABLE"),
        (("check", "{model}", "--loss", "mse"), "E-MODEL-LOSS"),
        (("inspect", "{model}"), "E-BUNDLE-DAMAGED"),
        (("inspect", "{tmp}/absent.efl"), "E-BUNDLE-MISSING"),
    ],
)
def test_bad_input_is_one_line(run, model: Path, tmp_path: Path, words: tuple, code: str) -> None:
    (tmp_path / "text.onnx").write_text("this is no model\n")
    filled = [word.format(tmp=tmp_path, model=model) for word in words]
    refused = run("model", *filled)
    assert refused.code == 2
    assert refused.error().startswith(f"{code}: expected ")
    assert "; found " in refused.error()


def test_a_target_that_cannot_be_written_is_named(run, model: Path, tmp_path: Path) -> None:
    refused = run("model", "prepare", model, "-o", tmp_path / "no" / "such" / "folder.efl")
    assert refused.code == 6
    assert refused.error().startswith("E-OUT-WRITE")


def test_a_graph_without_weights_is_refused(run, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [output])
    path = tmp_path / "none.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    refused = run("model", "check", path)
    assert refused.code == 2
    assert refused.error().startswith("E-MODEL-TRAINABLE")
