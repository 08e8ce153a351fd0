"""A gateway that moves: its devices follow it by its signed word, and remember where it is."""

from pathlib import Path

import pytest

from tests.integration.enrolled_fleet import SOURCES, EnrolledFleet
from tests.integration.real import free_port, wait_until


@pytest.mark.timeout(150)
def test_a_device_follows_its_gateway_and_finds_it_again_after_a_restart(tmp_path: Path) -> None:
    with EnrolledFleet(tmp_path / "fleet") as fleet:
        old, new = free_port(), free_port()
        fleet.use_free_ports()
        config = fleet.state / "gateway.toml"
        text = config.read_text().replace("mqtts_port = 0", f"mqtts_port = {old}")
        config.write_text(text)
        gateway = fleet.start_gateway()
        token = fleet.token("--preauthorised", "--gateway", f"mqtts://localhost:{old}")
        fleet.enrol_at_once("d0", token)
        agent = fleet.run_agent("d0", SOURCES[0])
        wait_until(lambda: "connected to" in agent.err, "the first connection")
        gateway.interrupt()
        gateway.wait()

        there = f"wss://localhost:{new}/mqtt"
        moved = text.replace("wss_port = 0", f"wss_port = {new}")
        config.write_text(f'moved_to = ["{there}"]\n{moved}')
        gateway = fleet.start_gateway()
        wait_until(lambda: f"connected to {there}" in agent.err, "it follows")
        assert f"the gateway has moved to {there}" in agent.err
        gateway.interrupt()
        gateway.wait()

        # At its new place it need not say so any more, and the old one is gone.
        config.write_text(moved.replace(f"mqtts_port = {old}", "mqtts_port = false"))
        fleet.start_gateway()
        wait_until(lambda: agent.err.count(f"connected to {there}") == 2, "it comes back there")
        agent.interrupt()
        agent.wait()
        again = fleet.run_agent("d0", SOURCES[0])
        wait_until(lambda: f"connected to {there}" in again.err, "it remembers")
        assert "refused" not in again.err
