"""A gateway killed at any of its writes goes on: nothing acknowledged is lost, or counted twice.

`pytest -m long tests/simulation/test_gateway_writes.py` tries every write of every kind of round.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.events import Reported
from edgefl.protocol.plan import SessionPlan
from edgefl.types import Update
from firmware_sim.fleet import Scenario, SimulationResult, run_scenario
from firmware_sim.spar_scenario import spar_scenario
from tests.simulation.dying_gateway import Moment, dying_at

_DEVICES = 5
_MODES = ("secagg", "one-upload")
_STRIDE = {"secagg": 5, "one-upload": 17}
"""Of the writes that CI tries, which are others for each moment."""


def _drift(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
    """Stand in for training: a small step, another per board."""
    del plan, bundle
    return np.full(len(parameters) // 4, 1e-3 * (1 + int(device[-1])), dtype=np.float32)


@cache
def _scenario(mode: str) -> Scenario:
    scenario = spar_scenario(
        devices=_DEVICES, rounds=2, seed=7, deaths_per_device_hour=0.0, limit_s=10.0, mode=mode
    )
    # A round waits for everybody: who is missing from it was lost.
    task = replace(scenario.task, quorum=_DEVICES)
    return replace(scenario, task=task, train=_drift, longest_s=600.0)


@cache
def _write_count(mode: str) -> int:
    with dying_at() as writes:
        run_scenario(_scenario(mode))
    return writes.count


def _run(mode: str, *kills: tuple[int, Moment]) -> tuple[SimulationResult, list[Reported]]:
    reports: list[Reported] = []
    with dying_at(*kills) as writes:
        result = run_scenario(_scenario(mode), reports.append)
    assert writes.deaths >= 1
    return result, reports


def _require_nothing_lost(result: SimulationResult, n_kills: int) -> None:
    assert result.outcome == "done"
    assert sorted(result.accuracies) == [1, 2]
    # The line about a round may be lost with the gateway that would have said it; its model is not.
    assert len(result.rounds) >= 2 - n_kills
    attempts = [int(str(row["attempt"])) for row in result.rounds]
    assert attempts == sorted(set(attempts))
    for row in result.rounds:
        # The check coordinates show that the sum holds each of them once.
        assert (row["outcome"], row["survivors"]) == ("COMMITTED", _DEVICES)
        assert row["sum_check_held"] is True
        assert row["dropouts"] == []
    assert result.ledger_entries == 2, "each sum is charged once"


def _points(mode: str, stride: int) -> list[tuple[int, Moment]]:
    count = _write_count(mode)
    return [
        (number, moment)
        for offset, moment in enumerate(Moment)
        for number in range(1 + offset % stride, count + 1, stride)
    ]


@pytest.mark.parametrize("mode", _MODES)
def test_a_gateway_killed_at_some_writes_loses_nothing(mode: str) -> None:
    for point in _points(mode, _STRIDE[mode]):
        result, _ = _run(mode, point)
        _require_nothing_lost(result, 1)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", _MODES)
def test_a_gateway_killed_at_any_write_loses_nothing(mode: str) -> None:
    for point in _points(mode, 1):
        result, _ = _run(mode, point)
        _require_nothing_lost(result, 1)


@pytest.mark.long
@pytest.mark.timeout(1200)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    mode=st.sampled_from(_MODES),
    numbers=st.lists(st.integers(1, 80), min_size=2, max_size=5, unique=True),
    data=st.data(),
)
def test_a_gateway_killed_again_and_again_loses_nothing(
    mode: str, numbers: list[int], data: st.DataObject
) -> None:
    kills = [(number, data.draw(st.sampled_from(Moment))) for number in sorted(numbers)]
    count = _write_count(mode)
    kills = [kill for kill in kills if kill[0] <= count] or [(count, Moment.BEFORE_COMMIT)]
    result, _ = _run(mode, *kills)
    _require_nothing_lost(result, len(kills))


def test_before_the_first_word_of_a_round_the_ledger_row_is_found_again() -> None:
    """The row is durable before the batch is: between the two, the gateway dies."""
    rows: list[int] = []
    with dying_at() as writes:
        run_scenario(
            _scenario("secagg"),
            lambda report: (
                rows.append(writes.count)
                if report.kind == "phase" and report.fields["phase"] == "UNMASKING"
                else None
            ),
        )
    result, reports = _run("secagg", (rows[0], Moment.BEFORE_COMMIT))
    _require_nothing_lost(result, 1)
    assert [report.fields["phase"] for report in reports if report.kind == "resumed"] == [
        "MASKED_INPUT"
    ]
