"""A real gateway through many rounds: every one is committed with everybody, and memory stays flat.

`pytest -m long -s tests/integration/test_soak.py` runs 500 rounds of 50 devices, and holds 5,000
connections; `python -m tests.benchmarks.gateway.soak` prints how it went.
"""

import json
import time
from pathlib import Path

import pytest

from tests.benchmarks.gateway import own_figures
from tests.benchmarks.gateway.processes import Side, number
from tests.benchmarks.gateway.soak import soak
from tests.integration.real import Process, wait_until

FLEET = "lab"
CONNECTIONS = 5000
_KB_EACH = 8
"""G2 of the transport's targets, for the whole gateway and not for its endpoint alone."""


def require_steady(folder: Path, rounds: int, devices: int, longest_s: float) -> None:
    found = soak(folder, rounds=rounds, devices=devices, longest_s=longest_s)
    assert found.outcomes == ("COMMITTED",) * rounds
    assert found.survivors == (devices,) * rounds
    print(f"memory {found.growth_share:+.1%}, {found.cpu_s_per_round:.3f} CPU s a round")
    assert found.growth_share <= 0.1


@pytest.mark.timeout(120)
def test_20_rounds_of_8_devices(tmp_path: Path) -> None:
    require_steady(tmp_path, rounds=20, devices=8, longest_s=100)


@pytest.mark.long
@pytest.mark.timeout(4000)
def test_500_rounds_of_50_devices(tmp_path: Path) -> None:
    require_steady(tmp_path, rounds=500, devices=50, longest_s=3900)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_5000_devices_connect_sleep_and_come_back(tmp_path: Path) -> None:
    state = tmp_path / "gateway"
    words = ("gateway", "run", "--port", 0, "--state", state, "--fleet", FLEET)
    gateway = Process(tmp_path / "output", *words)
    wait_until((state / "gateway.json").exists, "the gateway's start", timeout_s=120)
    port = json.loads((state / "gateway.json").read_text())["port"]
    fleet = Side("tests.benchmarks.gateway.swarm", "--port", port)
    try:
        before = own_figures.memory_of(gateway.process_id)["rss_bytes"]
        fleet.ask("connect", count=CONNECTIONS)
        time.sleep(1)
        grown = own_figures.memory_of(gateway.process_id)["rss_bytes"] - before
        said = fleet.ask("heard")
        assert (number(said, "lost"), number(said, "present")) == (0, 0)
        print(f"{grown / CONNECTIONS / 1000:.1f} kB for each connection")
        assert grown <= CONNECTIONS * _KB_EACH * 1000
        fleet.ask("leave")
        began_s = time.monotonic()
        fleet.ask("connect", count=CONNECTIONS)
        took_s = time.monotonic() - began_s
        said = fleet.ask("heard")
        peak = own_figures.memory_of(gateway.process_id)["peak_bytes"]
        print(f"all back after {took_s:.1f} s; the gateway took {peak / 1e6:.0f} MB at most")
        assert (number(said, "lost"), number(said, "present")) == (0, CONNECTIONS)
        assert gateway.is_running
    finally:
        fleet.close()
        gateway.stop()
