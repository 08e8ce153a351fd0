"""A round in which not one device reports ends, is kept, and is shown as what it is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from broker.stopped_status import STATE_FILE
from edgefl.storage.sqlite import open_sqlite
from firmware_sim import gateway
from firmware_sim.battery import PowerProfile
from firmware_sim.fleet import run_scenario
from firmware_sim.spar_scenario import spar_scenario
from tests.command import Run, run  # noqa: F401 - a fixture

_DEVICES = 5
_NO_PANEL = PowerProfile(capacity_j=200.0, idle_w=0.01, training_w=2.5, charging_w=0.0)
_WEAK_SHARE = 0.003  # Enough to wait for a minute, too little for a training.


def test_nought_of_five_reported_is_an_outcome_that_is_kept(
    run: Run,  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every battery is empty before the first update is sent."""
    store = open_sqlite(tmp_path / STATE_FILE, namespace="gateway")
    monkeypatch.setattr(gateway, "MemoryStore", lambda *_, **__: store)
    scenario = replace(
        spar_scenario(
            devices=_DEVICES,
            rounds=1,
            seed=7,
            deaths_per_device_hour=0.0,
            loss=0.0,
            limit_s=10.0,
        ),
        power=_NO_PANEL,
        charge_share={f"board-{index:04d}": _WEAK_SHARE for index in range(_DEVICES)},
        longest_s=300.0,
    )
    result = run_scenario(scenario)
    store.close()
    assert (result.outcome, result.ledger_entries) == ("time", 0)

    line = run("rounds", "--state", tmp_path).out.splitlines()[-1]
    assert line.endswith("0 of 5 reported: BELOW_SURVIVOR_FLOOR in MASKED_INPUT")
    (row,) = json.loads(run("rounds", "--state", tmp_path, "--json").out)["rounds"]
    assert (row["reported"], row["asked"], row["survivors"]) == (0, 5, 0)
    assert (row["outcome"], row["reason"]) == ("ABORTED", "BELOW_SURVIVOR_FLOOR")
    assert row["drops"] == [{"phase": "MASKED_INPUT", "reason": "offline", "count": 5}]
    assert row["charged"] is False
