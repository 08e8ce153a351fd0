"""G6: how long a call takes to reach a thousand devices that are awake."""

import time
from collections.abc import Iterator

from tests.benchmarks.gateway.processes import (
    Side,
    SideError,
    gateway_side,
    swarm,
    unbounded_mosquitto,
)
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare

_PATIENCE_S = 30.0


def measure(settings: Settings) -> Iterator[Result]:
    """Let both servers take turns at one call to everybody."""
    devices = settings.scaled(1000, 20)
    with (
        gateway_side(1) as (gateway, port),
        swarm(port) as our_fleet,
        unbounded_mosquitto() as node,
        swarm(node.address.port) as their_fleet,
    ):
        our_fleet.ask("connect", count=devices)
        their_fleet.ask("connect", count=devices)
        turns = [
            (_call(gateway, our_fleet, devices), _call(their_fleet, their_fleet, devices))
            for _ in range(settings.repeats)
        ]
    for row, share, bar in (
        ("G6 a call reaches an awake device, p99", 0.99, at_most(0.2)),
        ("- the median device", 0.5, None),
    ):
        yield compare(
            row, f"{devices:,} devices", "s",
            own=[_quantile(own, share) for own, _ in turns],
            peer=[_quantile(peer, share) for _, peer in turns],
            peer_name="mosquitto", bar=bar,
        )  # fmt: skip


def _call(caller: Side, fleet: Side, devices: int) -> list[float]:
    caller.ask("call")
    late_s: list[float] = []
    deadline_s = time.monotonic() + _PATIENCE_S
    while len(late_s) < devices:
        if time.monotonic() > deadline_s:
            raise SideError(f"{len(late_s)} of {devices} devices heard the call")
        time.sleep(0.1)
        heard = fleet.ask("heard")["late_s"]
        if isinstance(heard, list):
            late_s += heard
    return sorted(late_s)


def _quantile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]
