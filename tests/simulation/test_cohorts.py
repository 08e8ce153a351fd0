"""Cohorts smaller than the fleet: by coins and by the gateway's choice, in virtual time."""

from collections import Counter
from dataclasses import replace
from typing import Any, cast

import numpy as np

from edgefl.protocol.plan import SessionPlan
from edgefl.types import Update
from firmware_sim.fleet import GatewayDeath, Scenario, SimulationResult, run_scenario
from firmware_sim.spar_scenario import spar_scenario

_DEVICES = 20
_COHORT = 12
_FLOOR = 8
_LIMIT_S = 10.0


def _drift(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
    """Stand in for training: a small step."""
    del device, plan, bundle
    return np.full(len(parameters) // 4, 1e-3, dtype=np.float32)


def _scenario(selection: str, *, rounds: int, deaths: tuple[GatewayDeath, ...] = ()) -> Scenario:
    base = spar_scenario(
        devices=_DEVICES, rounds=rounds, seed=11, deaths_per_device_hour=0.0, limit_s=_LIMIT_S
    )
    task = replace(
        base.task, cohort=_COHORT, quorum=_FLOOR, survivor_floor=_FLOOR, selection=selection
    )
    return replace(base, task=task, train=_drift, gateway_deaths=deaths, longest_s=3600.0)


def _committed(result: SimulationResult) -> list[dict[str, Any]]:
    rows = cast("list[dict[str, Any]]", result.rounds)
    return [row for row in rows if row["outcome"] == "COMMITTED"]


def _check_in(row: dict[str, Any]) -> dict[str, Any]:
    return next(part for part in row["phases"] if part["phase"] == "CHECK_IN")


def test_coins_choose_the_cohort_and_nobody_is_turned_away() -> None:
    result = run_scenario(_scenario("coin", rounds=6))
    assert result.outcome == "done"
    rows = _committed(result)
    assert len(rows) == 6
    for row in rows:
        called = _check_in(row)
        # Whoever came is in the sum; whoever did not says nothing, and is no dropout.
        assert called["expected"] == _DEVICES
        assert row["survivors"] == called["arrived"]
        assert row["dropouts"] == []
        # Nobody knows who will still come, so the check-in is open to its end.
        assert called["duration_s"] >= _LIMIT_S
    assert len({row["survivors"] for row in rows}) > 1
    lost = [row for row in result.rounds if row["outcome"] == "ABORTED"]
    assert {row["reason"] for row in lost} <= {"TOO_FEW_CHECKED_IN", "TOO_MANY_CHECKED_IN"}


def test_rounds_by_coin_go_on_after_the_gateway_died() -> None:
    calm = run_scenario(_scenario("coin", rounds=3))
    kills = (GatewayDeath(at_s=24.0, outage_s=2.0),)
    killed = run_scenario(_scenario("coin", rounds=3, deaths=kills))
    assert killed.outcome == calm.outcome == "done"
    assert len(_committed(killed)) == 3


def test_the_gateway_calls_as_many_as_a_round_takes_and_all_in_turn() -> None:
    result = run_scenario(_scenario("gateway", rounds=10))
    assert result.outcome == "done"
    turns: Counter[str] = Counter()
    for row in _committed(result):
        assert _check_in(row)["expected"] == row["survivors"] == _COHORT
        turns.update(list(row["trained_on"]))
    # 120 turns for 20 devices.
    assert len(turns) == _DEVICES
    assert max(turns.values()) - min(turns.values()) <= 2
