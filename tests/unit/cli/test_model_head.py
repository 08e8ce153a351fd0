"""`edgefl model prepare` with a .tflite backbone."""

import json

import numpy as np
import pytest

from edgefl.cli.main import main
from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import Runtime
from edgefl.training.litert.runtime.trainer import LitertTrainer
from tests.unit.training.litert.test_graft import CLASSES, INPUTS, int8_backbone, rows_of
from tests.unit.training.litert.test_trainer import fit


@pytest.fixture
def backbone(tmp_path):
    path = tmp_path / "backbone.tflite"
    path.write_bytes(int8_backbone())
    return path


def test_a_backbone_becomes_a_bundle_that_trains(backbone, tmp_path, capsys):
    out = tmp_path / "head.efl"
    arguments = [str(backbone), "--head", str(CLASSES), "-o", str(out), "--json"]
    assert main(["model", "prepare", *arguments]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["input_shape"] == [INPUTS]
    assert list(facts["runtimes"]) == ["litert"]
    bundle = read_bundle(out)
    assert bundle.manifest.program(Runtime.ONNX) is None
    x, y = rows_of(32, INPUTS)
    trainer = LitertTrainer(bundle)
    first = fit(trainer, x, y, lr=0.5)
    assert fit(trainer, x, y, lr=0.5, epochs=20) < first
    assert np.isfinite(trainer.delta()).all()


@pytest.mark.parametrize("more", [[], ["--head", "3", "--calls", "2"], ["--head", "0"]])
def test_what_does_not_fit_is_refused(backbone, tmp_path, capsys, more):
    out = tmp_path / "head.efl"
    assert main(["model", "prepare", str(backbone), "-o", str(out), *more]) != 0
    said = capsys.readouterr().err
    assert ("E-MODEL-HEAD" if not more else "E-BACKBONE-CALLS") in said
    assert not out.exists()


def test_a_head_on_an_onnx_model_is_refused(tmp_path, capsys):
    model = tmp_path / "model.onnx"
    out = tmp_path / "head.efl"
    assert main(["model", "prepare", str(model), "--head", "3", "-o", str(out)]) != 0
    assert "E-MODEL-HEAD" in capsys.readouterr().err
