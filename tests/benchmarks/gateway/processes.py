"""Processes of a measurement: each in its own, so that its CPU time and memory are its own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.gateway import own_figures
from tests.integration.brokers import Node, stock_mosquitto

ROOT = Path(__file__).resolve().parents[3]
Answer = dict[str, object]


class SideError(Exception):
    """A process could not do what it was asked for."""


class Side:
    """A process that answers lines of JSON.

    Args:
        module: It calls `line_server.serve_lines`.
        options: Of its command line.
    """

    def __init__(self, module: str, *options: object) -> None:
        """Start it, and wait for its greeting."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.greeting = self._read("start")

    @property
    def process_id(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(self, operation: str, **arguments: object) -> Answer:
        """Let it do one thing, and return its answer.

        Raises:
            SideError: It could not, or it ended.
        """
        self.tell(operation, **arguments)
        return self._read(operation)

    def tell(self, operation: str, **arguments: object) -> None:
        """Let it begin one thing; `hear` waits for the answer."""
        if self._process.stdin is None:
            raise SideError("no pipe")
        self._process.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Answer:
        """Return the answer to what it was told."""
        return self._read("what it was told")

    def close(self) -> None:
        """End it: it stops when nobody asks any more."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self, what: str) -> Answer:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise SideError(f"the process ended at {what!r}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise SideError(f"{what}: {answer['error']}")
        return answer


def number(answer: Answer, name: str) -> float:
    """Return one number of an answer."""
    return float(str(answer[name]))


@contextlib.contextmanager
def side(module: str, *options: object) -> Iterator[Side]:
    """Run a process of ours."""
    running = Side(module, *options)
    try:
        yield running
    finally:
        running.close()


@contextlib.contextmanager
def gateway_side(devices: int, *options: object) -> Iterator[tuple[Side, int]]:
    """Run the gateway's side; yields it and the port without TLS."""
    words = ("--devices", devices, *options)
    with side("tests.benchmarks.gateway.gateway_side", *words) as gateway:
        yield gateway, port_of(gateway, "mqtt")


def port_of(gateway: Side, listener: str) -> int:
    """Return the port of one of the gateway's listeners."""
    ports = gateway.greeting["ports"]
    if not isinstance(ports, dict) or listener not in ports:
        raise SideError(f"no port for {listener}")
    return int(ports[listener])


@contextlib.contextmanager
def swarm(port: int, *options: object) -> Iterator[Side]:
    """Run devices that use a port."""
    with side("tests.benchmarks.gateway.swarm", "--port", port, *options) as devices:
        yield devices


@contextlib.contextmanager
def unbounded_mosquitto() -> Iterator[Node]:
    """Run mosquitto without persistence, and without the bounds that make it drop messages.

    That is its cheapest setting in which nothing is lost while it lives.
    """
    with (
        tempfile.TemporaryDirectory(prefix="edgefl-goals") as folder,
        stock_mosquitto(Path(folder), "max_queued_messages 0\nmax_queued_bytes 0") as brokers,
    ):
        (node,) = brokers.nodes
        yield node


def pid_of(node: Node) -> int:
    """Return the process of a broker."""
    if node.process is None:
        raise SideError("the broker does not run")
    return node.process.pid


def cpu_of(node: Node) -> float:
    """Return a broker's CPU seconds."""
    return own_figures.cpu_of(pid_of(node))
