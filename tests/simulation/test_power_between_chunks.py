"""A board loses power right after any of its chunks, and its update is counted all the same, once.

`pytest -m long tests/simulation/test_power_between_chunks.py` tries every chunk; CI the first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from unittest import mock

import pytest

from edgefl.transport.core_events import Publish
from firmware_sim.device import SimulatedDevice
from firmware_sim.fleet import Scenario, SimulationResult, run_scenario
from firmware_sim.spar_scenario import spar_scenario
from tests.simulation.test_transfers import SMALL_PACKETS, drift

DEVICES = 4
_OUTAGE_S = 0.5
"""Less than the gateway's grace: whoever is back by then has missed nothing."""
_PUBLISH = SimulatedDevice._publish


@dataclass
class Victim:
    """One board, and after which of its chunks the power goes."""

    name: str
    dies_after: int
    chunks: int = 0

    def publish(self, device: SimulatedDevice, effect: Publish) -> None:
        _PUBLISH(device, effect)
        if device.name != self.name or "/up/" not in effect.topic:
            return
        self.chunks += 1
        if self.chunks == self.dies_after:
            device.die(outage_s=_OUTAGE_S)


@contextmanager
def power_cut(dies_after: int) -> Iterator[Victim]:
    victim = Victim(min(chunked().examples), dies_after)
    with mock.patch.object(
        SimulatedDevice, "_publish", lambda device, effect: victim.publish(device, effect)
    ):
        yield victim


@cache
def chunked() -> Scenario:
    """Chunks are 4 KiB and vectors 6 KiB; a round waits for everybody."""
    whole = spar_scenario(
        devices=DEVICES, rounds=2, seed=11, deaths_per_device_hour=0.0, limit_s=20.0
    )
    task = replace(whole.task, quorum=DEVICES, ring_bits=24)
    return replace(whole, task=task, train=drift, link=SMALL_PACKETS, longest_s=600.0)


def run(dies_after: int) -> tuple[SimulationResult, Victim]:
    with power_cut(dies_after) as victim:
        return run_scenario(chunked()), victim


@cache
def chunks_of_an_undisturbed_run() -> int:
    result, victim = run(dies_after=0)
    require_all_counted(result)
    assert victim.chunks >= 2 * 2, "two rounds, each with a vector of several chunks"
    return victim.chunks


def require_all_counted(result: SimulationResult) -> None:
    assert result.outcome == "done"
    for row in result.rounds:
        # The check coordinates show that the sum holds each of them once.
        assert (row["outcome"], row["survivors"], row["dropouts"]) == ("COMMITTED", DEVICES, [])
        assert row["sum_check_held"] is True
    assert sorted(result.accuracies) == [1, 2]


def require_survived(dies_after: int) -> None:
    result, victim = run(dies_after)
    assert result.deaths == 1
    assert victim.chunks >= dies_after
    require_all_counted(result)


def test_after_the_first_chunk() -> None:
    require_survived(1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_after_any_chunk() -> None:
    for dies_after in range(1, chunks_of_an_undisturbed_run() + 1):
        require_survived(dies_after)
