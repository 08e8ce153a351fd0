"""Rounds, devices and status of a gateway that does not run; and following one that will."""

import json
import threading
import time
from pathlib import Path

import pytest

from broker.history import NAMESPACE, GatewayWords, RoundHistory, RoundMembers
from broker.stopped_status import STATE_FILE
from edgefl.cli import rounds_follow
from edgefl.cli.rounds_follow import EventTail, is_shown, without_names
from edgefl.cli.shown import show_bytes, show_number, show_span, show_table
from edgefl.storage.sqlite import open_sqlite
from tests.command import Run
from tests.status_facts import a_round


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the folder of a stopped gateway with three closed rounds."""
    folder = tmp_path / "gateway"
    folder.mkdir()
    store = open_sqlite(folder / STATE_FILE, namespace="gateway")
    history = RoundHistory(store.namespace(NAMESPACE))
    history.note_gateway(GatewayWords(fleet="north", is_automatic=False))
    for attempt, lost in ((1, 1), (2, 8), (3, 0)):
        members = RoundMembers(
            attempt=attempt, survivors=("board-a",) if lost < 4 else (), dropouts={}
        )
        history.close_round(a_round(attempt, round_number=1, lost=lost), members)
    store.namespace("population").put("device/board-a", bytes(32))
    store.close()
    return folder


def test_a_stopped_gateways_rounds_are_shown(run: Run, state: Path) -> None:
    shown = run("rounds", "--state", state).out.splitlines()
    assert len(shown) == 4
    assert shown[2].split()[:3] == ["wake", "1", "2"]
    assert shown[2].endswith("BELOW_SURVIVOR_FLOOR in MASKED_INPUT")
    rows = json.loads(run("rounds", "--state", state, "--last", 2, "--json").out)["rounds"]
    assert [row["attempt"] for row in rows] == [2, 3]
    assert rows[0]["survivors"] == 0
    assert rows[0]["phases"][2]["arrived"] == 0
    assert json.loads(run("rounds", "--state", state, "--task", "x", "--json").out) == {
        "rounds": []
    }
    assert run("rounds", "--state", state, "--task", "x").out == "no round has closed yet\n"


def test_a_stopped_gateways_status_is_told_with_its_exit_code(run: Run, state: Path) -> None:
    ended = run("gateway", "status", "--state", state)
    assert ended.code == 5
    assert "fleet north: not running" in ended.out
    assert "trust: roster signed by an operator" in ended.out
    assert "PROBLEM enrolment-waiting: 1 device waits" in ended.out
    status = json.loads(run("gateway", "status", "--state", state, "--json").out)
    assert status["summary"]["outcomes"] == {"ABORTED": 1, "COMMITTED": 2}
    assert "board-a" not in json.dumps(status)


def test_who_took_part_is_said_to_weaken_a_guarantee(run: Run, state: Path) -> None:
    plain = run("devices", "--state", state).out
    assert "board-a" in plain
    assert "epsilon_release" not in plain
    shown = run("devices", "--state", state, "--who").out
    assert "weakens epsilon_release" in shown
    document = json.loads(run("devices", "--state", state, "--who", "--json").out)
    assert document["devices"][0]["rounds"] == 2
    assert document["devices"][0]["state"] == "pending"
    assert document["rounds_remembered"] == 3


@pytest.mark.parametrize("words", [("rounds",), ("devices",), ("gateway", "status")])
def test_a_folder_without_a_gateway_is_named(run: Run, tmp_path: Path, words: tuple[str]) -> None:
    run(*words, "--state", tmp_path).refuses("E-GATEWAY-STATE", 2)
    if words == ("rounds",):
        run(*words, "--follow", "--state", tmp_path / "none").refuses("E-GATEWAY-STATE", 2)
        run(*words, "--last", 0, "--state", tmp_path).refuses("E-ROUNDS-LAST", 2)


def test_rounds_are_drawn(run: Run, state: Path, tmp_path: Path) -> None:
    picture = tmp_path / "rounds.svg"
    assert run("rounds", "--state", state, "--plot", picture).code == 0
    assert picture.read_text().startswith("<?xml")
    run("rounds", "--state", state, "--plot", tmp_path / "x.doc").refuses("E-PLOT-FILE", 2)
    run("rounds", "--state", state, "--plot", tmp_path / "no" / "x.png").refuses("E-PLOT-FILE", 2)
    run("rounds", "--state", state, "--task", "x", "--plot", picture).refuses("E-PLOT-FILE", 2)


def test_names_are_left_out_of_events() -> None:
    event = {
        "kind": "round",
        "silent": ["secret"],
        "trained_on": {"secret": "onnx/cpu"},
        "dropouts": [{"device": "secret", "phase": "CHECK_IN", "reason": "offline"}],
        "survivors": 3,
    }
    kept = without_names(event)
    assert "secret" not in json.dumps(kept)
    assert kept["dropouts"] == [{"phase": "CHECK_IN", "reason": "offline"}]
    assert kept["survivors"] == 3
    assert "secret" in json.dumps(event)
    assert not is_shown({"kind": "device-new", "device": "secret"}, None)
    assert not is_shown({"kind": "round", "task": "a"}, "b")
    assert is_shown({"kind": "waiting"}, "b")


def test_the_tail_begins_at_the_end_and_survives_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"kind": "old"}\n')
    tail = EventTail(path)
    assert list(tail.read_new()) == []
    with path.open("a") as file:
        file.write('{"kind": "a"}\nno json\n[1]\n{"kind": 5}\n{"kind": "half')
    assert [event["kind"] for event in tail.read_new()] == ["a"]
    with path.open("a") as file:
        file.write('"}\n')
    assert [event["kind"] for event in tail.read_new()] == ["half"]
    path.write_text('{"kind": "b"}\n')
    assert [event["kind"] for event in tail.read_new()] == ["b"]
    path.unlink()
    assert list(tail.read_new()) == []


def test_a_long_wait_is_said_and_the_end_of_the_task_ends_it(
    run: Run, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_follow, "NOTICE_S", 0.3)

    def end_the_task() -> None:
        time.sleep(1.0)
        event = {"time": 1.0, "kind": "task-ended", "task": "wake", "outcome": "budget"}
        (state / "events.jsonl").write_text(json.dumps({**event, "reason": "spent"}) + "\n")

    threading.Thread(target=end_the_task, daemon=True).start()
    ended = run("rounds", "--follow", "--task", "wake", "--json", "--state", state)
    assert ended.code == 3
    *waits, last = [json.loads(line) for line in ended.out.splitlines()]
    assert last["kind"] == "task-ended"
    assert waits
    assert all(wait["for"] == "the gateway, which does not run" for wait in waits)


def test_figures_are_shown_for_people() -> None:
    assert [show_span(s) for s in (None, 0.5, 42.0, 300.0, 9000.0, 400_000.0)] == [
        "-", "0.50 s", "42 s", "5 min", "2.5 h", "4.6 days",
    ]  # fmt: skip
    assert [show_bytes(b) for b in (0, 999, 1500, 2.5e9)] == ["0 B", "999 B", "1.5 kB", "2.5 GB"]
    assert [show_number(n) for n in (2000.0, None, True, "x")] == ["2000", "-", "-", "-"]
    assert show_table(["a", "bb"], [["ccc", "d"]]) == "a    bb\nccc  d\n"
