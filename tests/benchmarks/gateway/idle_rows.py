"""G5: packets that a real agent sends while nothing happens."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, at_most, compare
from tests.integration.real import LiveFleet, wait_until
from tests.integration.test_agent_costs import counting_proxy

_KEEPALIVE_S = 5
_PERIODS = 6
_DAY_S = 86_400
_LONGEST_KEEPALIVE_S = 900
_SETTLE_S = 3.0


def measure(settings: Settings) -> Iterator[Result]:
    """Count with a short keepalive, and scale to the longest."""
    periods = settings.scaled(_PERIODS, 1)
    with (
        tempfile.TemporaryDirectory(prefix="edgefl-idle") as name,
        LiveFleet(Path(name)) as fleet,
        counting_proxy(fleet.port) as proxy,
    ):
        config = Path(name) / "agent.toml"
        config.write_text(f"[power]\nkeepalive_s = {_KEEPALIVE_S}\n")
        words = ("--gateway", f"127.0.0.1:{proxy.port}", "--config", config)
        fleet.add_agent("measured", *words)
        status = Path(name) / "measured" / "status.json"
        wait_until(
            lambda: status.exists() and json.loads(status.read_text())["knows_gateway"],
            "the agent's start",
        )
        time.sleep(_SETTLE_S)
        counts = []
        for _ in range(settings.repeats):
            before = proxy.pieces
            time.sleep(periods * _KEEPALIVE_S)
            counts.append((proxy.pieces - before) / periods)
    a_day = _DAY_S / _LONGEST_KEEPALIVE_S
    yield compare(
        "G5 packets a day of an idle agent",
        f"counted over {periods} keepalives of {_KEEPALIVE_S} s, for one of 900 s",
        "packets", own=[count * a_day for count in counts], bar=at_most(100),
    )  # fmt: skip
