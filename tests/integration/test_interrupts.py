"""Ctrl-C in commands that read, predict or train: 130 and one line, wherever it comes."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgefl.agent.models import KeptModel, ModelRecord, ModelShelf
from edgefl.cli import main as command_line
from edgefl.training.bundle import read_bundle
from tests.integration.real import Process, begin_child, wait_until

INTERRUPTED = "edgefl: interrupted\n"
SLOW = """
import pathlib, time
def windows():
    pathlib.Path({mark!r}).touch()
    time.sleep(60)
"""


def slow_source(tmp_path: Path) -> tuple[str, Path]:
    """Return a source that never ends, and the file that tells that it is being read."""
    mark = tmp_path / "reading"
    (tmp_path / "slow.py").write_text(SLOW.format(mark=str(mark)))
    return f"{tmp_path / 'slow.py'}:windows", mark


def keep_model(state: Path, bundle: Path) -> None:
    content = bundle.read_bytes()
    read = read_bundle(content)
    model = KeptModel(params=read.initial_params, local=read.initial_local)
    record = ModelRecord(task="t", bundle_sha256=read.sha256, personal_round=1)
    ModelShelf(state / "models").keep(record, bundle=content, good=model, personal=model)


def assert_interrupted(process: Process, within_s: float = 20.0) -> None:
    process.interrupt()
    ended = process.wait(within_s)
    assert ended.code == 130
    assert ended.err == INTERRUPTED
    assert ended.out == ""


def has_open(process: Process, path: Path) -> bool:
    files = Path(f"/proc/{process.process_id}/fd").iterdir()
    return any(os.path.realpath(file) == str(path) for file in files)


def test_while_data_are_read(start, bundle: Path, tmp_path: Path) -> None:
    source, mark = slow_source(tmp_path)
    keep_model(tmp_path / "state", bundle)
    output = tmp_path / "out.csv"
    cpu = ("--backend", "onnx", "--provider", "cpu")
    for words in (
        ("data", "check", source),
        ("agent", "check", "--bundle", bundle, "--data", source, *cpu),
        ("agent", "predict", "--state", tmp_path / "state", "--data", source, "-o", output, *cpu),
        ("agent", "run", "--device", "d1", "--state", tmp_path / "new", "--data", source, *cpu),
    ):
        mark.unlink(missing_ok=True)
        process = start(*words)
        wait_until(mark.exists, "the reading")
        assert_interrupted(process)
    assert not output.exists()


def test_while_a_model_is_trained(start, bundle: Path) -> None:
    words = ("agent", "check", "--bundle", bundle, "--data", "spar:1-left", "--epochs", 100_000)
    process = start(*words, "--backend", "onnx", "--provider", "cpu")
    # It says nothing before its end; by then it trains, and earlier it must end as well.
    time.sleep(3)
    assert process.is_running
    assert_interrupted(process)


def test_while_a_database_is_locked(start, tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        process = start("data", "check", f"{path}:motion")
        # From then on it waits for the lock, though not for ever.
        wait_until(lambda: has_open(process, path), "the opening")
        assert_interrupted(process)


def test_the_child_that_tries_a_library_is_interrupted_too(bundle: Path, tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all processes of a command."""
    np.savez(tmp_path / "mine.npz", x=np.ones((2, 64, 6)), y=[0, 1])
    words = ["agent", "check", "--bundle", str(bundle), "--data", str(tmp_path / "mine.npz")]
    process = subprocess.Popen(
        [sys.executable, "-m", "edgefl.cli", *words, "--epochs", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=begin_child,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(lambda: children.read_text().strip() != "", "the probe's start")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", INTERRUPTED)


def test_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line.importlib, "import_module", interrupted)
    assert command_line.main(["data", "check", "spar:1-left"]) == 130
    assert capsys.readouterr().err == INTERRUPTED
