"""No word to anybody about a device's models: onnxruntime's telemetry stays off."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SCRIPT = """
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
OnnxTrainer(compile_bundle(demo_model(1)).bundle_bytes)
"""


def test_training_leaves_no_telemetry_files(tmp_path: Path) -> None:
    home, scratch = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    scratch.mkdir()
    environment = {name: value for name, value in os.environ.items() if "TELEMETRY" not in name}
    environment |= {"HOME": str(home), "TMPDIR": str(scratch), "CI": ""}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert list(home.rglob("*")) == []
    assert list(scratch.rglob("*")) == []


def test_onnxruntime_is_imported_in_one_place() -> None:
    importers = [
        path.relative_to(ROOT).as_posix()
        for folder in ("edgefl", "broker", "firmware_sim", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if "import onnxruntime" in path.read_text().replace("quiet import onnxruntime", "")
    ]
    assert importers == ["edgefl/training/onnx/runtime/quiet.py"]
