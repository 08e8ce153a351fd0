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
    side,
    swarm,
    unbounded_mosquitto,
)
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare
from tests.integration.brokers import Node

_ROUND_BYTES = 250_000
"""100,000 coordinates of 20 bits."""
_LARGE_BYTES = 4_000_000
_SETTLE_S = 60.0
_MB = 1e6
_PAHO = "mosquitto and paho, neither hashed nor summed"

Turn = tuple[dict[str, float], dict[str, float]]


def measure_throughput(settings: Settings) -> Iterator[Result]:
    """G1: large vectors, where the bytes cost and not the messages around them."""
    devices = settings.scaled(100, 4)
    turns = _take_turns(settings, devices, _LARGE_BYTES)
    yield from _per_gigabyte(turns, devices, _LARGE_BYTES)


def measure_round(settings: Settings) -> Iterator[Result]:
    """G3: a thousand devices with a small model each."""
    devices = settings.scaled(1000, 20)
    turns = _take_turns(settings, devices, _ROUND_BYTES)
    case = _case(devices, _ROUND_BYTES)
    yield compare(
        "G3 CPU of a round's uploads", case, "s",
        own=[own["cpu_s"] for own, _ in turns],
        peer=[peer["broker_cpu_s"] + peer["paho_cpu_s"] for _, peer in turns],
        peer_name=_PAHO, bar=at_most(1.5),
    )  # fmt: skip
    yield compare(
        "G3 peak memory above the idle process", case, "MB",
        own=[own["growth_bytes"] / _MB for own, _ in turns],
        peer=[peer["growth_bytes"] / _MB for _, peer in turns],
        peer_name="mosquitto alone", bar=at_most(64),
    )  # fmt: skip
    yield compare(
        "- peak memory of the whole process", case, "MB",
        own=[own["peak_bytes"] / _MB for own, _ in turns],
    )  # fmt: skip


def _per_gigabyte(turns: list[Turn], devices: int, size_bytes: int) -> Iterator[Result]:
    gigabytes = devices * size_bytes / 1e9
    case = _case(devices, size_bytes)
    own = [one["cpu_s"] / gigabytes for one, _ in turns]
    yield compare(
        "G1 CPU per GB received, hashed and summed", case, "s/GB", own=own,
        peer=[(peer["broker_cpu_s"] + peer["paho_cpu_s"]) / gigabytes for _, peer in turns],
        peer_name=_PAHO, bar=at_most(1.5),
    )  # fmt: skip
    yield compare(
        "- beside the broker that relays it", case, "s/GB", own=own,
        peer=[peer["broker_cpu_s"] / gigabytes for _, peer in turns], peer_name="mosquitto alone",
    )  # fmt: skip


def _case(devices: int, size_bytes: int) -> str:
    return f"{devices} devices, {size_bytes // 1000:,} kB each"


def _take_turns(settings: Settings, devices: int, size_bytes: int) -> list[Turn]:
    with ExitStack() as stack:
        ours = _Ours(stack, devices, size_bytes)
        theirs = _Theirs(stack, devices, size_bytes)
        return [(ours.round(n + 1), theirs.round()) for n in range(settings.repeats)]


class _Ours:
    def __init__(self, stack: ExitStack, devices: int, size_bytes: int) -> None:
        self._gateway, port = stack.enter_context(gateway_side(devices))
        self._idle_bytes = number(self._gateway.ask("figures"), "rss_bytes")
        self._swarm = stack.enter_context(swarm(port))
        self._swarm.ask("open", count=devices)
        self._devices, self._size_bytes = devices, size_bytes

    def round(self, attempt: int) -> dict[str, float]:
        before = self._gateway.ask("begin", size_bytes=self._size_bytes)
        wall_s = number(
            self._swarm.ask("upload", size_bytes=self._size_bytes, attempt=attempt), "wall_s"
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
    def __init__(self, stack: ExitStack, devices: int, size_bytes: int) -> None:
        self._node: Node = stack.enter_context(unbounded_mosquitto())
        self._idle_bytes = own_figures.memory_of(pid_of(self._node))["rss_bytes"]
        port = self._node.address.port
        words = ("--port", port, "--filter", f"efl/1/{FLEET}/d/+/up/+")
        self._paho: Side = stack.enter_context(side("tests.benchmarks.peers.mqtt_paho", *words))
        self._swarm = stack.enter_context(swarm(port))
        self._swarm.ask("connect", count=devices)
        self._size_bytes = size_bytes
        self._messages = devices * -(-size_bytes // CHUNK_BYTES)

    def round(self) -> dict[str, float]:
        before, broker_s = self._paho.ask("begin"), cpu_of(self._node)
        own_figures.forget_peak(pid_of(self._node))
        self._swarm.ask("publish", size_bytes=self._size_bytes)
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
