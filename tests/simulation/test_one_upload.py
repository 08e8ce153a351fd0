"""The experimental one-upload mode over whole fleets: deaths, kills and refusals, virtual time."""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from broker.events import Reported, TaskSubmitted
from edgefl.protocol.plan import SessionPlan
from edgefl.training.bundle import read_bundle
from edgefl.types import Update
from firmware_sim.fleet import GatewayDeath, Scenario, SimulationResult, _Run, run_scenario
from firmware_sim.spar_scenario import spar_scenario

_DEVICES = 8
_FLOOR = 5  # of eight: the task's default, five eighths
_PHASES = ("MASKED_INPUT", "CERTIFICATE", "UNMASKING")
_STEP = 1e-3


def _drift(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
    """Stand in for training: a small step, another per board."""
    del plan, bundle
    return np.full(len(parameters) // 4, _STEP * (1 + int(device[-1])), dtype=np.float32)


@cache
def _scenario(
    *, rounds: int = 2, deaths: float = 0.0, loss: float = 0.0, seed: int = 7
) -> Scenario:
    scenario = spar_scenario(
        devices=_DEVICES,
        rounds=rounds,
        seed=seed,
        deaths_per_device_hour=deaths,
        loss=loss,
        limit_s=10.0,
        mode="one-upload",
    )
    return replace(scenario, train=_drift, longest_s=1200.0)


def _committed(result: SimulationResult) -> list[dict[str, Any]]:
    rows = cast("list[dict[str, Any]]", result.rounds)
    return [row for row in rows if row["outcome"] == "COMMITTED"]


@cache
def _healthy() -> SimulationResult:
    return run_scenario(_scenario())


def _start_s(result: SimulationResult, number: int, phase: str) -> float:
    """Return when a phase of a round began, in a run whose rounds follow each other at once."""
    at_s = result.virtual_s
    for row in reversed(_committed(result)):
        for part in reversed(row["phases"]):
            at_s -= part["duration_s"]
            if (row["round"], part["phase"]) == (number, phase):
                return at_s
    raise AssertionError(phase)


def test_rounds_follow_each_other_without_check_in_and_lose_nobody() -> None:
    result = _healthy()
    assert result.outcome == "done"
    for row in _committed(result):
        assert tuple(part["phase"] for part in row["phases"]) == _PHASES
        assert row["survivors"] == _DEVICES
        assert row["sum_check_held"] is True
    assert len(_committed(result)) == 2
    assert result.ledger_entries == 2
    assert not result.noticed


def test_the_model_moves_by_the_exact_mean_of_the_updates() -> None:
    scenario = _scenario(rounds=1)
    task = replace(
        scenario.task,
        noise_multiplier=0.0,
        epsilon_budget=float("inf"),
        colluders=0,
        server_momentum=0.0,
        server_lr=1.0,
        clip_norm=1.0,
    )
    result = run_scenario(replace(scenario, task=task, max_epsilon=float("inf")))
    assert result.outcome == "done"
    initial = read_bundle(scenario.bundle).initial_params
    moved = np.frombuffer(result.parameters, dtype="<f4") - initial
    mean = _STEP * np.mean(np.arange(1, _DEVICES + 1))
    grid = 1 / task.privacy_plan(initial.size).scale
    # Only stochastic rounding to the grid is left, of a rotated vector: unbiased, below one step.
    assert abs(float(moved.mean()) - mean) < 0.1 * mean
    assert float(np.sqrt(np.mean((moved - mean) ** 2))) < grid


@pytest.mark.parametrize("seed", [1, 2])
def test_dying_boards_and_a_bad_link_cost_their_own_updates_only(seed: int) -> None:
    result = run_scenario(_scenario(rounds=4, deaths=150.0, loss=0.05, seed=seed))
    assert result.outcome == "done"
    assert result.deaths >= 5
    committed = _committed(result)
    assert [row["round"] for row in committed] == [1, 2, 3, 4]
    assert all(row["sum_check_held"] for row in committed)
    assert all(row["survivors"] >= _FLOOR for row in committed)


def test_boards_refuse_unless_their_owner_allows_experiments() -> None:
    scenario = _scenario()
    task = replace(scenario.task, max_attempts=3)
    told: list[Reported] = []
    result = run_scenario(replace(scenario, task=task, allows_experimental=False), told.append)
    assert result.outcome == "failed"
    assert result.rounds == []
    assert result.ledger_entries == 0
    assert result.noticed == {"E-PLAN-POLICY": 3 * _DEVICES}
    ended = next(line.fields for line in told if line.kind == "task-ended")
    assert "TOO_FEW_DEPOSITS" in str(ended["reason"])
    assert "allow_experimental" in str(ended["reason"])


def test_a_round_goes_on_with_the_boards_whose_owner_allows_it() -> None:
    run = _Run(_scenario(), lambda _: None)
    refusing = run._devices[:2]
    for device in refusing:
        policy = replace(device._settings.policy, allows_experimental=False)
        device._settings = replace(device._settings, policy=policy)
    result = run.run()
    assert result.outcome == "done"
    assert [row["survivors"] for row in _committed(result)] == [_DEVICES - 2] * 2
    assert set(result.noticed) == {"E-PLAN-POLICY"}


@pytest.mark.parametrize("phase", _PHASES)
def test_a_killed_gateway_goes_on_with_the_open_round_and_everybody(phase: str) -> None:
    healthy = _healthy()
    duration = {part["phase"]: part["duration_s"] for part in _committed(healthy)[0]["phases"]}
    at_s = _start_s(healthy, 1, phase) + duration[phase] / 2
    death = GatewayDeath(at_s=at_s, outage_s=1.5)
    result = run_scenario(replace(_scenario(), gateway_deaths=(death,)))
    assert result.outcome == "done"
    rows = [(row["round"], row["attempt"], row["outcome"]) for row in result.rounds]
    assert rows == [(1, 1, "COMMITTED"), (2, 2, "COMMITTED")]
    # What was deposited with the first round's uploads serves the next one.
    assert [row["survivors"] for row in _committed(result)] == [_DEVICES] * 2
    assert all(row["sum_check_held"] for row in _committed(result))
    assert "E-PLAN-POLICY" not in result.noticed
    assert "E-KEY-INDEX-USED" not in result.noticed


@pytest.mark.parametrize("before_s", [0.005, 0.02, 0.05])
def test_a_gateway_killed_while_it_collects_deposits_loses_none(before_s: float) -> None:
    at_s = _start_s(_healthy(), 1, "MASKED_INPUT") - before_s
    death = GatewayDeath(at_s=at_s, outage_s=1.5)
    result = run_scenario(replace(_scenario(), gateway_deaths=(death,)))
    assert result.outcome == "done"
    assert [row["survivors"] for row in _committed(result)] == [_DEVICES] * 2
    assert "E-KEY-INDEX-USED" not in result.noticed


def test_a_board_that_missed_a_round_is_in_the_next_one() -> None:
    scenario = _scenario(rounds=3)
    at_s = _start_s(_healthy(), 1, "MASKED_INPUT") + 0.1
    run = _Run(scenario, lambda _: None)
    run._clock.call_at(at_s, lambda: run._devices[3].die(outage_s=4.0))
    result = run.run()
    assert result.outcome == "done"
    survivors = [row["survivors"] for row in _committed(result)]
    assert survivors[0] == _DEVICES - 1
    assert survivors[-1] == _DEVICES


def test_a_task_of_the_other_mode_leaves_out_the_index_that_was_deposited_for() -> None:
    scenario = _scenario(rounds=1)
    lines: list[Reported] = []
    run = _Run(scenario, lines.append)
    assert run.run().outcome == "done"
    second = TaskSubmitted(
        spec=replace(scenario.task, name="second", mode="secagg"),
        bundle=scenario.bundle,
        initial_parameters=run._bundle.initial_params,
    )
    run._gateway.ended = None
    run._gateway.submit(second)
    while run._gateway.ended is None and run._clock.run_next():
        pass
    ended = run._gateway.ended
    assert ended is not None
    assert (ended.task, ended.outcome) == ("second", "done")
    outcomes = Counter(row["outcome"] for row in run._rounds)
    assert outcomes == {"COMMITTED": 2}
    assert not sum((device.noticed for device in run._devices), Counter())


@pytest.mark.parametrize(("phase", "after_s"), [("UNMASKING", 0.001), ("MASKED_INPUT", -0.001)])
def test_a_restarted_board_has_the_key_that_it_deposited(phase: str, after_s: float) -> None:
    """Once in the round whose upload brought the deposit, once before there is any round."""
    at_s = _start_s(_healthy(), 1, phase) + after_s
    run = _Run(_scenario(), lambda _: None)
    run._clock.call_at(at_s, lambda: run._devices[3].die(outage_s=0.2))
    result = run.run()
    assert result.deaths == 1
    assert [row["survivors"] for row in _committed(result)] == [_DEVICES] * 2
    assert not result.noticed
