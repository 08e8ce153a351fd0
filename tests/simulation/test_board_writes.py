"""A board that loses power in any of its writes goes on: nothing is lost, or sent in two ways.

`pytest -m long tests/simulation/test_board_writes.py` cuts at every write; CI at some of them.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edgefl.privacy.accounting import RDP_ORDERS
from edgefl.protocol.plan import SessionPlan
from edgefl.storage.sqlite import open_sqlite
from edgefl.types import Update
from firmware_sim.fleet import Scenario, SimulationResult, run_scenario
from firmware_sim.spar_scenario import spar_scenario
from tests.simulation.dying_board import Board, Moment, board_dying_at

_DEVICES = 4
_STRIDE = 4
"""Of the writes that CI tries, which are others for each moment."""


def _drift(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
    """Stand in for training: a small step, another per board."""
    del plan, bundle
    return np.full(len(parameters) // 4, 1e-3 * (1 + int(device[-1])), dtype=np.float32)


@cache
def _scenario() -> Scenario:
    scenario = spar_scenario(
        devices=_DEVICES, rounds=2, seed=11, deaths_per_device_hour=0.0, limit_s=10.0
    )
    # A round waits for everybody: who is missing from it was lost.
    task = replace(scenario.task, quorum=_DEVICES)
    return replace(scenario, task=task, train=_drift, longest_s=600.0)


def _run(folder: Path, *cuts: tuple[int, Moment]) -> tuple[SimulationResult, Board]:
    victim = min(_scenario().examples)
    with board_dying_at(folder, victim, *cuts) as board:
        return run_scenario(_scenario()), board


def _spent(folder: Path) -> list[float]:
    store = open_sqlite(folder / "agent.sqlite", namespace="agent").namespace("spend")
    try:
        return list(json.loads(store.get("total-rdp") or b"[]"))
    finally:
        store.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[float], bytes]:
    """Return how often the board writes, what it has spent in the end, and the model."""
    folder = tmp_path_factory.mktemp("undisturbed") / "board"
    result, board = _run(folder)
    assert board.writes >= 2 * 7
    return board.writes, _spent(folder), result.parameters


def _require_nothing_lost(
    result: SimulationResult, board: Board, undisturbed: tuple[int, list[float], bytes]
) -> None:
    _, spent, _ = undisturbed
    assert board.deaths == 1
    assert result.outcome == "done"
    assert result.stopped == {}
    for row in result.rounds:
        # The check coordinates show that the sum holds each of them once.
        assert (row["outcome"], row["survivors"], row["dropouts"]) == ("COMMITTED", _DEVICES, [])
        assert row["sum_check_held"] is True
    assert sorted(result.accuracies) == [1, 2]
    assert len(board.masked) == 2
    for vectors in board.masked.values():
        assert len(vectors) == 1, "the same session, masked in two ways"
    assert len(spent) == len(RDP_ORDERS)
    assert _spent(board.folder) == spent, "each session is charged once"


def _points(writes: int, stride: int) -> Iterator[tuple[int, Moment]]:
    for offset, moment in enumerate(Moment):
        yield from ((number, moment) for number in range(1 + offset, writes + 1, stride))


def test_power_cuts_at_some_writes_lose_nothing(
    tmp_path: Path, undisturbed: tuple[int, list[float], bytes]
) -> None:
    for number, point in zip(itertools.count(), _points(undisturbed[0], _STRIDE)):
        result, board = _run(tmp_path / str(number), point)
        _require_nothing_lost(result, board, undisturbed)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_power_cuts_at_any_write_lose_nothing(
    tmp_path: Path, undisturbed: tuple[int, list[float], bytes]
) -> None:
    for number, point in zip(itertools.count(), _points(undisturbed[0], 1)):
        result, board = _run(tmp_path / str(number), point)
        _require_nothing_lost(result, board, undisturbed)
