"""G1 and G3: a round's uploads into the sum, beside mosquitto with a paho subscriber."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

from tests.benchmarks.gateway import own_figures
from tests.benchmarks.gateway.lab_fleet import CHUNK_BYTES, FLEET
from tests.benchmarks.gateway.processes import (
    Side,
    SideError,
    cpu_of,
    gateway_side,
    number,
    pid_of,
    unbounded_mosquitto,
    side,
    swarm,
)
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare
from tests.integration.brokers import Node

_UPLOAD_BYTES = 250_000
_SETTLE_S = 60.0
_MB = 1e6


def measure(settings: Settings) -> Iterator[Result]:
    """Let both sides take turns at a round of uploads."""
    devices = settings.scaled(1000, 20)
    with ExitStack() as stack:
        ours = _Ours(stack, devices)
        theirs = _Theirs(stack, devices)
        turns = [(ours.round(n + 1), theirs.round()) for n in range(settings.repeats)]
    gigabytes = devices * _UPLOAD_BYTES / 1e9
    per_gigabyte = [own["cpu_s"] / gigabytes for own, _ in turns]
    peer_per_gigabyte = [
        (peer["broker_cpu_s"] + peer["paho_cpu_s"]) / gigabytes for _, peer in turns
    ]
    case = f"{devices} devices, {_UPLOAD_BYTES // 1000} kB each"
    yield compare(
        "G1 CPU per GB received, hashed and summed", case, "s/GB",
        own=per_gigabyte, peer=peer_per_gigabyte,
        peer_name="mosquitto and paho, neither hashed nor summed", bar=at_most(1.5),
        stretch=at_most(1.0),
    )  # fmt: skip
    yield compare(
        "- the broker alone, which relays", case, "s/GB",
        own=per_gigabyte, peer=[peer["broker_cpu_s"] / gigabytes for _, peer in turns],
        peer_name="mosquitto",
    )  # fmt: skip
    yield compare(
        "G3 CPU of a round's uploads", case, "s",
        own=[own["cpu_s"] for own, _ in turns],
        peer=[peer["broker_cpu_s"] + peer["paho_cpu_s"] for _, peer in turns],
        peer_name="mosquitto and paho", bar=at_most(1.5),
    )  # fmt: skip
    yield compare(
        "G3 peak memory above the idle process", case, "MB",
        own=[own["growth_bytes"] / _MB for own, _ in turns],
        peer=[peer["growth_bytes"] / _MB for _, peer in turns],
        peer_name="mosquitto", bar=at_most(64),
    )  # fmt: skip
    yield compare(
        "- peak memory of the whole process", case, "MB",
        own=[own["peak_bytes"] / _MB for own, _ in turns],
    )  # fmt: skip


class _Ours:
    def __init__(self, stack: ExitStack, devices: int) -> None:
        self._gateway, port = stack.enter_context(gateway_side(devices))
        self._idle_bytes = number(self._gateway.ask("figures"), "rss_bytes")
        self._swarm = stack.enter_context(swarm(port))
        self._swarm.ask("open", count=devices)
        self._devices = devices

    def round(self, attempt: int) -> dict[str, float]:
        before = self._gateway.ask("begin", size_bytes=_UPLOAD_BYTES)
        wall_s = number(
            self._swarm.ask("upload", size_bytes=_UPLOAD_BYTES, attempt=attempt), "wall_s"
        )
        after = self._gateway.ask("figures")
        if number(after, "members") != self._devices:
            raise SideError(f"{after['members']} of {self._devices} vectors in the sum")
        return {
            "cpu_s": number(after, "cpu_s") - number(before, "cpu_s"),
            "growth_bytes": number(after, "peak_bytes") - self._idle_bytes,
            "peak_bytes": number(after, "peak_bytes"),
            "wall_s": wall_s,
        }


class _Theirs:
    def __init__(self, stack: ExitStack, devices: int) -> None:
        self._node: Node = stack.enter_context(unbounded_mosquitto())
        self._idle_bytes = own_figures.memory_of(pid_of(self._node))["rss_bytes"]
        port = self._node.address.port
        words = ("--port", port, "--filter", f"efl/1/{FLEET}/d/+/up/+")
        self._paho: Side = stack.enter_context(side("tests.benchmarks.peers.mqtt_paho", *words))
        self._swarm = stack.enter_context(swarm(port))
        self._swarm.ask("connect", count=devices)
        self._messages = devices * -(-_UPLOAD_BYTES // CHUNK_BYTES)

    def round(self) -> dict[str, float]:
        before, broker_s = self._paho.ask("begin"), cpu_of(self._node)
        own_figures.forget_peak(pid_of(self._node))
        self._swarm.ask("publish", size_bytes=_UPLOAD_BYTES)
        after = self._wait_for_all()
        memory = own_figures.memory_of(pid_of(self._node))
        return {
            "broker_cpu_s": cpu_of(self._node) - broker_s,
            "paho_cpu_s": number(after, "cpu_s") - number(before, "cpu_s"),
            "growth_bytes": memory["peak_bytes"] - self._idle_bytes,
        }

    def _wait_for_all(self) -> dict[str, object]:
        deadline_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline_s:
            said = self._paho.ask("figures")
            if number(said, "messages") >= self._messages:
                return said
            time.sleep(0.2)
        raise SideError(f"{said['messages']} of {self._messages} chunks arrived")
