"""A gateway that was set up by `init`, and boards that are let in, as real processes over TLS."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from edgefl.cli.main import main
from tests.integration.real import Process, wait_until

SOURCES = ["spar:1-left", "spar:1-right", "spar:2-left", "spar:2-right"]


class EnrolledFleet:
    """Everything between `gateway init` and a round."""

    def __init__(self, folder: Path, *init_words: object) -> None:
        self.folder = folder
        self.state = folder / "gateway"
        self.processes: list[Process] = []
        self.gateway: Process | None = None
        self._count = 0
        words = ["gateway", "init", "--state", self.state, "--fleet", "test", "--host", "localhost"]
        assert main([str(word) for word in (*words, *init_words)]) == 0

    def __enter__(self) -> "EnrolledFleet":
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.interrupt_if_running()
        for process in self.processes:
            process.stop()

    def use_free_ports(self) -> None:
        path = self.state / "gateway.toml"
        text = path.read_text()
        for name, port in (("mqtts_port", 8883), ("wss_port", 8443)):
            text = text.replace(f"{name} = {port}", f"{name} = 0")
        path.write_text(text.replace('"0.0.0.0"', '"127.0.0.1"'))

    def start(self, *words: object) -> Process:
        self._count += 1
        process = _Quiet(self.folder / f"process-{self._count}", *words)
        self.processes.append(process)
        return process

    def start_gateway(self, *more: object) -> Process:
        (self.state / "gateway.json").unlink(missing_ok=True)
        self.gateway = self.start(
            "gateway", "run", "--state", self.state, "--http-port", "off", *more
        )
        wait_until((self.state / "gateway.json").exists, "the gateway's start")
        return self.gateway

    def run(self, *words: object) -> int:
        return main([str(word) for word in words])

    def token(self, *more: object) -> Path:
        path = self.folder / f"token-{time.monotonic_ns()}"
        words = ["gateway", "token", "new", "--state", self.state, "--out", path]
        assert self.run(*words, *more) == 0
        return path

    def state_of(self, device: str) -> Path:
        return self.folder / device

    def enrol(self, device: str, *more: object) -> Process:
        words = ["agent", "enrol", "--device", device, "--state", self.state_of(device)]
        return self.start(*words, "--wait-s", 40, *more)

    def enrol_at_once(self, device: str, token: Path) -> None:
        """Enrol with a token that lets in, within this process: starting one takes a while."""
        words = ["agent", "enrol", "--device", device, "--state", self.state_of(device)]
        assert self.run(*words, "--token", token, "--wait-s", 40) == 0

    def run_agent(self, device: str, source: str, *more: object) -> Process:
        words = ["agent", "run", "--state", self.state_of(device), "--data", source]
        words += ["--max-epsilon", 10_000, "--backend", "onnx", "--provider", "cpu"]
        return self.start(*words, *more)

    def submit(self, name: str, *more: object) -> None:
        words = ["task", "submit", "spar", "--name", name, "--state", self.state]
        assert self.run(*words, "--rounds", 1, "--phase-limit-s", 15, *more) == 0

    def events(self) -> list[dict]:
        text = (self.state / "events.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for(self, wanted: Callable[[dict], bool], what: str) -> dict:
        wait_until(lambda: any(wanted(event) for event in self.events()), what)
        return next(event for event in self.events() if wanted(event))

    def wait_for_state(self, device: str, state: str) -> dict:
        return self.wait_for(
            lambda event: (
                event["kind"] == "enrolment-state"
                and event["device"] == device
                and event["state"] == state
            ),
            f"{device} is {state}",
        )

    def wait_for_round(self, task: str) -> dict:
        return self.wait_for(
            lambda event: event["kind"] == "round" and event.get("task") == task,
            f"a round of {task}",
        )


class _Quiet(Process):
    """A process whose output can be looked at while it runs."""

    @property
    def out(self) -> str:
        return self._out.read_text()

    def interrupt_if_running(self) -> None:
        if self.is_running:
            self.interrupt()
