"""The last round's model is measured in int8 too, and everyone who reads about it sees both."""

import io

import numpy as np
import pytest

from broker.console import format_report
from broker.events import EvaluationEnded
from broker.reports import evaluation_report
from edgefl.demo.progress import Progress
from edgefl.demo.record import RunRecord
from edgefl.training.base import TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.int8_evaluate import evaluate_int8
from edgefl.training.onnx.demo_model import CHANNELS, SAMPLES, demo_bundle


def ended(int8_accuracy):
    return EvaluationEnded(
        task="demo",
        round_number=20,
        accuracy=0.857,
        loss=0.5,
        examples=300,
        int8_accuracy=int8_accuracy,
    )


def test_the_last_report_names_both():
    report = evaluation_report(ended(0.851))
    assert report.fields["int8_accuracy"] == 0.851
    assert format_report(report).endswith("accuracy 0.857 (0.851 as int8) on 300 examples held out")


def test_earlier_reports_are_as_before():
    report = evaluation_report(ended(None))
    assert "int8_accuracy" not in report.fields
    assert "int8" not in format_report(report)


def test_the_demo_keeps_and_shows_it():
    record, shown = RunRecord(), io.StringIO()
    for number, accuracy in ((19, None), (20, 0.851)):
        report = evaluation_report(ended(accuracy))
        event = {"kind": report.kind, **report.fields, "round": number}
        record.add(event)
        Progress(20, shown).event(event)
    assert record.int8_accuracy == 0.851
    assert "accuracy 0.857 as float32, 0.851 as int8, on people held out" in shown.getvalue()
    assert "accuracy 0.857 on people held out" in shown.getvalue()


def test_the_demo_prepares_an_int8_model_from_nobodys_data():
    """Its scales are those of the sensor's grid and of the cut rectifiers, whatever anyone did."""
    bundle = read_bundle(demo_bundle(1))
    facts = bundle.manifest.quantization.facts
    assert bundle.manifest.dimension == 1_911
    assert facts["range of channels_first"] == "-4 to 4"
    assert facts["range of relu1"] == facts["range of relu2"] == "0 to 6"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, SAMPLES, CHANNELS)).astype(np.float32)
    data = TrainingData(x=x, y=rng.integers(0, 7, 40))
    assert evaluate_int8(bundle, bundle.initial_params, data).loss == pytest.approx(1.95, abs=0.6)
