"""The experimental one-upload mode with real processes, real MQTT and real kills."""

from pathlib import Path

import pytest

from tests.integration.fleet import real_fleet

pytestmark = pytest.mark.timeout(120)


def test_killed_gateway_and_agent_go_on_with_the_deposits_they_kept(tmp_path: Path) -> None:
    with real_fleet(tmp_path, devices=4, rounds=4, mode="one-upload") as fleet:
        port = fleet.start()
        fleet.wait_for_commit(1)
        fleet.wait_for_phase("MASKED_INPUT", 2)
        victim = fleet.processes.agents["d0"]
        victim.kill()
        victim.start()
        fleet.wait_for_phase("MASKED_INPUT", 3)
        fleet.processes.gateway.kill()
        fleet.processes.start_gateway(port)
        ended = fleet.wait_for_end()
        rows = fleet.ledger_rows()
        logs = [fleet.log_of(device) for device in fleet.processes.agents]
    assert ended["outcome"] == "done"
    rounds = [event for event in fleet.events if event["kind"] == "round"]
    committed = [event for event in rounds if event["outcome"] == "COMMITTED"]
    assert [event["round"] for event in committed] == [1, 2, 3, 4]
    # The floor of four is all four: the killed ones had a part in every later sum.
    assert {event["survivors"] for event in committed} == {fleet.spec.survivor_floor} == {4}
    assert all(event["sum_check_held"] for event in committed)
    phases = {event["phase"] for event in fleet.events if event["kind"] == "phase"}
    assert phases == {"MASKED_INPUT", "CERTIFICATE", "UNMASKING"}
    charged = [row["attempt"] for row in rows]
    assert {event["attempt"] for event in committed} <= set(charged)
    assert charged == sorted(set(charged))
    assert not [log for log in logs if "E-KEY-INDEX-USED" in log or "Traceback" in log]
