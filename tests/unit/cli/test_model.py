"""`edgefl model`: bundles are made, checked and shown; every obstacle is one line."""

import json
import re
from pathlib import Path

import onnx
import pytest
from onnx import helper

from edgefl.errors import TrainingError
from edgefl.training import trial
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
    assert "verdict: trainable" in shown.out
    assert "dimension: 1911" in shown.out
    assert "  head.bias [7]" in shown.out
    assert re.search(r"^  Conv +2  covered$", shown.out, re.MULTILINE)


def changed(model: Path, path: Path, change) -> Path:
    source = onnx.load(model)
    change(source.graph)
    onnx.save(source, path)
    return path


def replace_operators(*pairs):
    def change(graph) -> None:
        for node, op_type in pairs:
            del graph.node[node].attribute[:]
            graph.node[node].op_type = op_type
            del graph.node[node].input[1:]

    return change


def test_an_operator_without_a_rule_is_named(run, model: Path, tmp_path: Path) -> None:
    broken = changed(model, tmp_path / "hardmax.onnx", replace_operators((2, "Hardmax")))
    bundle = tmp_path / "hardmax.efl"
    refused = run("model", "prepare", broken, "-o", bundle)
    assert refused.code == 2
    assert refused.error().startswith("E-MODEL-UNSUPPORTED-OPS")
    assert "Hardmax" in refused.error()
    assert list(tmp_path.glob("*.efl*")) == []
    assert list(tmp_path.glob(".*")) == []


def test_every_obstacle_is_listed_at_once(run, model: Path, tmp_path: Path) -> None:
    broken = changed(
        model, tmp_path / "two.onnx", replace_operators((2, "Hardmax"), (4, "Hardmax"))
    )
    refused = run("model", "check", broken, "--json")
    assert refused.code == 2
    report = json.loads(refused.out)
    assert report["trains"] is False
    assert report["verdict"] == "inference only"
    found = [obstacle["found"] for obstacle in report["obstacles"]]
    assert found == ["Hardmax 'make_relu1'", "Hardmax 'make_relu2'"]
    assert all(obstacle["advice"] for obstacle in report["obstacles"])
    counts = {(one["operator"], one["coverage"]): one["count"] for one in report["operators"]}
    assert counts["Hardmax", "refused"] == 2
    assert counts["Conv", "covered"] == 2
    assert counts["Transpose", "not on the gradient path"] == 1
    assert "E-MODEL-OBSTACLES" in refused.err
    lines = run("model", "check", broken).out
    assert lines.count("obstacle: E-MODEL-UNSUPPORTED-OPS") == 2
    head = run("model", "check", broken, "--trainable", "head", "--json")
    assert head.code == 0
    assert json.loads(head.out)["trains"] is True


def test_all_choices_reach_the_bundle(run, model: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "model.efl"
    words = ["--trainable", "lora:2:conv*,head", "--local", "head", "--optimizer", "momentum"]
    words += ["--momentum", "0.5", "--clip-examples", "--seed", "3", "--lora-alpha", "4"]
    prepared = run("model", "prepare", model, "-o", bundle, "--json", *words)
    assert prepared.code == 0, prepared.err
    facts = json.loads(prepared.out)
    assert facts["trial_step_ms"] > 0
    assert facts["trial_peak_mib"] > 10
    shown = json.loads(run("model", "inspect", bundle, "--json").out)
    assert list(shown["local"]) == ["head.weight", "head.bias"]
    assert shown["local_dimension"] == 7 * 16 + 7
    assert shown["optimizer_settings"] == {"momentum": 0.5}
    assert shown["clips_examples"] is True
    assert set(shown["merges"]) == {"conv1.weight", "conv2.weight"}
    assert {merge.scale for merge in read_bundle(bundle).manifest.merges} == {2.0}
    assert "train.onnx" in shown["files"]
    assert "conv1.weight" in shown["frozen"]
    people = run("model", "inspect", bundle).out
    assert "quantization:\n  mode none" in people


def test_a_bundle_whose_step_fails_is_not_written(run, model, tmp_path, monkeypatch) -> None:
    def fail(path, **_):
        assert path.exists()
        raise TrainingError("E-MODEL-TRIAL", "a step that runs", "it died of signal 8", "report it")

    monkeypatch.setattr(trial, "try_bundle", fail)
    bundle = tmp_path / "model.efl"
    bundle.write_bytes(b"the bundle of yesterday")
    refused = run("model", "prepare", model, "-o", bundle)
    refused.refuses("E-MODEL-TRIAL", 2)
    assert bundle.read_bytes() == b"the bundle of yesterday"
    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.efl"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("check", "{tmp}/absent.onnx"), "E-MODEL-UNREADABLE"),
        (("check", "{tmp}"), "E-FILE-KIND"),
        (("check", "{tmp}/text.onnx"), "E-MODEL-UNREADABLE"),
        (("check", "{model}", "--trainable", "no.such"), "E-MODEL-TRAINABLE"),
        (("check", "{model}", "--trainable", ","), "E-MODEL-TRAINABLE"),
        (("check", "{model}", "--loss", "hinge"), "E-MODEL-LOSS"),
        (("check", "{model}", "--optimizer", "lion"), "E-MODEL-OPTIMIZER"),
        (("check", "{model}", "--momentum", "1"), "E-MODEL-OPTIMIZER-SETTING"),
        (("check", "{model}", "--runtime", "tflm"), "E-MODEL-RUNTIME"),
        (("check", "{model}", "--runtime", "litert"), "E-MODEL-RUNTIME"),
        (("check", "{model}", "--seed", "-1"), "E-MODEL-SEED"),
        (("check", "{model}", "--local", "all"), "E-MODEL-LOCAL"),
        (("check", "{model}", "--quantize", "int4"), "E-MODEL-QUANTIZE"),
        (("check", "{model}", "--quantize", "static"), "E-MODEL-CALIBRATION"),
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
