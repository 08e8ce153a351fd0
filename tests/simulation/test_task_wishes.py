"""What an operator wants of a task: paused tasks open no round, cancelled ones end by name."""

from dataclasses import replace

import numpy as np
import pytest

from broker.events import Reported, TaskWished
from broker.task_wishes import TaskWish
from edgefl.protocol.plan import SessionPlan
from edgefl.types import Update
from firmware_sim.fleet import SimulationResult, _Run
from firmware_sim.spar_scenario import spar_scenario

_QUIET_S = 300.0


def _drift(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
    del plan, bundle
    return np.full(len(parameters) // 4, 1e-3 * (1 + int(device[-1])), dtype=np.float32)


class _Played:
    """A fleet of six boards and two rounds, whose operator speaks when something is reported."""

    def __init__(self) -> None:
        scenario = spar_scenario(
            devices=6, rounds=2, seed=3, deaths_per_device_hour=0.0, loss=0.0, limit_s=10.0
        )
        scenario = replace(scenario, train=_drift, longest_s=2 * _QUIET_S)
        self.task = scenario.task.name
        self.reports: list[tuple[float, Reported]] = []
        self._orders: dict[str, TaskWish] = {}
        self.run_ = _Run(scenario, self._take)

    def when(self, phase: str, wish: TaskWish) -> None:
        self._orders[phase] = wish

    def later(self, at_s: float, wish: TaskWish) -> None:
        event = TaskWished(task=self.task, wish=wish)
        self.run_._clock.call_at(at_s, lambda: self.run_._gateway.feed(event))

    def play(self) -> SimulationResult:
        return self.run_.run()

    def kinds(self, kind: str) -> list[tuple[float, dict]]:
        return [(at_s, one.fields) for at_s, one in self.reports if one.kind == kind]

    def _take(self, report: Reported) -> None:
        clock = self.run_._clock
        self.reports.append((clock.now_s, report))
        if report.kind == "phase":
            wish = self._orders.pop(str(report.fields["phase"]), None)
            if wish is not None:
                event = TaskWished(task=self.task, wish=wish)
                clock.call_after(0.0, lambda: self.run_._gateway.feed(event))


def test_a_paused_task_ends_its_round_and_opens_none_until_it_is_resumed() -> None:
    played = _Played()
    played.when("SHARE_KEYS", TaskWish.PAUSE)
    played.later(_QUIET_S, TaskWish.RUN)
    result = played.play()
    assert result.outcome == "done"
    (first_s, first), (second_s, second) = played.kinds("round")
    assert first["outcome"] == second["outcome"] == "COMMITTED"
    assert first_s < _QUIET_S < second_s
    opened = [at_s for at_s, fields in played.kinds("phase") if fields["phase"] == "CHECK_IN"]
    assert opened[0] < first_s
    assert opened[1] >= _QUIET_S
    assert [fields["wish"] for _, fields in played.kinds("task-wish")] == ["pause", "run"]


def test_a_task_that_is_paused_from_the_start_lets_the_gateway_rest() -> None:
    played = _Played()
    played.later(0.0, TaskWish.PAUSE)
    result = played.play()
    assert result.outcome == "time"
    assert played.kinds("phase") == []
    core = played.run_._gateway._core
    assert core is not None
    assert core.is_paused(played.task)
    assert core.wakeup_s is None or core.wakeup_s > result.virtual_s


@pytest.mark.parametrize("phase", ["CHECK_IN", "SHARE_KEYS", "MASKED_INPUT", "UNMASKING"])
def test_a_cancelled_task_ends_in_every_phase(phase: str) -> None:
    played = _Played()
    played.when(phase, TaskWish.CANCEL)
    result = played.play()
    assert result.outcome == "cancelled"
    (closed,) = [fields for _, fields in played.kinds("round")]
    assert (closed["outcome"], closed["reason"]) == ("ABORTED", "CANCELLED")
    # Shares may have left the devices: what was charged stays charged.
    assert result.ledger_entries == (1 if phase == "UNMASKING" else 0)
    (ended,) = [fields for _, fields in played.kinds("task-ended")]
    assert ended["outcome"] == "cancelled"


def test_a_task_that_was_cancelled_before_it_is_known_ends_at_once() -> None:
    played = _Played()
    played.later(0.0, TaskWish.CANCEL)
    result = played.play()
    assert result.outcome == "cancelled"
    assert played.kinds("round") == []
