"""Processes that stand still for a while and go on, as on a machine that swaps or was suspended."""

import os
import signal
import time
from pathlib import Path

from tests.integration.fleet import real_fleet

_STILL_S = 3.0
"""Longer than the grace of a device whose link is gone, 1 s: here every link stays."""


def stand_still(process_id: int) -> None:
    os.kill(process_id, signal.SIGSTOP)
    time.sleep(_STILL_S)
    os.kill(process_id, signal.SIGCONT)


def test_a_gateway_and_an_agent_that_stood_still_go_on_with_the_round(tmp_path: Path) -> None:
    with real_fleet(tmp_path, devices=4, rounds=3, limit_s=60) as fleet:
        fleet.start()
        first = fleet.wait_for_commit(1)
        fleet.wait_for_phase("SHARE_KEYS", 2)
        stand_still(fleet.processes.gateway.process.pid)
        second = fleet.wait_for_commit(2)
        fleet.wait_for_phase("SHARE_KEYS", 3)
        stand_still(fleet.processes.agents["d0"].process.pid)
        third = fleet.wait_for_commit(3)
    for report in (second, third):
        assert (report["survivors"], report["dropouts"]) == (4, [])
    attempts = [report["attempt"] for report in (first, second, third)]
    assert attempts == list(range(attempts[0], attempts[0] + 3)), "no attempt was lost"
