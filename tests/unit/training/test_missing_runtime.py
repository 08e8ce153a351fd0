"""A board whose training library is missing or broken gets one line, whichever way it asks."""

import subprocess
import sys

import numpy as np
import pytest

from edgefl.training.backends import probe
from edgefl.training.selftest import PROBE_CASE
from edgefl.training.selftest_cases import __file__ as CASES  # noqa: N812
from tests.unit.training.test_backends import ONNX

BUNDLE = CASES.replace("__init__.py", f"{PROBE_CASE}.efl")
BROKEN = {
    "missing": "raise ModuleNotFoundError('no onnxruntime')",
    "library": "raise OSError('GLIBC_2.99 not found\\nneeded by it')",
    "parts": "__version__ = '0.1'",
}


def agent_check(tmp_path, *options):
    data = tmp_path / "data.npz"
    np.savez(data, x=np.ones((8, 12), np.float32), y=np.arange(8) % 5)
    command = [sys.executable, "-m", "edgefl.cli", "agent", "check", "--bundle", BUNDLE]
    command += ["--data", str(data), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_library_that_does_not_load_is_one_line(tmp_path, monkeypatch, kind):
    package = tmp_path / "fake" / "onnxruntime"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(BROKEN[kind])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    # Named like this it is not probed first.
    ended = agent_check(tmp_path, "--backend", "onnx", "--provider", "cpu")
    assert ended.returncode == 4
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith("edgefl: E-NO-BACKEND")


def test_a_library_that_ends_the_process_quietly_is_a_reason(tmp_path, monkeypatch):
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("import os\nos._exit(0)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = probe(ONNX)
    assert not found.trains
    assert "without an answer" in found.reason
