"""Real processes, real MQTT, real kills: what dies costs its own part and nothing else."""

import random
import time
from pathlib import Path

import pytest

from edgefl.demo.record import Event
from tests.integration.fleet import RealFleet, real_fleet

pytestmark = pytest.mark.timeout(180)


def committed_rounds(fleet: RealFleet) -> list[int]:
    return [event["round"] for event in fleet.events if is_commit(event)]


def attempts(fleet: RealFleet) -> list[int]:
    return [event["attempt"] for event in fleet.events if event["kind"] == "round"]


PHASES = ("CHECK_IN", "SHARE_KEYS", "MASKED_INPUT", "UNMASKING")


def kill_gateway(fleet: RealFleet, kills: int, rng: random.Random) -> int:
    """Kill it so often, a moment after some phase begins, and return how many rounds it resumed.

    The rounds go on while this process waits for its turn, so their number is not foretold.
    """
    port = fleet.start()
    fleet.wait_for_commit(1)
    for number in range(kills):
        phase = PHASES[number % len(PHASES)]
        fleet.wait_for(
            lambda event, phase=phase: event["kind"] == "phase" and event["phase"] == phase,
            f"the next {phase}",
        )
        time.sleep(rng.random() * 0.2)
        rows_before = fleet.ledger_rows()
        fleet.processes.gateway.kill()
        fleet.processes.start_gateway(port)
        fleet.wait_for(lambda event: event["kind"] == "task", "the gateway found its task")
        assert fleet.ledger_rows()[: len(rows_before)] == rows_before, "no row is lost"
    fleet.wait_for(is_commit, "a round after the last kill")
    fleet.processes.stop()
    return sum(event["kind"] == "resumed" for event in fleet.events)


def is_commit(event: Event) -> bool:
    return event["kind"] == "round" and event["outcome"] == "COMMITTED"


def require_nothing_lost(fleet: RealFleet) -> None:
    closed = [event for event in fleet.events if event["kind"] == "round"]
    # The line about a round may die with the gateway that would have said it; its model does not.
    assert {event["outcome"] for event in closed} == {"COMMITTED"}
    assert all(event["sum_check_held"] and event["survivors"] == 4 for event in closed)
    assert attempts(fleet) == sorted(set(attempts(fleet))), "no attempt is used twice"
    rows = fleet.ledger_rows()
    assert len(rows) >= closed[-1]["round"]
    in_order = list(range(1, len(rows) + 1))
    assert [row["round"] for row in rows] == in_order, "each sum is charged once"
    assert [row["attempt"] for row in rows] == in_order, "no attempt was lost"


def test_a_gateway_killed_again_and_again_goes_on_with_every_round(tmp_path: Path) -> None:
    with real_fleet(tmp_path, devices=4, rounds=30, limit_s=60) as fleet:
        resumed = kill_gateway(fleet, 5, random.Random(1))
    require_nothing_lost(fleet)
    assert resumed >= 1, "a kill may come between two rounds, but not always"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_of_a_gateway_lose_nothing(tmp_path: Path, seed: int) -> None:
    with real_fleet(tmp_path, devices=4, rounds=60, limit_s=60) as fleet:
        kill_gateway(fleet, 12, random.Random(seed))
    require_nothing_lost(fleet)


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
