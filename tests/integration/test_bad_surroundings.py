"""Real processes in a bad place: wrong peers, damaged state, full disks, spent budgets, Ctrl-C."""

import json
import shutil
import socket
from pathlib import Path

import numpy as np
import onnx
import pytest

from broker.ledger import LedgerFile
from edgefl.privacy.plan import make_privacy_plan
from tests.integration.local_endpoint import local_endpoint
from tests.integration.real import (
    LiveFleet,
    Process,
    agent_words,
    content_of,
    devices_seen,
    foreign_server,
    free_port,
    limit_files,
    submit_words,
    wait_until,
)

pytestmark = pytest.mark.timeout(120)


def test_an_agent_at_a_wrong_address_says_what_it_found(start, tmp_path: Path) -> None:
    wait = ("--wait-s", 3)
    with (
        foreign_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as http,
        local_endpoint() as stranger,
    ):
        nobody = start(*agent_words(tmp_path / "a", free_port(), *wait))
        web = start(*agent_words(tmp_path / "b", http, *wait))
        other = start(*agent_words(tmp_path / "c", stranger, *wait))
        line = nobody.wait().refuses("E-NO-GATEWAY", 5)
        assert "edgefl gateway run" in line
        assert str(http) in web.wait().refuses("E-NOT-MQTT", 5)
        assert "--fleet" in other.wait().refuses("E-NO-GATEWAY", 5)


def test_a_gateway_without_its_port_or_folder_says_so(start, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = start("gateway", "run", "--port", port, "--state", tmp_path / "a")
        homeless = start("gateway", "run", "--port", 0, "--state", blocked / "state")
        agent = start(*agent_words(blocked / "state", free_port(), "--wait-s", 4))
        line = busy.wait().refuses("E-PORT-IN-USE", 4)
        assert str(port) in line
        assert "another port" in line
        homeless.wait().refuses("E-STATE-DIR", 4)
        agent.wait().refuses("E-STATE-UNWRITABLE", 6)
    assert blocked.read_text() == "in the way"


@pytest.fixture(scope="module")
def used_states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folders that a gateway and an agent leave after some rounds."""
    folder = tmp_path_factory.mktemp("used")
    with LiveFleet(folder, devices=3) as fleet:
        fleet.submit("first", "--rounds", 2)
        fleet.wait_for_line("task first done")
    return folder


def damage_state(folder: Path) -> None:
    database = folder / "gateway.sqlite"
    content = bytearray(database.read_bytes())
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    database.write_bytes(content)


def damage_ledger(folder: Path) -> None:
    ledger = folder / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b'"round":1', b'"round":7', 1))


def lose_ledger(folder: Path) -> None:
    (folder / "ledger.jsonl").unlink()


def cut_ledger(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(lines[0])


def empty_state(folder: Path) -> None:
    (folder / "gateway.sqlite").write_bytes(b"")


def test_damaged_files_of_a_gateway_give_way_to_their_copies(
    used_states: Path, start, tmp_path: Path
) -> None:
    ledger_before = (used_states / "gateway" / "ledger.jsonl").read_bytes()
    processes = {}
    for harm in (damage_state, empty_state, damage_ledger, lose_ledger, cut_ledger):
        folder = tmp_path / harm.__name__
        shutil.copytree(used_states / "gateway", folder)
        harm(folder)
        processes[harm.__name__] = start(
            "gateway", "run", "--port", 0, "--state", folder, "--stop-when-idle"
        )
    for name, process in processes.items():
        ended = process.wait()
        assert ended.code == 0, ended.err
        assert ("was gone" if name == "lose_ledger" else "kept as") in ended.err
        # For whoever was not there: events.jsonl, and the operator's terminal.
        assert '"kind": "mended"' in (tmp_path / name / "events.jsonl").read_text()
        assert "was damaged and is kept as" in ended.out or "was gone" in ended.out
        assert (tmp_path / name / "ledger.jsonl").read_bytes() == ledger_before
    for name in ("damage_state", "empty_state"):
        assert (tmp_path / name / "gateway.sqlite.damaged-1").exists()


def test_damage_without_a_whole_copy_is_never_reset(
    used_states: Path, start, tmp_path: Path
) -> None:
    folders = {}
    for name in ("both", "ledger"):
        folders[name] = tmp_path / name
        shutil.copytree(used_states / "gateway", folders[name])
        damage_state(folders[name])
    (folders["both"] / "gateway.sqlite.previous").write_bytes(b"no copy at all" * 400)
    # What was charged since the older state was stored would be forgotten.
    damage_ledger(folders["ledger"])
    agent_state = tmp_path / "agent"
    shutil.copytree(used_states / "d0", agent_state)
    (agent_state / "agent.sqlite").write_bytes(b"not a database at all" * 400)
    (agent_state / "identity.key").unlink()  # with it, the agent would begin anew by itself

    processes = {
        name: start("gateway", "run", "--port", 0, "--state", folder)
        for name, folder in folders.items()
    }
    before = content_of(folders["both"])
    agent = start(*agent_words(agent_state, free_port(), "--wait-s", 4, device="d0"))
    for name, error_code in (("both", "E-STATE-DAMAGED"), ("ledger", "E-LEDGER-DAMAGED")):
        line = processes[name].wait().refuses(error_code, 6)
        assert "restore" in line
    agent.wait().refuses("E-STATE-DAMAGED", 6)
    after = content_of(folders["both"])
    # An open database may leave an empty log; nothing that was there may change.
    assert {name: after[name] for name in before} == before


def test_an_owner_can_begin_anew_and_is_told_the_price(
    used_states: Path, start, tmp_path: Path
) -> None:
    shutil.copytree(used_states / "d0", tmp_path / "d0")
    (tmp_path / "d0" / "agent.sqlite").write_bytes(b"")
    words = agent_words(tmp_path / "d0", free_port(), "--wait-s", 1, "--reset-state", device="d0")
    ended = start(*words).wait()
    ended.refuses("E-NO-GATEWAY", 5)
    assert "forgets the privacy it has spent" in ended.err
    assert (tmp_path / "d0" / "agent.sqlite.damaged-1").exists()


def test_a_full_disk_is_one_line_and_harms_nothing(
    used_states: Path, start, run, tmp_path: Path
) -> None:
    used = tmp_path / "used"
    shutil.copytree(used_states / "gateway", used)
    before = content_of(used)
    fresh = start(
        "gateway", "run", "--port", 0, "--state", tmp_path / "fresh", before=limit_files(2048)
    )
    agent = start(
        *agent_words(tmp_path / "agent", free_port(), "--wait-s", 4), before=limit_files(2048)
    )
    old = start("gateway", "run", "--port", 0, "--state", used, before=limit_files(2048))
    fresh.wait().refuses("E-DISK-FULL", 6)
    agent.wait().refuses("E-DISK-FULL", 6)
    old.wait().refuses("E-DISK-FULL", 6)
    assert not (tmp_path / "fresh" / "gateway.sqlite").exists()
    after = content_of(used)
    assert {name: after[name] for name in before} == before
    assert run("privacy", "verify", used / "ledger.jsonl").code == 0


def test_identities_are_pinned(used_states: Path, tmp_path: Path) -> None:
    """Another gateway, another fleet, one name twice, one state twice."""
    with LiveFleet(tmp_path) as fleet:
        moved = tmp_path / "moved"
        shutil.copytree(used_states / "d0", moved)
        stranger = fleet.add_agent("d0", state=moved)
        other_fleet = fleet.add_agent("d5", "--fleet", "other", "--wait-s", 5)
        renamed = fleet.add_agent("d9", state=used_states / "d1")
        first = fleet.add_agent("d7")
        wait_until(
            lambda: any(e.get("device") == "d7" for e in fleet.events()), "the first of its name"
        )
        same_state = fleet.add_agent("d7")
        line = stranger.wait().refuses("E-GATEWAY-KEY", 6)
        assert "reset this device's state" in line
        other_fleet.wait().refuses("E-NO-GATEWAY", 5)
        renamed.wait().refuses("E-DEVICE-NAME", 2)
        same_state.wait().refuses("E-STATE-LOCKED", 6)
        assert first.is_running
        same_name = fleet.add_agent("d7", state=tmp_path / "another d7")
        line = same_name.wait().refuses("E-DEVICE-KEY", 6)
        assert "--device" in line


def test_one_agents_wrong_data_never_reach_another(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, x=np.ones((20, 32, 6), np.float32), y=np.zeros(20, np.int64))
    labels = tmp_path / "labels.npz"
    np.savez(labels, x=np.ones((20, 64, 6), np.float32), y=np.full(20, 7))
    with LiveFleet(tmp_path, devices=3) as fleet:
        misfit = fleet.add_agent("d8", "--data", wrong)
        mislabelled = fleet.add_agent("d9", "--data", labels)
        wait_until(lambda: len(devices_seen(fleet)) == 5, "all five agents")
        fleet.submit("task", "--cohort", 5, "--rounds", 1)
        line = misfit.wait().refuses("E-DATA-SHAPE", 2)
        assert "64, 6]" in line
        assert "[32, 6]" in line
        line = mislabelled.wait().refuses("E-DATA-LABEL", 2)
        assert "7" in line
        assert all(agent.is_running for agent in fleet.agents[:3])
        fleet.add_agent("d8", state=tmp_path / "d8")
        fleet.wait_for_line("task task done")


def test_a_refusing_device_and_a_spent_budget_are_named(bundle: Path, run, tmp_path: Path) -> None:
    spec = {
        "--cohort": 5, "--quorum": 5, "--survivor-floor": 4, "--noise-multiplier": 1,
        "--clip-norm": 1, "--rounds": 4,
    }  # fmt: skip
    plan = make_privacy_plan(
        clip_norm=1.0,
        noise_multiplier=1.0,
        n_cohort=5,
        survivor_floor=4,
        colluders=1,
        dimension=1911,
        delta=1e-5,
        epsilon_budget=1e6,
        rounds=4,
        rotation=None,
    )
    spec["--epsilon-budget"] = plan.epsilon_after(2) * 1.0001
    with LiveFleet(tmp_path, devices=4) as fleet:
        strict = fleet.add_agent("strict", "--max-epsilon", 0.5)
        assert run(*submit_words(fleet.state, **spec), bundle).code == 0
        fleet.wait_for_line("task task budget")
        assert strict.is_running
        ended = [event for event in fleet.events() if event["kind"] == "task-ended"]
    refusals = [line for line in strict.err.splitlines() if "E-DEVICE-BUDGET" in line]
    assert refusals
    assert all("epsilon of at most 0.5" in line for line in refusals)
    rounds = [event for event in fleet.events() if event["kind"] == "round"]
    assert [event["outcome"] for event in rounds] == ["COMMITTED", "COMMITTED"]
    for event in rounds:
        assert [(d["device"], d["phase"], d["reason"]) for d in event["dropouts"]] == [
            ("strict", "SHARE_KEYS", "left")
        ]
    assert len(refusals) == len(rounds)
    assert [event["outcome"] for event in ended] == ["budget"]
    assert "E-BUDGET" in ended[0]["reason"]
    target = tmp_path / "model.onnx"
    fetched = run("task", "result", "task", "-o", target, "--state", fleet.state, "--json")
    assert json.loads(fetched.out)["rounds_committed"] == 2
    onnx.checker.check_model(onnx.load(target))
    shown = run("privacy", "show", "--state", fleet.state, "--json")
    assert json.loads(shown.out)["tasks"] == {"task": 2}


def test_ctrl_c_ends_everything_and_leaves_nothing_running(tmp_path: Path) -> None:
    with LiveFleet(tmp_path, devices=1) as fleet:
        wait_until(lambda: devices_seen(fleet) == {"d0"}, "the agent")
        lonely = Process(tmp_path / "output", *agent_words(tmp_path / "lonely", free_port()))
        wait_until(lambda: "no link" in lonely.err, "an agent without a broker")
        for process in (*fleet.agents, lonely, fleet.gateway):
            process.interrupt()
        for process in (*fleet.agents, lonely, fleet.gateway):
            ended = process.wait(15)
            assert ended.code == 130
            assert "Traceback" not in ended.err
    assert not (fleet.state / "gateway.json").exists()
    with socket.create_server(("127.0.0.1", fleet.port)):
        pass  # the port is free again
    with LedgerFile.open(fleet.state / "ledger.jsonl") as ledger:
        assert len(ledger.ledger) == 0
