"""Run a scenario and say what it took on this machine."""

import resource
import time
from collections.abc import Callable
from dataclasses import replace

from broker.events import Reported
from edgefl.protocol.plan import SessionPlan
from edgefl.types import Update
from firmware_sim.fleet import Scenario, SimulationResult, run_scenario
from firmware_sim.report import Effort


def run_timed(
    scenario: Scenario, on_report: Callable[[Reported], None] = lambda _: None
) -> tuple[SimulationResult, Effort]:
    """Run a scenario as `run_scenario` does, and measure it.

    Args:
        scenario: What to simulate.
        on_report: Called with each line for the operator.
    """
    training_s = 0.0

    def timed(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
        nonlocal training_s
        started_s = time.perf_counter()
        try:
            return scenario.train(device, plan, bundle, parameters)
        finally:
            training_s += time.perf_counter() - started_s

    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    result = run_scenario(replace(scenario, train=timed), on_report)
    effort = Effort(
        wall_s=time.perf_counter() - started_s,
        cpu_s=time.process_time() - started_cpu_s,
        training_s=training_s,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )
    return result, effort
