"""`edgefl sim`: the report, and what is refused before anything starts."""

import json
from pathlib import Path

import pytest

from edgefl.errors import EnvironmentProblem


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sim") / "report.json"


def test_a_run_reports_what_happened(run, report_file: Path) -> None:
    ran = run(
        "sim", "run", "--devices", 6, "--rounds", 1, "--seed", 4, "--json", "--out", report_file
    )
    assert ran.code == 0
    report = json.loads(ran.out)
    assert report == json.loads(report_file.read_text())
    assert report["outcome"] == "done"
    assert report["exact_sum"] is True
    assert report["device_rounds"] >= 5
    assert report["device_rounds_per_s"] > 0
    assert report["epsilon_two_devices"] > report["epsilon_server"] > 0
    assert "round 1 (attempt 1) COMMITTED" in ran.err


def test_a_stored_report_is_shown_to_people(run, report_file: Path) -> None:
    shown = run("sim", "report", report_file)
    assert shown.code == 0
    for words in ("1 of 1 committed", "accuracy", "device-rounds per second", "protect nobody"):
        assert words in shown.out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--devices", 2), "E-SIM-RANGE"),
        (("--devices", 10**6), "E-SIM-RANGE"),
        (("--rounds", 0), "E-SIM-RANGE"),
        (("--seed", -1), "E-SIM-RANGE"),
        (("--loss", 1), "E-SIM-LOSS"),
        (("--loss", "nan"), "E-SIM-LOSS"),
        (("--deaths-per-device-hour", -1), "E-SIM-DEATHS"),
        (("--deaths-per-device-hour", "nan"), "E-SIM-DEATHS"),
        (("--out", "/no/such/folder/report.json"), "E-OUT-FOLDER"),
    ],
)
def test_bad_numbers_are_one_line(run, words: tuple, code: str) -> None:
    refused = run("sim", "run", *words)
    assert refused.code == 2
    assert refused.error().startswith(f"{code}: expected ")


def test_a_fleet_beyond_memory_is_refused_with_an_estimate(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firmware_sim.memory.available_bytes", lambda: 2 << 30)
    refused = run("sim", "run", "--devices", 10_000)
    assert refused.code == EnvironmentProblem.exit_code
    assert refused.error().startswith("E-SIM-MEMORY")
    assert "MiB" in refused.error()


@pytest.mark.parametrize("content", ["", "[]", "{}", "\xff", '{"format": 1}'])
def test_what_is_no_report_is_one_line(run, tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content.encode("latin-1"))
    refused = run("sim", "report", path)
    assert refused.code == 2
    assert refused.error().startswith("E-SIM-REPORT")


def test_a_missing_report_is_one_line(run, tmp_path: Path) -> None:
    refused = run("sim", "report", tmp_path / "absent.json")
    assert refused.code == 2
    assert "No such file" in refused.error()
