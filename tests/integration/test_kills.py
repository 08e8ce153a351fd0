"""Real processes, real MQTT, real kills: what dies costs its own part and nothing else."""

import time
from pathlib import Path

import pytest

from tests.integration.fleet import RealFleet, real_fleet

pytestmark = pytest.mark.timeout(180)


def committed_rounds(fleet: RealFleet) -> list[int]:
    return [
        event["round"]
        for event in fleet.events
        if event["kind"] == "round" and event["outcome"] == "COMMITTED"
    ]


def attempts(fleet: RealFleet) -> list[int]:
    return [event["attempt"] for event in fleet.events if event["kind"] == "round"]


@pytest.mark.parametrize("phase", ["CHECK_IN", "SHARE_KEYS", "MASKED_INPUT", "UNMASKING"])
def test_a_gateway_killed_in_any_phase_keeps_model_and_ledger(tmp_path: Path, phase: str) -> None:
    with real_fleet(tmp_path, devices=4, rounds=3) as fleet:
        port = fleet.start()
        fleet.wait_for_commit(1)
        fleet.wait_for_phase(phase, 2)
        fleet.processes.gateway.kill()
        rows_before = fleet.ledger_rows()
        fleet.processes.start_gateway(port)
        resumed = fleet.wait_for(
            lambda event: event["kind"] == "round", "a word about the round that was open"
        )
        fleet.wait_for_end()
        rows = fleet.ledger_rows()
    if resumed["outcome"] == "ABORTED":
        # The kill was quicker than the round: it is named, and was retried under a new attempt.
        assert resumed["reason"] == "GATEWAY_RESTARTED"
        assert resumed["round"] == 2
    assert committed_rounds(fleet) == [1, 2, 3]
    assert attempts(fleet) == sorted(set(attempts(fleet))), "attempts are never used twice"
    assert rows[: len(rows_before)] == rows_before, "no row is lost"
    opened = [e["attempt"] for e in fleet.events if e["kind"] == "round" and e.get("charged")]
    charged = [row["attempt"] for row in rows]
    assert set(opened) <= set(charged), "every sum that was opened is charged"
    assert charged == sorted(set(charged)), "no attempt is charged twice"


def test_an_agent_killed_after_its_upload_answers_the_unmask_request_of_its_second_life(
    tmp_path: Path,
) -> None:
    """All four are needed for unmasking, so the round commits only if the restarted one answers."""
    with real_fleet(tmp_path, devices=4, rounds=2, limit_s=60) as fleet:
        fleet.start()
        fleet.wait_for_commit(1)
        fleet.wait_for_phase("MASKED_INPUT", 2)
        victim = fleet.processes.agents["d0"]
        uploaded = f"{fleet.log_of('d0')}".count("trained in")
        deadline_s = time.monotonic() + 20
        while fleet.log_of("d0").count("trained in") == uploaded and time.monotonic() < deadline_s:
            time.sleep(0.002)
        victim.kill()
        victim.start()
        report = fleet.wait_for_commit(2)
    assert report["survivors"] == 4
    assert report["unmasked"] == 4
    assert report["dropouts"] == []


def test_a_device_that_stays_dead_costs_only_its_own_update(tmp_path: Path) -> None:
    with real_fleet(tmp_path, devices=6, rounds=3) as fleet:
        fleet.start()
        fleet.wait_for_commit(1)
        fleet.processes.agents["d3"].kill()
        fleet.wait_for_end()
    assert committed_rounds(fleet) == [1, 2, 3]
    last = [event for event in fleet.events if event["kind"] == "round"][-1]
    assert last["survivors"] == 5
    assert [(drop["device"], drop["phase"]) for drop in last["dropouts"]] == [("d3", "CHECK_IN")]
