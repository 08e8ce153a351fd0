"""docs/data.md, "Bring your sensor", walked through from its first line to a training."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from edgefl.data.settings import SourceSettings
from edgefl.data.settings_file import read_settings

ROOT = Path(__file__).resolve().parents[2]
_PAGE = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
_STEP = re.compile(
    r"^<!-- (?:file: (?P<file>\S+)|parse-only) -->\n```(?:python|toml|sh)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_RUNS_FOR_EVER = "edgefl agent run"


def bash(text: str, cwd: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PATH": path},
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> tuple[Path, list[str]]:
    """Do as the page says; return the folder and what each group of commands printed."""
    folder = tmp_path_factory.mktemp("board")
    shown = []
    for step in _STEP.finditer(_PAGE):
        if step["file"]:
            (folder / step["file"]).write_text(step["text"], encoding="utf-8")
        elif _RUNS_FOR_EVER not in step["text"]:
            shown.append(bash(step["text"], folder))
    return folder, shown


def test_the_page_leads_from_a_logger_to_a_training(walked):
    folder, shown = walked
    assert len(shown) == 5
    checked, trained, table, function = shown[1:]
    assert "fits the bundle: an agent can train on this" in checked
    assert "1 ABD: 46" in checked
    assert "6 ROW: 46" in checked
    assert "at an end of its range" not in checked
    assert "rows without a label: 500 (first: log.csv line 3002)" in checked
    assert "update" in trained
    assert "fits the bundle" in table
    assert "found: 46 examples" in table
    assert "found: 40 examples" in function
    assert (folder / "recordings" / "log.csv").exists()


def test_the_check_as_json(walked):
    folder, _ = walked
    found = json.loads(bash("edgefl data check sensor.toml --bundle bundle.efl --json", folder))
    assert found["fits"] is True
    assert found["examples"] == sum(found["classes"]) == 92
    assert found["left_out"]["unlabelled"] == {"count": 500, "first": "log.csv line 3002"}
    assert [channel["name"] for channel in found["channels"]] == [
        "ax",
        "ay",
        "az",
        "wx",
        "wy",
        "wz",
    ]
    assert [channel["is_constant"] for channel in found["channels"]][2] is True
    assert any("az never changes" in warning for warning in found["warnings"])


def _reference() -> str:
    (block,) = [
        text
        for text in re.findall(r"(?<!-->\n)```toml\n(.*?)```", _PAGE, re.DOTALL)
        if "[keep]" in text
    ]
    return block


def _settings(tmp_path: Path, text: str) -> SourceSettings:
    path = tmp_path / "reference.toml"
    path.write_text(text, encoding="utf-8")
    return read_settings(path)


def test_the_reference_shows_the_defaults(tmp_path):
    shown = _settings(tmp_path, _reference())
    least = _settings(
        tmp_path,
        '[source]\nkind = "csv"\npath = "recordings"\n[columns]\nchannels = ["ax", "ay", "az"]\n'
        'label = "label"\nscale = 1.0\noffset = 0.0\n[window]\nlength = 64\n',
    )
    assert shown == least


def test_every_entry_that_the_reference_shows_is_taken(tmp_path):
    """Entries behind a comment sign too; those of other kinds are tried with their kind."""
    text = re.sub(r"^# (\w+ = )", r"\1", _reference(), flags=re.MULTILINE)
    names = '["ax", "ay", "az", "label", "time_s"]'
    text = text.replace('["time_s", "ax"]', names)
    without = re.sub(r"^(table|entry) = .*\n", "", text, flags=re.MULTILINE)
    whole = _settings(tmp_path, without)
    assert whole.windowing is not None
    assert whole.windowing.shape == (1, 64, 3)
    assert whole.labels.unlabelled == ("?",)
    table = re.sub(r"\[csv\].*?(?=\[columns)", "", text, flags=re.DOTALL)
    table = re.sub(r"^entry = .*\n", "", table, flags=re.MULTILINE)
    assert _settings(tmp_path, table.replace('"csv"', '"sqlite"', 1)).table == "motion"
    assert "entry" in tomllib.loads(text)["source"]


def test_every_code_is_in_the_pages_table():
    named = set(re.findall(r"E-DATA-[A-Z0-9-]+[A-Z0-9]", _PAGE))
    raised = {
        code
        for path in (ROOT / "edgefl" / "data").glob("*.py")
        for code in re.findall(r"\"(E-DATA-[A-Z0-9-]+)\"", path.read_text(encoding="utf-8"))
    }
    assert raised <= named
