"""Real `edgefl` processes, and the strange things that they may meet."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from edgefl.cli.main import main
from tests.command import Ended

_PATIENCE_S = 90.0
"""Longer than anything takes on a machine that does ten times as much besides."""
_PHASE_LIMIT_S = 30
"""A phase ends with its last answer; its limit must not end it because a machine is busy."""


def begin_child(before: Callable[[], None] | None = None) -> None:
    """Let a child be interrupted: tests that a shell runs in the background ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if before is not None:
        before()


class Process:
    """One real `edgefl` process, whose output is collected in files."""

    def __init__(
        self,
        folder: Path,
        *words: object,
        before: Callable[[], None] | None = None,
        program: Sequence[object] = ("-m", "edgefl.cli"),
        within: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.out")))
        self._out, self._err = folder / f"{number}.out", folder / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [*within, sys.executable, *map(str, (*program, *words))],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
                    **(environment or {}),
                },
                preexec_fn=lambda: begin_child(before),
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self, timeout_s: float = _PATIENCE_S) -> Ended:
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise AssertionError(f"it goes on and on; stderr:\n{self.err}") from None
        return Ended(code=code, out=self._out.read_text(), err=self.err)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self.is_running:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = _PATIENCE_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return int(holder.getsockname()[1])


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def agent_words(state: Path, port: int, *more: object, device: str = "d1") -> list[object]:
    return [
        "agent", "run", "--device", device, "--data", "spar:1-left", "--state", state,
        "--gateway", f"127.0.0.1:{port}", *more,
    ]  # fmt: skip


def submit_words(state: Path, **changed: object) -> list[object]:
    options: dict[str, object] = {"--cohort": 4, "--rounds": 2, "--state": state, **changed}
    return ["task", "submit", *(word for pair in options.items() for word in pair)]


class LiveFleet:
    """A gateway and agents as real processes, as a user starts them."""

    def __init__(self, folder: Path, *, devices: int = 0) -> None:
        self.folder = folder
        self.state = folder / "gateway"
        self.devices = devices
        self.agents: list[Process] = []

    def __enter__(self) -> "LiveFleet":
        self.gateway = Process(
            self.folder / "output", "gateway", "run", "--port", 0, "--state", self.state
        )
        wait_until((self.state / "gateway.json").exists, "the gateway's start")
        self.port = int(json.loads((self.state / "gateway.json").read_text())["port"])
        for index in range(self.devices):
            self.add_agent(f"d{index}")
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.agents, self.gateway):
            if process.is_running:
                process.interrupt()
        for process in (*self.agents, self.gateway):
            process.stop()

    def add_agent(self, device: str, *more: object, state: Path | None = None) -> Process:
        words = agent_words(
            state or self.folder / device, self.port, "--max-epsilon", 10_000, *more, device=device
        )
        self.agents.append(Process(self.folder / "output", *words))
        return self.agents[-1]

    def submit(self, name: str, *more: object) -> None:
        words = ["task", "submit", "spar", "--name", name, "--cohort", 3, "--state", self.state]
        assert main([str(word) for word in (*words, "--phase-limit-s", _PHASE_LIMIT_S, *more)]) == 0

    def events(self) -> list[dict]:
        text = (self.state / "events.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for_line(self, words: str) -> None:
        out = self.folder / "output" / "0.out"
        wait_until(lambda: words in out.read_text(), words)


def devices_seen(fleet: LiveFleet) -> set[str]:
    return {event["device"] for event in fleet.events() if event["kind"] == "device-new"}


@contextlib.contextmanager
def foreign_server(answer: bytes) -> Iterator[int]:
    """Serve something that is not MQTT."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                connection.recv(1)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        # Closing alone does not wake an accept that waits.
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def limit_files(size_bytes: int) -> Callable[[], None]:
    """Make every write past a size fail, as a full disk does."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    return limit
