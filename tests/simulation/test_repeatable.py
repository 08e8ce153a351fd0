"""Equal seeds give equal simulations: every message, every time, every parameter."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from firmware_sim.fleet import GatewayDeath, SimulationResult, run_scenario
from firmware_sim.spar_scenario import spar_scenario

_TWO_HASH_SEEDS = ("1", "2")
_SCRIPT = """
from dataclasses import asdict
import hashlib
from firmware_sim.fleet import run_scenario
from firmware_sim.spar_scenario import spar_scenario
result = run_scenario(
    spar_scenario(devices=8, rounds=1, seed=5, deaths_per_device_hour=600.0, loss=0.05)
)
print(hashlib.sha256(repr(sorted(asdict(result).items())).encode()).hexdigest(), result.deaths)
"""


def _eventful(seed: int) -> SimulationResult:
    scenario = spar_scenario(
        devices=8, rounds=2, seed=seed, deaths_per_device_hour=150.0, loss=0.05, limit_s=10.0
    )
    return run_scenario(
        replace(scenario, gateway_deaths=(GatewayDeath(at_s=4.0, outage_s=2.0),), longest_s=900.0)
    )


def test_the_seed_decides_everything() -> None:
    first, second, other = _eventful(3), _eventful(3), _eventful(4)
    assert first == second
    assert first.transcript_sha256 != other.transcript_sha256
    assert first.parameters != other.parameters
    assert first.deaths > 0
    assert first.transmissions_lost > 0
    assert first.accuracies
    assert len(first.parameters) == 4 * 1911


@pytest.mark.timeout(120)
def test_the_order_of_sets_decides_nothing() -> None:
    """Two processes whose string hashes differ still send the same messages."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _SCRIPT],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in _TWO_HASH_SEEDS
    ]
    try:
        outputs = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].split()[0]) == 64
