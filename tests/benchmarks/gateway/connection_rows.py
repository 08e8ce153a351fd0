"""G2: memory of thousands of devices that are connected, with sessions that outlive the link."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.gateway import own_figures
from tests.benchmarks.gateway.certificates import write_certificates
from tests.benchmarks.gateway.processes import (
    Side,
    SideError,
    cpu_of,
    gateway_side,
    number,
    pid_of,
    port_of,
    swarm,
    unbounded_mosquitto,
)
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare

_SETTLE_S = 1.0
_KB = 1e3

Figures = dict[str, float]


def measure(settings: Settings) -> Iterator[Result]:
    """Connect devices in fresh processes, each turn anew: memory is not given back evenly."""
    devices = settings.scaled(5000, 50)
    turns = [(_ours(devices), _theirs(devices)) for _ in range(settings.repeats)]
    case = f"{devices:,} devices with will, session, 3 subscriptions, retained status"
    yield compare(
        "G2 memory for each connected device", case, "kB",
        own=[own["rss_bytes"] / devices / _KB for own, _ in turns],
        peer=[peer["rss_bytes"] / devices / _KB for _, peer in turns],
        peer_name="mosquitto", bar=at_most(8),
    )  # fmt: skip
    yield compare(
        "- CPU to connect, subscribe and publish a status", case, "ms",
        own=[own["cpu_s"] / devices * 1e3 for own, _ in turns],
        peer=[peer["cpu_s"] / devices * 1e3 for _, peer in turns],
        peer_name="mosquitto",
    )  # fmt: skip
    yield from _over_tls(settings)
    yield from _twice_as_many(settings)


def _over_tls(settings: Settings) -> Iterator[Result]:
    devices = settings.scaled(5000, 20)
    with tempfile.TemporaryDirectory(prefix="edgefl-tls") as name:
        write_certificates(Path(name), devices)
        turns = [_ours(devices, Path(name)) for _ in range(settings.repeats)]
    case = f"{devices:,} devices with TLS 1.3 and a certificate each"
    yield compare(
        "G2 memory for each connected device", case, "kB",
        own=[one["rss_bytes"] / devices / _KB for one in turns], bar=at_most(8),
    )  # fmt: skip
    yield compare(
        "- CPU to connect, subscribe and publish a status", case, "ms",
        own=[one["cpu_s"] / devices * 1e3 for one in turns],
    )  # fmt: skip


def _twice_as_many(settings: Settings) -> Iterator[Result]:
    devices = settings.scaled(10_000, 100)
    with gateway_side(1) as (gateway, port):
        before = _own(gateway)
        with swarm(port) as first, swarm(port) as second:
            half = devices // 2
            first.ask("connect", count=half)
            second.ask("connect", count=half, first=half)
            time.sleep(_SETTLE_S)
            _require_all(first, second)
            grown = _own(gateway)["rss_bytes"] - before["rss_bytes"]
    yield compare(
        "- as many as a core is to carry", f"{devices:,} devices", "kB",
        own=[grown / devices / _KB], bar=at_most(8),
    )  # fmt: skip


def _ours(devices: int, tls_folder: Path | None = None) -> Figures:
    options = () if tls_folder is None else ("--tls-folder", tls_folder)
    with (
        gateway_side(1, *options) as (gateway, plain),
        swarm(plain if tls_folder is None else port_of(gateway, "mqtts"), *options) as fleet,
    ):
        before = _own(gateway)
        fleet.ask("connect", count=devices)
        time.sleep(_SETTLE_S)
        _require_all(fleet)
        return _difference(before, _own(gateway))


def _theirs(devices: int) -> Figures:
    with unbounded_mosquitto() as node, swarm(node.address.port) as fleet:
        before = own_figures.memory_of(pid_of(node)) | {"cpu_s": cpu_of(node)}
        fleet.ask("connect", count=devices)
        time.sleep(_SETTLE_S)
        _require_all(fleet)
        after = own_figures.memory_of(pid_of(node)) | {"cpu_s": cpu_of(node)}
        return _difference(before, after)


def _own(gateway: Side) -> Figures:
    said = gateway.ask("figures")
    return {name: number(said, name) for name in ("rss_bytes", "cpu_s")}


def _difference(before: Figures, after: Figures) -> Figures:
    return {name: after[name] - before[name] for name in ("rss_bytes", "cpu_s")}


def _require_all(*fleets: Side) -> None:
    lost = sum(number(fleet.ask("heard"), "lost") for fleet in fleets)
    if lost:
        raise SideError(f"{lost:.0f} devices lost their connection")
