"""Commands whose path leads to a pipe, a folder or a device say so in one line, at once."""

import os
from pathlib import Path

import pytest

from edgefl.storage.enrolment import create_enrolment_key
from tests.command import Run

pytestmark = pytest.mark.timeout(30)

OTHERS = ("pipe", "folder", "device")


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a path to something that is no file."""
    path = tmp_path / "other"
    if request.param == "device":
        return Path("/dev/zero")
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("roster show @", "E-ENROLMENT-FILE"),
        ("roster sign @ --key KEY -o OUT", "E-ENROLMENT-FILE"),
        ("roster sign absent --key @ -o OUT", "E-ENROLMENT-FILE"),
        ("roster sign absent --key KEY --previous @ -o OUT", "E-ENROLMENT-FILE"),
        ("roster sign absent --key KEY -o @", "E-ENROLMENT-FILE"),
        ("model inspect @", "E-FILE-KIND"),
        ("model check @", "E-FILE-KIND"),
        ("model prepare @ -o OUT", "E-FILE-KIND"),
        ("model check MODEL --quantize static:@", "E-FILE-KIND"),
        ("model check MODEL --calibration @", "E-FILE-KIND"),
        ("task submit @ --cohort 4 --clip-norm 1 --state OUT", "E-MODEL-MISSING"),
        ("agent run --device a --data spar:1-left --policy @ --state OUT", "E-POLICY-FILE"),
        ("agent check --bundle @ --data spar:1-left", "E-FILE-KIND"),
        ("data check spar:1-left --bundle @", "E-FILE-KIND"),
        ("sim report @", "E-SIM-REPORT"),
    ],
)
def test_what_is_no_file_is_refused(
    run: Run, tmp_path: Path, other: Path, words: str, code: str
) -> None:
    create_enrolment_key(tmp_path / "key")
    paths = {"@": other, "KEY": tmp_path / "key", "OUT": tmp_path / "out"}
    if "MODEL" in words:
        paths["MODEL"] = tmp_path / "demo.onnx"
        assert run("model", "demo", "-o", paths["MODEL"]).code == 0
    given = [
        str(paths.get(word, word)).replace("static:@", f"static:{other}") for word in words.split()
    ]
    run(*given).refuses(code, 2)
    assert not (tmp_path / "out").exists()


def test_a_ledger_that_is_no_file_is_refused(run: Run, other: Path) -> None:
    run("privacy", "verify", other).refuses("E-LEDGER-MISSING", 6)


def test_a_settings_file_of_data_that_is_a_pipe_is_refused(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.toml")
    run("data", "check", tmp_path / "data.toml").refuses("E-DATA-CONFIG", 2)


def test_a_tflite_backbone_that_is_no_file_is_refused(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.tflite")
    words = ("model", "prepare", tmp_path / "model.tflite", "--head", 3, "-o", tmp_path / "out")
    run(*words).refuses("E-MODEL-FILE", 2)


@pytest.mark.parametrize("content", ["[" * 100_000, "a = " + "[" * 100_000])
def test_deep_nesting_is_refused(run: Run, tmp_path: Path, content: str) -> None:
    path = tmp_path / "deep"
    path.write_text(content)
    run("sim", "report", path).refuses("E-SIM-REPORT", 2)
    agent = ("agent", "run", "--device", "a", "--data", "spar:1-left", "--state", tmp_path / "out")
    run(*agent, "--policy", path).refuses("E-POLICY-FILE", 2)
