"""G7: one model to every device, beside mosquitto with retained chunks."""

from collections.abc import Iterator
from contextlib import ExitStack

from tests.benchmarks.gateway import own_figures
from tests.benchmarks.gateway.processes import (
    cpu_of,
    gateway_side,
    number,
    pid_of,
    swarm,
    unbounded_mosquitto,
)
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare

_MODEL_BYTES = 4_000_000
_ADMITTED = 32
_MB = 1e6

Figures = dict[str, float]


def measure(settings: Settings) -> Iterator[Result]:
    """Send a gigabyte a turn; then the whole fleet once."""
    devices = settings.scaled(250, 4)
    turns = [(_ours(devices), _theirs(devices, _ADMITTED)) for _ in range(settings.repeats)]
    yield from _rows(turns, devices)
    fleet = settings.scaled(1000, 8)
    whole = _ours(fleet)
    yield compare(
        "G7 peak memory beside the model", f"{fleet:,} devices, 4 MB each", "MB",
        own=[whole["growth_bytes"] / _MB], bar=at_most(16),
    )  # fmt: skip
    yield compare(
        "- CPU per GB sent", f"{fleet:,} devices, 4 MB each", "s/GB",
        own=[whole["cpu_s"] / (fleet * _MODEL_BYTES / 1e9)], bar=at_most(1.0),
    )  # fmt: skip


def _rows(turns: list[tuple[Figures, Figures]], devices: int) -> Iterator[Result]:
    gigabytes = devices * _MODEL_BYTES / 1e9
    case = f"{devices} devices, 4 MB each"
    peer = f"mosquitto, {_ADMITTED} admitted"
    yield compare(
        "G7 CPU per GB sent", case, "s/GB",
        own=[own["cpu_s"] / gigabytes for own, _ in turns],
        peer=[theirs["cpu_s"] / gigabytes for _, theirs in turns],
        peer_name=peer, bar=at_most(1.0),
    )  # fmt: skip
    yield compare(
        "G7 peak memory beside the model", case, "MB",
        own=[own["growth_bytes"] / _MB for own, _ in turns],
        peer=[theirs["growth_bytes"] / _MB for _, theirs in turns],
        peer_name=peer, bar=at_most(16),
    )  # fmt: skip


def _ours(devices: int) -> Figures:
    with ExitStack() as stack:
        gateway, port = stack.enter_context(gateway_side(devices))
        fleet = stack.enter_context(swarm(port))
        fleet.ask("open", count=devices)
        before = gateway.ask("model", size_bytes=_MODEL_BYTES)
        fleet.ask("fetch", sha256=before["sha256"])
        after = gateway.ask("figures")
        return {
            "cpu_s": number(after, "cpu_s") - number(before, "cpu_s"),
            "growth_bytes": number(after, "peak_bytes") - number(before, "rss_bytes"),
        }


def _theirs(devices: int, admitted: int) -> Figures:
    with unbounded_mosquitto() as node, swarm(node.address.port) as fleet:
        fleet.ask("connect", count=devices)
        fleet.ask("retain", size_bytes=_MODEL_BYTES)
        process_id = pid_of(node)
        own_figures.forget_peak(process_id)
        before, cpu_s = own_figures.memory_of(process_id), cpu_of(node)
        fleet.ask("receive", size_bytes=_MODEL_BYTES, parallel=admitted)
        after = own_figures.memory_of(process_id)
        return {
            "cpu_s": cpu_of(node) - cpu_s,
            "growth_bytes": after["peak_bytes"] - before["rss_bytes"],
        }
