"""What programs may import from edgefl.training: pinned, loaded when used, and as documented."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgefl.training
from edgefl.training.onnx.demo_model import demo_model

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
NAMES = [
    *("Bundle", "CompileOptions", "Evaluation", "Evaluator", "LitertTrainer", "Loss"),
    *("OnnxTrainer", "Optimizer", "OptimizerSettings", "PreparedBundle", "QuantizationMode"),
    *("QuantizationRequest", "Runtime", "Trainer", "TrainingData", "compile_with"),
    *("export_int8_model", "export_model", "load_model", "read_bundle"),
]


def test_the_names_are_these():
    assert sorted(edgefl.training.__all__) == sorted(NAMES)
    assert set(NAMES) == set(dir(edgefl.training))


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there_and_on_the_page(name):
    found = getattr(edgefl.training, name)
    assert found.__name__ == name
    assert found.__doc__
    assert re.search(rf"\b{name}\b", PAGE)


def test_other_names_are_refused_as_usual():
    with pytest.raises(AttributeError, match=r"'edgefl\.training' has no attribute 'Nothing'"):
        edgefl.training.Nothing  # noqa: B018 - the access is what is tested


LAZY = """
import sys
import edgefl.training as training
training.read_bundle, training.TrainingData, training.Loss
heavy = {"onnx", "onnxruntime", "ai_edge_litert"} & set(sys.modules)
assert not heavy, heavy
training.OnnxTrainer
assert "onnxruntime" in sys.modules
assert "onnx" not in sys.modules
"""


def test_libraries_are_loaded_by_the_names_that_need_them():
    done = subprocess.run([sys.executable, "-c", LAZY], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_the_programs_on_the_page_run(tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    onnx.save(demo_model(1), "model.onnx")
    rng = np.random.default_rng(0)
    names = {
        "x": rng.normal(size=(20, 64, 6)).astype(np.float32),
        "y": rng.integers(0, 7, 20),
    }
    for block in blocks:
        exec(compile(block, "docs/models.md", "exec"), names)  # noqa: S102 - our own page
    assert np.abs(names["update"]).max() > 0
    exported = onnx.load("trained.onnx")
    assert len(exported.graph.node) == len(demo_model(1).graph.node)
