"""The demo as its user runs it: whole, interrupted, and killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgefl.demo.chaos import GATEWAY, Seen, make_kill_plan
from edgefl.protocol.reasons import AdversaryClass, Phase, phases_of
from edgefl.protocol.round_messages import CheckIn, MaskedInput, RevealedShares, SharedKeys

PHASES = phases_of(AdversaryClass.HONEST_BUT_CURIOUS)
DEMO = (sys.executable, "-m", "edgefl.cli", "demo")


def processes_of(folder: str) -> list[int]:
    """Return the processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if folder.encode() in command:
            found.append(int(entry.name))
    return found


@pytest.mark.timeout(400)
def test_the_demo_passes_and_says_what_it_did(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--json", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result) == {
        "accuracy",
        "central_accuracy",
        "rounds",
        "rounds_completed",
        "dropouts",
        "exact_sum",
        "epsilon_server",
        "epsilon_release",
        "bytes_per_device",
        "wall_s",
    }
    assert result["rounds"] == result["rounds_completed"] == 20
    assert result["exact_sum"] is True
    assert result["accuracy"] >= 0.65
    assert all(result["dropouts"][phase.name] >= 1 for phase in PHASES)
    assert 1_100 < result["epsilon_server"] < 1_300
    details = json.loads((tmp_path / "out" / "demo.json").read_text())
    assert details["int8_accuracy"] == pytest.approx(result["accuracy"], abs=0.03)
    assert "the federated model in int8" in done.stderr
    committed = [event for event in details["attempts"] if event["outcome"] == "COMMITTED"]
    assert max(len(event["dropouts"]) for event in committed) >= 4
    reasons = [event["reason"] for event in details["attempts"]]
    assert "GATEWAY_RESTARTED" not in reasons  # it goes on with the round that it was killed in
    assert details["peak_agent_mb"] <= 110
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    text = done.stderr
    assert "shows the mechanism and protects nobody" in text
    assert "two devices has epsilon" in text
    assert text.count("kill -9 the gateway in") == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "out"], "the temporary folder is gone"
    assert processes_of(str(tmp_path)) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    command = [*DEMO, "--devices", "4", "--rounds", "50", "--no-kill"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "round  1/50" in line:
                break
        assert len(processes_of(str(tmp_path))) >= 5
        demo.send_signal(number)
        demo.stdout.read()
        code = demo.wait(30)
    deadline_s = time.monotonic() + 10
    while processes_of(str(tmp_path)) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert processes_of(str(tmp_path)) == []
    if number is signal.SIGINT:
        assert code == 130
        assert list(tmp_path.iterdir()) == [], "the temporary folder is gone"


def test_devices_and_rounds_out_of_range_are_refused() -> None:
    for words in (("--devices", "2"), ("--devices", "17"), ("--rounds", "0")):
        done = subprocess.run([*DEMO, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("edgefl: E-DEMO-")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("adversary", AdversaryClass)
def test_the_kill_plan_reaches_every_phase_and_keeps_the_floor(adversary: AdversaryClass) -> None:
    phases = phases_of(adversary)
    plan = make_kill_plan(rounds=20, devices=16, survivor_floor=10, phases=phases)
    by_phase = dict.fromkeys(phases, 0)
    by_round: dict[int, int] = {}
    for (number, phase), count in plan.wanted.items():
        by_phase[phase] += count
        by_round[number] = by_round.get(number, 0) + count
    assert all(by_phase.values())
    assert max(by_round.values()) >= 4
    assert all(count <= 6 for count in by_round.values())
    assert len(plan.gateway_deaths) == 2
    assert all(1 <= number <= 20 for number in plan.gateway_deaths)
    assert len(set(plan.gateway_deaths.values())) == 2


def test_a_victim_dies_after_its_message_of_the_phase_before() -> None:
    plan = make_kill_plan(rounds=20, devices=16, survivor_floor=10, phases=PHASES)
    plan.wanted.clear()
    plan.wanted[5, Phase.UNMASKING] = 1
    plan.wanted[6, Phase.CHECK_IN] = 1
    seen = [
        Seen(device="a", kind=CheckIn.kind, round_number=5),
        Seen(device="a", kind=SharedKeys.kind, round_number=5),
        Seen(device="a", kind=MaskedInput.kind, round_number=5),
        Seen(device="a", kind=RevealedShares.kind, round_number=5),
        Seen(device="b", kind=RevealedShares.kind, round_number=5),
        Seen(device="c", kind=RevealedShares.kind, round_number=5),
    ]
    kills = [kill for message in seen if (kill := plan.on_seen(message)) is not None]
    assert [(kill.victim, kill.phase, kill.round_number) for kill in kills] == [
        ("a", Phase.UNMASKING, 5),
        ("b", Phase.CHECK_IN, 6),
    ]


def test_the_gateway_dies_twice() -> None:
    plan = make_kill_plan(rounds=20, devices=16, survivor_floor=10, phases=PHASES)
    plan.wanted.clear()
    planned = sorted(plan.gateway_deaths.items())
    struck = []
    for number in range(1, 21):
        for kind in (CheckIn.kind, SharedKeys.kind, MaskedInput.kind, RevealedShares.kind):
            for device in ("a", "b", "c"):
                kill = plan.on_seen(Seen(device=device, kind=kind, round_number=number))
                if kill is not None:
                    struck.append((kill.victim, kill.round_number, kill.phase))
    assert struck == [(GATEWAY, number, phase) for number, phase in planned]
