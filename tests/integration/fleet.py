"""A gateway and its agents as real processes, for tests that kill them."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from broker.demo_task import demo_task
from broker.task_folder import submit_task
from edgefl.data.spar import held_out
from edgefl.demo.processes import Fleet
from edgefl.demo.record import Event, EventTail
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model

FLEET = "test"
SOURCES = [f"spar:{person}-{arm}" for person in range(1, 9) for arm in ("left", "right")]


class RealFleet:
    """Processes, and the gateway's events as they come."""

    def __init__(
        self,
        folder: Path,
        *,
        devices: int,
        rounds: int,
        limit_s: float = 20.0,
        mode: str = "secagg",
        bundle: bytes | None = None,
    ) -> None:
        recipe = demo_task("task", cohort=devices, rounds=rounds, limit_s=limit_s)
        self.spec = replace(recipe, mode=mode)
        sources = {f"d{index}": SOURCES[index] for index in range(devices)}
        self.processes = Fleet(folder, sources, fleet=FLEET, max_epsilon=10_000)
        if mode != "secagg":
            self.processes.policy = folder / "policy.toml"
            self.processes.policy.write_text("allow_experimental = true\n")
        self.events: list[Event] = []
        self._unread: list[Event] = []
        self._tail = EventTail(self.state / "events.jsonl")
        if bundle is None:
            bundle = compile_bundle(demo_model(1)).bundle_bytes
        submit_task(self.state, self.spec, bundle, held_out())

    @property
    def state(self) -> Path:
        return self.processes.gateway_state

    @property
    def port(self) -> int:
        return int(json.loads((self.state / "gateway.json").read_text())["port"])

    def start(self) -> int:
        self.processes.start_gateway(0)
        wait_until(lambda: (self.state / "gateway.json").exists(), "the gateway listens", 60)
        port = self.port
        self.processes.start_agents(port)
        return port

    def wait_for(self, wanted: Callable[[Event], bool], what: str, timeout_s: float = 60) -> Event:
        """Wait for an event that is not older than the last one waited for."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            self._unread += self._tail.read_new()
            while self._unread:
                event = self._unread.pop(0)
                self.events.append(event)
                if wanted(event):
                    return event
            time.sleep(0.01)
        raise AssertionError(f"{what} did not happen; last events: {self.events[-5:]}")

    def wait_for_phase(self, phase: str, round_number: int) -> Event:
        return self.wait_for(
            lambda event: (
                event["kind"] == "phase"
                and event["phase"] == phase
                and event["round"] == round_number
            ),
            f"{phase} of round {round_number}",
        )

    def wait_for_commit(self, round_number: int) -> Event:
        return self.wait_for(
            lambda event: (
                event["kind"] == "round"
                and event["outcome"] == "COMMITTED"
                and event["round"] == round_number
            ),
            f"round {round_number}",
        )

    def wait_for_end(self) -> Event:
        return self.wait_for(lambda event: event["kind"] == "task-ended", "the end of the task")

    def ledger_rows(self) -> list[Event]:
        lines = (self.state / "ledger.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def log_of(self, device: str) -> str:
        return self.processes.agents[device].log_path.read_text()


@contextmanager
def real_fleet(
    folder: Path,
    *,
    devices: int,
    rounds: int,
    limit_s: float = 20.0,
    mode: str = "secagg",
    bundle: bytes | None = None,
) -> Iterator[RealFleet]:
    """Run a fleet; every process is gone afterwards."""
    fleet = RealFleet(
        folder, devices=devices, rounds=rounds, limit_s=limit_s, mode=mode, bundle=bundle
    )
    try:
        yield fleet
    finally:
        fleet.processes.stop()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what} did not happen within {timeout_s} s")
        time.sleep(0.02)
