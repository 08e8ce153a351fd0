"""Agents that start before their logger: real agents, a real gateway, rows that come later."""

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgefl.cli.main import main
from tests.integration.real import LiveFleet, Process, submit_words, wait_until

pytestmark = pytest.mark.timeout(150)

CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")
COLUMNS = f"""
[columns]
time = "time_s"
channels = {list(CHANNELS)}
label = "label"
[window]
length = 64
"""
CSV = f'[source]\nkind = "csv"\npath = "not/mounted/yet"\n{COLUMNS}'
WINDOW = 64


def recorded(windows: int, start: int = 0) -> list[list[float]]:
    rng = np.random.default_rng(start)
    return [
        [number / 25, *rng.normal(size=6).round(4).tolist(), number // WINDOW % 7]
        for number in range(start * WINDOW, (start + windows) * WINDOW)
    ]


def log_to_csv(folder: Path, windows: int, start: int = 0) -> None:
    path = folder / "log.csv"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(",".join(("time_s", *CHANNELS, "label\n")))
    with path.open("a") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in recorded(windows, start))


def log_to_table(database: sqlite3.Connection, windows: int) -> None:
    database.execute("CREATE TABLE motion (time_s, ax, ay, az, wx, wy, wz, label)")
    rows = recorded(windows)
    database.executemany("INSERT INTO motion VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def describe(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "sensor.toml").write_text(text)
    return folder / "sensor.toml"


def examples_trained(agent: Process) -> list[int]:
    """Return how many examples each round was trained on, from the agent's log."""
    return [int(found) for found in re.findall(r"trained (\d+) examples on", agent.err)]


def contributors(fleet: LiveFleet) -> list[set[str]]:
    """Return whose updates are in the sum of each committed round."""
    return [
        set(event["trained_on"])
        for event in fleet.events()
        if event["kind"] == "round" and event["outcome"] == "COMMITTED"
    ]


def test_an_agent_started_before_its_logger_takes_part_once_rows_are_there(
    start: Callable[..., Process], tmp_path: Path, bundle: Path
) -> None:
    settings, recordings = describe(tmp_path / "csv", CSV), tmp_path / "csv" / "not" / "mounted"
    with LiveFleet(tmp_path / "fleet", devices=4) as fleet:
        late = fleet.add_agent("late", "--data", settings)
        wait_until(lambda: "rounds are declined" in late.err, "the agent's warning")
        assert "E-DATA-MISSING" in late.err
        terms = {"--cohort": 5, "--quorum": 4, "--survivor-floor": 4, "--phase-limit-s": 8}
        # More rounds than the test lasts for, and noise for which the budgets suffice.
        endless = {"--rounds": 900, "--noise-multiplier": 20, "--epsilon-budget": 9000}
        words = submit_words(fleet.state, **terms, **endless)
        assert main([str(word) for word in (*words, bundle)]) == 0
        wait_until(lambda: len(contributors(fleet)) >= 1, "a first round")
        assert all(names == {"d0", "d1", "d2", "d3"} for names in contributors(fleet))
        assert not examples_trained(late)

        log_to_csv(recordings / "yet", windows=5)
        wait_until(lambda: "late" in contributors(fleet)[-1], "it takes part")
        assert set(examples_trained(late)) == {5}
        log_to_csv(recordings / "yet", windows=3, start=5)
        wait_until(lambda: 8 in examples_trained(late), "rows added between rounds count")

        # What it keeps predicts beside it, on rows that nobody has labelled.
        unlabelled = "".join(f"{','.join(map(str, row[:-1]))}\n" for row in recorded(2, 8))
        columns = ",".join(("time_s", *CHANNELS))
        (recordings / "yet" / "next.csv").write_text(f"{columns}\n{unlabelled}")
        state = fleet.folder / "late"
        done = start("agent", "predict", "--data", settings, "--state", state, "--newest", 3).wait()
        assert done.code == 0, done.err
        lines = [line.split(",") for line in done.out.splitlines()]
        assert lines[0] == ["row", "start_s", "end_s", "class", "probability"]
        assert [line[0] for line in lines[1:]] == ["7", "8", "9"]
        assert lines[3][1:3] == ["23.04", "25.56"]
        assert "against the labels of 1 of them" in done.err
        assert late.is_running
        assert "Traceback" not in late.err


def test_a_database_that_is_locked_at_the_start_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        with LiveFleet(tmp_path / "fleet") as fleet:
            agent = fleet.add_agent("locked", "--data", f"{path}:motion")
            wait_until(lambda: "E-DATA-LOCKED" in agent.err, "the lock is met")
            log_to_table(database, 2)
            database.execute("COMMIT")
            wait_until(lambda: "takes part in rounds again" in agent.err, "it looks again")
            assert agent.is_running


@pytest.mark.parametrize("name", ["mising.npz", "mising.csv", "mising.db:motion", "mising"])
def test_a_misspelt_path_stops_an_agent_at_once(start, tmp_path: Path, name: str) -> None:
    started_s = time.monotonic()
    agent = start(
        "agent", "run", "--device", "d1", "--data", tmp_path / name, "--state", tmp_path / "state"
    )
    ended = agent.wait()
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("edgefl: E-DATA-")
    assert time.monotonic() - started_s < 40
    assert not (tmp_path / "state" / "agent.sqlite").exists()
