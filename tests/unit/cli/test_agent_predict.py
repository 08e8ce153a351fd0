"""`edgefl agent predict`: rows, times, names, and what is said of labels."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from edgefl.agent.models import KeptModel, ModelRecord, ModelShelf
from edgefl.cli import agent_predict
from edgefl.training.bundle import Bundle, read_bundle
from edgefl.training.evaluate import Evaluator
from edgefl.training.kinds import Loss
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.selftest import PROBE_CASE
from edgefl.training.selftest_cases import __file__ as CASES  # noqa: N812
from tests.small_models import linear_model

WIDTH = 12
SENSOR = """
[source]
kind = "csv"
path = "log.csv"
[columns]
time = "t"
channels = ["a", "b", "c"]
label = "k"
[window]
length = 4
layout = "flat"
[labels]
classes = ["rest", "walk", "run", "fall"]
"""


def keep(state: Path, content: bytes) -> Bundle:
    bundle = read_bundle(content)
    model = KeptModel(params=bundle.initial_params, local=bundle.initial_local)
    ModelShelf(state / agent_predict.MODELS).keep(
        ModelRecord(task="t", bundle_sha256=bundle.sha256, good_round=3, personal_round=4),
        bundle=content,
        good=model,
        personal=model,
    )
    return bundle


@pytest.fixture
def predict(run, tmp_path):
    """Give a function that predicts in a folder with a kept model."""
    keep(tmp_path / "state", (Path(CASES).parent / f"{PROBE_CASE}.efl").read_bytes())

    def call(*words):
        options = ("--backend", "onnx", "--provider", "cpu", "--state", tmp_path / "state")
        return run("agent", "predict", *options, *words)

    return call


def lines(text):
    return list(csv.DictReader(io.StringIO(text)))


def recorded(path, windows, label=""):
    rng = np.random.default_rng(1)
    rows = [
        ",".join(map(str, [100 + number / 10, *rng.normal(size=3).round(3), label]))
        for number in range(4 * windows)
    ]
    path.write_text("t,a,b,c,k\n" + "\n".join(rows) + "\n")


def examples(path, rows, **more):
    x = np.random.default_rng(2).normal(size=(rows, WIDTH)).astype(np.float32)
    np.savez(path, x=x, **more)
    return x


def expected(x):
    bundle = read_bundle((Path(CASES).parent / f"{PROBE_CASE}.efl").read_bytes())
    outputs = Evaluator(bundle).predict(bundle.initial_params, x).astype(np.float64)
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    return shares.argmax(axis=1), shares.max(axis=1)


def test_each_window_has_its_time_class_and_name(predict, tmp_path):
    recorded(tmp_path / "log.csv", 3)
    (tmp_path / "sensor.toml").write_text(SENSOR)
    done = predict("--data", tmp_path / "sensor.toml")
    assert done.code == 0, done.err
    said = lines(done.out)
    assert list(said[0]) == ["row", "start_s", "end_s", "class", "class_name", "probability"]
    assert [row["row"] for row in said] == ["0", "1", "2"]
    spans = [(row["start_s"], row["end_s"]) for row in said]
    assert spans == [("100.0", "100.3"), ("100.4", "100.7"), ("100.8", "101.1")]
    names = ["rest", "walk", "run", "fall", ""]
    assert all(row["class_name"] == names[int(row["class"])] for row in said)
    assert "3 examples with the own model of task t, from round 4" in done.err
    assert done.err.endswith("no usable labels to compare with\n")


def test_predictions_are_the_models_and_newest_takes_the_last_of_them(predict, tmp_path):
    x = examples(tmp_path / "mine.npz", 5)
    classes, shares = expected(x)
    said = lines(predict("--data", tmp_path / "mine.npz").out)
    assert [int(row["class"]) for row in said] == classes.tolist()
    assert [float(row["probability"]) for row in said] == pytest.approx(shares, abs=2e-6)
    assert list(said[0]) == ["row", "class", "probability"]
    assert lines(predict("--data", tmp_path / "mine.npz", "--newest", 2).out) == said[-2:]
    assert lines(predict("--data", tmp_path / "mine.npz", "--newest", 50).out) == said
    predict("--data", tmp_path / "mine.npz", "--newest", 0).refuses("E-NEWEST", 2)


def test_accuracy_counts_only_the_rows_with_usable_labels(predict, tmp_path, monkeypatch):
    monkeypatch.setattr(agent_predict, "_ROWS_AT_ONCE", 3)
    path = tmp_path / "mine.npz"
    classes, _ = expected(examples(path, 10))
    labels = classes.copy()
    labels[4:6] = (labels[4:6] + 1) % 5
    examples(path, 10, y=labels)
    whole = json.loads(predict("--data", path, "--json").out)
    assert whole["accuracy"] == pytest.approx(0.8)
    labels[6:] = [-1, 5, 99, -1]
    examples(path, 10, y=labels)
    some = json.loads(predict("--data", path, "--json").out)
    assert some["accuracy"] == pytest.approx(4 / 6)
    assert (some["examples"], some["examples_with_target"]) == (10, 6)
    assert some["predictions"] == whole["predictions"]
    assert "accuracy 0.667, loss" in predict("--data", path).err
    assert "against the labels of 6 of them" in predict("--data", path).err


def test_labels_that_are_not_usable_are_named(predict, tmp_path):
    examples(tmp_path / "mine.npz", 3, y=["a", "b", "c"])
    said = json.loads(predict("--data", tmp_path / "mine.npz", "--json").out)
    assert said["accuracy"] is None
    assert said["loss"] is None
    assert len(said["predictions"]) == 3
    assert (
        "no usable labels to compare with (E-DATA-DTYPE"
        in predict("--data", tmp_path / "mine.npz").err
    )


def test_a_file_appears_once_it_is_whole(predict, tmp_path, monkeypatch):
    examples(tmp_path / "mine.npz", 600)
    target = tmp_path / "out.csv"
    assert predict("--data", tmp_path / "mine.npz", "-o", target).out == ""
    assert len(lines(target.read_text())) == 600
    before = target.read_text()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(agent_predict, "_values", interrupted)
    monkeypatch.setattr(agent_predict._Predictions, "_classes", interrupted)
    done = predict("--data", tmp_path / "mine.npz", "-o", target)
    assert done.code == 130
    assert done.err == "edgefl: interrupted\n"
    assert target.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.npz", "out.csv", "state"]
    predict("--data", tmp_path / "mine.npz", "-o", tmp_path / "no" / "out.csv").refuses(
        "E-OUT-WRITE", 6
    )


def test_what_cannot_be_predicted_on_is_one_line(predict, tmp_path):
    predict("--data", tmp_path / "none.npz").refuses("E-DATA-MISSING", 2)
    np.savez(tmp_path / "mine.npz", x=np.ones((3, 4)))
    predict("--data", tmp_path / "mine.npz").refuses("E-DATA-SHAPE", 2)
    np.savez(tmp_path / "mine.npz", x=np.ones((0, WIDTH)))
    predict("--data", tmp_path / "mine.npz").refuses("E-DATA-EMPTY", 2)
    predict("--data", tmp_path / "mine.npz", "--task", "other").refuses("E-NO-MODEL", 2)


def test_values_and_what_they_are_compared_with(predict, tmp_path):
    options = CompileOptions(loss=Loss.MSE)
    bundle = keep(tmp_path / "state", compile_with(linear_model(4, 2), options).bundle_bytes)
    x = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
    outputs = Evaluator(bundle).predict(bundle.initial_params, x)
    y = outputs + 1
    y[3] = np.nan
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    done = predict("--data", tmp_path / "mine.npz")
    said = lines(done.out)
    assert list(said[0]) == ["row", "value0", "value1"]
    found = [[float(row["value0"]), float(row["value1"])] for row in said]
    np.testing.assert_allclose(found, outputs, rtol=1e-5)
    assert done.err.endswith(": loss 1.0000 against the values of 4 of them\n")
