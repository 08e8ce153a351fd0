"""What a fleet does when boards, batteries, links and the gateway fail, in virtual time."""

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from edgefl.errors import DataError
from edgefl.protocol.plan import SessionPlan
from edgefl.protocol.reasons import AdversaryClass, phases_of
from edgefl.training.bundle import read_bundle
from edgefl.types import Update
from firmware_sim.battery import PowerProfile
from firmware_sim.fleet import GatewayDeath, Scenario, SimulationResult, run_scenario
from firmware_sim.spar_scenario import spar_scenario

_DEVICES = 10
_PHASES = phases_of(AdversaryClass.HONEST_BUT_CURIOUS)
_FLOOR = 7  # of ten: the task's default, five eighths
_NO_PANEL = PowerProfile(capacity_j=200.0, idle_w=0.01, training_w=2.5, charging_w=0.0)
_WEAK_SHARE = 0.003  # 0.6 J: a minute of waiting, but less than the shortest training, 1.06 J


@cache
def _scenario(*, rounds: int = 1, loss: float = 0.0, limit_s: float = 10.0) -> Scenario:
    return spar_scenario(
        devices=_DEVICES,
        rounds=rounds,
        seed=7,
        deaths_per_device_hour=0.0,
        loss=loss,
        limit_s=limit_s,
    )


def _drift(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
    """Stand in for training where the model does not matter: a small step, another per board."""
    del plan, bundle
    return np.full(len(parameters) // 4, 1e-3 * (1 + int(device[-1])), dtype=np.float32)


@cache
def _middle_of_first(phase: str) -> float:
    """Return a moment in a phase of the first round, from a run that nothing disturbs."""
    result = run_scenario(replace(_scenario(), train=_drift))
    phases = cast("list[dict[str, Any]]", result.rounds[0]["phases"])
    at_s = result.virtual_s
    for row in reversed(phases):
        at_s -= row["duration_s"]
        if row["phase"] == phase:
            return at_s + row["duration_s"] / 2
    raise AssertionError(phase)


def _initial(scenario: Scenario) -> bytes:
    return read_bundle(scenario.bundle).initial_params.astype("<f4").tobytes()


def _drops(result: SimulationResult) -> Counter[tuple[str, str]]:
    return Counter(
        (drop["phase"], drop["reason"])
        for row in result.rounds
        for drop in row.get("dropouts", [])  # type: ignore[union-attr]
    )


def test_a_healthy_fleet_loses_nobody() -> None:
    result = run_scenario(_scenario(rounds=2))
    assert result.outcome == "done"
    assert [row["survivors"] for row in result.rounds] == [_DEVICES, _DEVICES]
    assert all(row["sum_check_held"] for row in result.rounds)
    assert not _drops(result)
    assert sorted(result.accuracies) == [1, 2]


def test_empty_batteries_end_boards_in_mid_round_and_the_sum_is_right() -> None:
    scenario = _scenario()
    weak = {f"board-{index:04d}": _WEAK_SHARE for index in range(_DEVICES - _FLOOR)}
    result = run_scenario(replace(scenario, power=_NO_PANEL, charge_share=weak))
    assert result.outcome == "done"
    assert result.rounds[0]["survivors"] == _FLOOR
    assert result.rounds[0]["sum_check_held"] is True
    assert result.empty_battery_deaths == len(weak) == result.deaths
    assert _drops(result) == {("MASKED_INPUT", "offline"): len(weak)}


def test_recharged_boards_come_back_for_a_later_round() -> None:
    scenario = _scenario(rounds=4)
    power = PowerProfile(
        capacity_j=100.0, idle_w=0.5, training_w=10.0, charging_w=1.5, restart_j=12.0
    )
    weak = {"board-0003": 0.01}
    result = run_scenario(replace(scenario, train=_drift, power=power, charge_share=weak))
    survivors = [row["survivors"] for row in result.rounds]
    assert survivors[0] == _DEVICES - 1
    assert _DEVICES in survivors[1:]
    assert result.empty_battery_deaths >= 1


def test_nine_dead_boards_of_ten_abort_the_round_and_leave_the_model() -> None:
    scenario = _scenario()
    dying = {f"board-{index:04d}": _WEAK_SHARE for index in range(9)}
    result = run_scenario(
        replace(
            scenario,
            power=_NO_PANEL,
            charge_share=dying,
            longest_s=300.0,
        )
    )
    assert result.outcome == "time"
    assert [(row["outcome"], row["reason"]) for row in result.rounds] == [
        ("ABORTED", "BELOW_SURVIVOR_FLOOR")
    ]
    assert _drops(result) == {("MASKED_INPUT", "offline"): 9}
    assert result.parameters == _initial(scenario)
    assert result.ledger_entries == 0
    assert not result.accuracies


def test_rounds_commit_although_every_fifth_transmission_is_lost() -> None:
    scenario = _scenario(rounds=2, loss=0.2, limit_s=40.0)
    result = run_scenario(replace(scenario, train=_drift))
    assert result.outcome == "done"
    assert sorted(result.accuracies) == [1, 2]
    assert result.transmissions_lost > 50
    committed = [row for row in result.rounds if row["outcome"] == "COMMITTED"]
    assert all(row["sum_check_held"] for row in committed)
    assert all(row["survivors"] >= _FLOOR for row in committed)  # type: ignore[operator]


@pytest.mark.parametrize(
    "phase", [phase.name for phase in phases_of(AdversaryClass.HONEST_BUT_CURIOUS)]
)
def test_a_killed_gateway_goes_on_with_the_open_round(phase: str) -> None:
    scenario = replace(_scenario(rounds=2), train=_drift)
    death = GatewayDeath(at_s=_middle_of_first(phase), outage_s=1.5)
    undisturbed = run_scenario(scenario)
    result = run_scenario(replace(scenario, gateway_deaths=(death,)))
    assert result.outcome == "done"
    assert [(row["round"], row["attempt"], row["outcome"]) for row in result.rounds] == [
        (1, 1, "COMMITTED"),
        (2, 2, "COMMITTED"),
    ]
    assert [row["survivors"] for row in result.rounds] == [_DEVICES, _DEVICES]
    assert all(row["sum_check_held"] for row in result.rounds)
    assert result.parameters == undisturbed.parameters
    assert result.ledger_entries == 2
    assert sorted(result.accuracies) == [1, 2]


def test_devices_that_refuse_the_plan_end_the_task_and_no_loop() -> None:
    scenario = replace(_scenario(), max_epsilon=1.0)
    result = run_scenario(scenario)
    assert result.outcome == "failed"
    assert len(result.rounds) == scenario.task.max_attempts
    assert {row["reason"] for row in result.rounds} == {"TOO_FEW_SHARED_KEYS"}
    assert set(_drops(result)) == {("SHARE_KEYS", "left")}
    assert sum(result.noticed.values()) == _DEVICES * scenario.task.max_attempts
    assert result.parameters == _initial(scenario)
    assert result.ledger_entries == 0


def test_one_empty_device_of_ten_does_not_harm_the_round() -> None:
    scenario = _scenario()

    def train(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
        if device == "board-0004":
            raise DataError("E-DATA-EMPTY", "1 example or more", "none")
        return scenario.train(device, plan, bundle, parameters)

    examples = {**scenario.examples, "board-0004": 0}
    result = run_scenario(replace(scenario, train=train, examples=examples))
    assert result.outcome == "done"
    # It sends zero with its full noise, so that taking part tells nothing about its data.
    assert result.rounds[0]["survivors"] == _DEVICES
    assert result.rounds[0]["sum_check_held"] is True
    assert result.noticed == {"E-DATA-EMPTY": 1}


def test_an_update_that_is_not_finite_never_reaches_the_sum() -> None:
    scenario = _scenario()

    def train(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
        update = scenario.train(device, plan, bundle, parameters)
        return np.full_like(update, np.nan) if device == "board-0000" else update

    result = run_scenario(replace(scenario, train=train))
    assert result.outcome == "done"
    assert result.rounds[0]["sum_check_held"] is True
    assert result.noticed == {"E-UPDATE-NOT-FINITE": 1}
    assert np.isfinite(np.frombuffer(result.parameters, dtype="<f4")).all()


def test_a_spent_budget_ends_the_task_and_keeps_the_model() -> None:
    # A kill after the charge wastes none of it: the row is found, and nothing is charged twice.
    scenario = replace(_scenario(rounds=2), train=_drift)
    epsilon = scenario.task.privacy_plan(1911).epsilon_after(1)
    result = run_scenario(
        replace(
            scenario,
            task=replace(scenario.task, epsilon_budget=epsilon),
            gateway_deaths=(GatewayDeath(at_s=_middle_of_first("UNMASKING"), outage_s=1.0),),
        )
    )
    assert [(row["round"], row["outcome"]) for row in result.rounds] == [(1, "COMMITTED")]
    assert result.outcome == "budget"
    assert result.ledger_entries == 1
    assert sorted(result.accuracies) == [1]
    assert result.parameters != _initial(scenario)
