"""Device-rounds per second of the simulator: all of the protocol, crypto and training included."""

from typing import cast

import pytest

from firmware_sim.fleet import SimulationResult, run_scenario
from firmware_sim.spar_scenario import spar_scenario

_DEVICES = 50


@pytest.mark.benchmark(group="simulator")
def test_device_rounds(benchmark) -> None:
    scenario = spar_scenario(devices=_DEVICES, rounds=1, seed=1, deaths_per_device_hour=0.0)
    result = cast("SimulationResult", benchmark.pedantic(run_scenario, args=(scenario,), rounds=2))
    assert result.outcome == "done"
    device_rounds = sum(cast("int", row["survivors"]) for row in result.rounds)
    assert device_rounds == _DEVICES
    benchmark.extra_info["devices"] = _DEVICES
    if benchmark.stats is not None:
        mean_s = benchmark.stats.stats.mean
        benchmark.extra_info["device_rounds_per_s"] = device_rounds / mean_s
