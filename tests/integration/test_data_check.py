"""`edgefl data check` as a user runs it: exit codes, one line for each error, nothing revealed."""

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from edgefl.data.schema import DataSchema
from edgefl.data.source import open_source
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "bundle.efl"
    path.write_bytes(compile_bundle(demo_model(0)).bundle_bytes)
    return path


def run(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "edgefl.cli", "data", "check", *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
    )


def test_data_that_fit(bundle):
    done = run("spar:1-left", "--bundle", bundle)
    assert done.returncode == 0, done.stderr
    assert "nothing is sent anywhere" in done.stdout
    assert "  6 ROW: 15" in done.stdout
    assert done.stdout.endswith("fits the bundle: an agent can train on this\n")


def test_data_that_do_not_fit_say_why_and_end_with_2(bundle, tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.ones((3, 64, 5)), y=np.array([0, 1, 9]))
    done = run(tmp_path / "mine.npz", "--bundle", bundle)
    assert done.returncode == 2
    assert "problem: E-DATA-SHAPE: expected examples of shape [64, 6]; found [64, 5]" in done.stdout
    assert "problem: E-DATA-LABEL" in done.stdout
    assert "warning: channel all never changes" in done.stdout
    found = json.loads(run(tmp_path / "mine.npz", "--bundle", bundle, "--json").stdout)
    assert found["fits"] is False
    assert len(found["problems"]) == 2
    assert json.loads(run(tmp_path / "mine.npz", "--json").stdout)["fits"] is None


def test_values_are_never_shown(tmp_path):
    rng = np.random.default_rng(1)
    values = rng.normal(size=200)
    secret = f"{np.sort(values)[100]:.4f}"
    rows = [f"{i},{value:.4f},{'x' if i == 7 else 1}" for i, value in enumerate(values)]
    (tmp_path / "log.csv").write_text("\n".join(["t,a,k", *rows, ""]))
    (tmp_path / "s.toml").write_text(
        '[source]\nkind = "csv"\npath = "log.csv"\n[columns]\ntime = "t"\nchannels = ["a"]\n'
        'label = "k"\n[window]\nlength = 1\n'
    )
    assert secret in (tmp_path / "log.csv").read_text()
    for words in (("s.toml",), ("s.toml", "--json"), ("s.toml", "--debug")):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 0
        assert "x" in done.stdout
        assert secret not in done.stdout + done.stderr


def test_an_error_in_the_users_function_names_its_line_and_debug_shows_more(tmp_path):
    (tmp_path / "mine.py").write_text("def f():\n    return helper()\ndef helper():\n    1 / 0\n")
    done = run("mine.py:f", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("edgefl: E-DATA-PYTHON")
    assert "ZeroDivisionError: division by zero (" in line
    assert "mine.py:4)" in line
    debug = run("mine.py:f", "--debug", cwd=tmp_path).stderr
    assert "Traceback" in debug
    assert "in helper" in debug


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("none.npz",), "E-DATA-MISSING"),
        (("none.csv",), "E-DATA-MISSING"),
        (("none.db:t",), "E-DATA-MISSING"),
        (("none.toml",), "E-DATA-CONFIG"),
        (("none",), "E-DATA-SOURCE"),
        (("spar:1-left", "--bundle", "none.efl"), "E-BUNDLE-MISSING"),
    ],
)
def test_what_is_not_there_is_one_line(words, code, tmp_path):
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"edgefl: {code}: ")


def test_reading_beside_a_logger_never_sees_half_a_row(tmp_path):
    """A logger writes in small pieces; each row's channels are equal, so a torn one would show."""
    path = tmp_path / "log.csv"
    path.write_text("time_s,a,b,label\n")
    is_over = threading.Event()

    def log():
        number = 0
        with path.open("a", buffering=1) as file:
            while not is_over.is_set():
                for piece in (f"{number},", f"{number}.25,", f"{number}.25,", "0\n"):
                    file.write(piece)
                    file.flush()
                number += 1

    writer = threading.Thread(target=log)
    writer.start()
    try:
        source = open_source(str(path))
        seen = []
        deadline_s = time.monotonic() + 20
        while len(set(seen)) < 4 and time.monotonic() < deadline_s:
            reading = source.examine(DataSchema(input_shape=(1, 2), classes=1))
            assert (reading.x[:, 0, 0] == reading.x[:, 0, 1]).all()
            assert np.array_equal(reading.x[:, 0, 0], np.arange(len(reading.x)) + 0.25)
            seen.append(len(reading.x))
    finally:
        is_over.set()
        writer.join()
    assert len(set(seen)) >= 4
    assert seen == sorted(seen)
