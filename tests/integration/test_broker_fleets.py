"""Real gateways and agents over brokers of others that die in the middle of a round."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgefl.cli.main import main
from tests.integration.brokers import Brokers, mosquitto, nats, stock_mosquitto
from tests.integration.real import Process, wait_until

DEVICES = 3
PAUSE_S = 15.0
"""G9 of the transport's targets."""


class Fleet:
    """A gateway and agents that use a broker of others."""

    def __init__(self, folder: Path, brokers: Brokers) -> None:
        self.folder = folder
        self.state = folder / "gateway"
        self.urls = brokers.urls
        self.processes: list[Process] = []

    def start(self) -> None:
        self._run("gateway", "run", "--state", self.state, "--broker", self.urls,
                  "--http-port", "off")  # fmt: skip
        for number in range(DEVICES):
            self._run("agent", "run", "--device", f"d.{number}",
                      "--data", f"spar:{number + 1}-left", "--state", self.folder / f"d{number}",
                      "--gateway", self.urls, "--max-epsilon", 10_000,
                      "--ignore-power")  # fmt: skip

    def _run(self, *words: object) -> None:
        process = Process(self.folder / "output", *words, "--fleet", "test")
        self.processes.append(process)

    def submit(self, rounds: int) -> None:
        words = ["task", "submit", "spar", "--name", "t", "--cohort", DEVICES, "--rounds", rounds,
                 "--state", self.state, "--phase-limit-s", 40]  # fmt: skip
        assert main([str(word) for word in words]) == 0

    def events(self) -> list[dict]:
        path = self.state / "events.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def wait_for(self, holds: Callable[[dict], bool], what: str) -> dict:
        wait_until(lambda: any(map(holds, self.events())), what, timeout_s=100)
        return next(filter(holds, self.events()))

    def wait_for_phase(self, phase: str, round_number: int) -> dict:
        return self.wait_for(
            lambda event: (
                event["kind"] == "phase"
                and (event["phase"], event["round"]) == (phase, round_number)
            ),
            f"{phase} of round {round_number}",
        )

    def rounds(self) -> list[dict]:
        return [event for event in self.events() if event["kind"] == "round"]

    def ledger_rows(self) -> int:
        return len((self.state / "ledger.jsonl").read_text().splitlines())


@contextlib.contextmanager
def running_fleet(folder: Path, brokers: Brokers) -> Iterator[Fleet]:
    """Run one; every process is gone afterwards."""
    fleet = Fleet(folder, brokers)
    try:
        fleet.start()
        yield fleet
    finally:
        for process in fleet.processes:
            if process.is_running:
                process.interrupt()
        for process in fleet.processes:
            process.stop()


def require_all_counted(fleet: Fleet, rounds: int) -> None:
    """Check that no update and no round was lost, and none was counted twice."""
    ended = fleet.rounds()
    assert [event["outcome"] for event in ended] == ["COMMITTED"] * rounds
    assert [event["survivors"] for event in ended] == [DEVICES] * rounds
    assert [event["round"] for event in ended] == list(range(1, rounds + 1))
    assert fleet.ledger_rows() == rounds


@pytest.mark.timeout(240)
def test_a_cluster_loses_the_node_that_everybody_is_at(tmp_path: Path) -> None:
    with nats(tmp_path / "broker", 3) as brokers, running_fleet(tmp_path, brokers) as fleet:
        fleet.submit(rounds=2)
        before = fleet.wait_for_phase("MASKED_INPUT", 2)
        # Gateway and agents all prefer the first address, so their sessions are there.
        brokers.nodes[0].kill()
        after = fleet.wait_for_phase("UNMASKING", 2)
        fleet.wait_for(lambda event: event["kind"] == "task-ended", "the end of the task")
        require_all_counted(fleet, 2)
        assert after["attempt"] == before["attempt"]
        assert after["time"] - before["time"] <= PAUSE_S


@pytest.mark.timeout(240)
def test_a_broker_dies_in_a_round_and_comes_back_empty(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    with mosquitto(folder) as brokers, running_fleet(tmp_path, brokers) as fleet:
        fleet.submit(rounds=2)
        before = fleet.wait_for_phase("MASKED_INPUT", 2)
        (node,) = brokers.nodes
        node.kill()
        for file in (folder / "data").iterdir():
            file.unlink()
        node.start()
        after = fleet.wait_for_phase("UNMASKING", 2)
        fleet.wait_for(lambda event: event["kind"] == "task-ended", "the end of the task")
        require_all_counted(fleet, 2)
        assert after["attempt"] == before["attempt"]
        assert "E-BROKER-FORGETS" in fleet.processes[0].err


def test_a_gateway_does_not_run_over_a_broker_that_drops(tmp_path: Path) -> None:
    with stock_mosquitto(tmp_path / "broker") as brokers:
        words = ["gateway", "run", "--state", tmp_path / "g", "--http-port", "off"]
        refused = Process(tmp_path / "output", *words, "--broker", brokers.urls)
        try:
            ended = refused.wait()
        finally:
            refused.stop()
        assert ended.code == 4
        assert "E-BROKER-QUEUE" in ended.err
        accepting = Process(
            tmp_path / "output", *words, "--broker", brokers.urls,
            "--accept-finding", "E-BROKER-QUEUE",
        )  # fmt: skip
        try:
            wait_until(lambda: "(accepted)" in accepting.err, "the warning")
            accepting.interrupt()
            assert accepting.wait().code == 130
        finally:
            accepting.stop()
