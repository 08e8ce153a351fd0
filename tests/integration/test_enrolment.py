"""From `gateway init` to a round and out again: enrolled boards over TLS, with real processes."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration import brokers
from tests.integration.enrolled_fleet import SOURCES, EnrolledFleet
from tests.integration.real import wait_until

_KEY = re.compile(r"key ([0-9a-f]{4}(?:-[0-9a-f]{4}){4})")


@contextmanager
def started(folder: Path, kind: str) -> Iterator[tuple[EnrolledFleet, list[object]]]:
    """Give a fleet whose gateway runs, and what a new token needs to find it."""
    with EnrolledFleet(folder / "fleet") as fleet:
        if kind == "endpoint":
            fleet.use_free_ports()
            fleet.start_gateway()
            yield fleet, []
            return
        place = folder / "broker"
        place.mkdir()
        with brokers.mosquitto(place, state=fleet.state) as broker:
            url = broker.urls
            fleet.start_gateway("--broker", url, "--accept-finding", "E-BROKER-QUEUE")
            yield fleet, ["--gateway", url]


@pytest.mark.parametrize("kind", ["endpoint", pytest.param("mosquitto", marks=pytest.mark.long)])
def test_boards_enrol_take_part_and_are_put_out(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path, kind) as (fleet, address):
        devices = [f"d{index}" for index in range(4)]
        token = fleet.token("--uses", 4, *address)
        asking = {device: fleet.enrol(device, "--token", token) for device in devices}
        for device, process in asking.items():
            seen = fleet.wait_for_state(device, "pending")
            shown = _KEY.search(process.out)
            assert shown is not None
            assert shown[1] == seen["fingerprint"]
            state = ["--state", fleet.state]
            assert fleet.run("devices", "accept", device, "--fingerprint", shown[1], *state) == 0
        for process in asking.values():
            ended = process.wait()
            assert ended.code == 0, ended.err
            assert "accepted: " in ended.out
        agents = {
            device: fleet.run_agent(device, source)
            for device, source in zip(devices, SOURCES, strict=True)
        }
        fleet.submit("first", "--cohort", 4)
        done = fleet.wait_for_round("first")
        assert (done["outcome"], done["survivors"]) == ("COMMITTED", 4)
        put_out(fleet, agents["d1"])
        fleet.submit("second", "--cohort", 3)
        done = fleet.wait_for_round("second")
        assert (done["outcome"], done["survivors"]) == ("COMMITTED", 3)
        assert agents["d0"].is_running
        capsys.readouterr()


def put_out(fleet: EnrolledFleet, agent: object) -> None:
    """Revoke d1: its running agent is cut off and told so, and cannot come back."""
    assert fleet.run("devices", "revoke", "d1", "--state", fleet.state) == 0
    fleet.wait_for_state("d1", "revoked")
    ended = agent.wait()
    assert ended.code != 0
    assert "revoked" in ended.err
    again = fleet.run_agent("d1", SOURCES[1], "--wait-s", 5).wait()
    assert again.code != 0


@pytest.mark.long  # Beside the quick one of test_endpoint_certificates.py, with real agents.
def test_a_copy_of_a_boards_folder_is_stopped_and_named_on_both_sides(tmp_path: Path) -> None:
    with started(tmp_path, "endpoint") as (fleet, _):
        token = fleet.token("--preauthorised")
        fleet.enrol_at_once("d0", token)
        shutil.copytree(fleet.state_of("d0"), fleet.state_of("copy"))
        boards = [fleet.run_agent(name, SOURCES[0]) for name in ("d0", "copy")]
        wait_until(lambda: not all(board.is_running for board in boards), "one is stopped")
        (stopped,) = [board for board in boards if not board.is_running]
        assert "E-DEVICE-TWICE" in stopped.wait().err
        said = fleet.wait_for(
            lambda event: "two clients with one identity" in str(event.get("detail")), "named"
        )
        assert said["identity"] == "d0"
        assert any(board.is_running for board in boards)


def test_a_running_board_follows_its_gateway_to_another_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path, "endpoint") as (fleet, _):
        token = fleet.token("--preauthorised", "--uses", 2)
        for device in ("d0", "d1"):
            fleet.enrol_at_once(device, token)
        certificate = fleet.state_of("d0") / "tls" / "device.pem"
        before = certificate.read_bytes()
        agent = fleet.run_agent("d0", SOURCES[0])
        fleet.wait_for(lambda event: event["kind"] == "device-new", "d0 is there")
        state = ("--state", fleet.state)
        assert fleet.run("gateway", "ca", "rotate", *state) == 0
        wait_until(lambda: certificate.read_bytes() != before, "a certificate of the new authority")
        # d1 was not heard since.
        assert fleet.run("gateway", "ca", "finish", *state) == 2
        assert "1 devices have not been heard" in capsys.readouterr().err
        second = fleet.run_agent("d1", SOURCES[1])
        wait_until(lambda: fleet.run("gateway", "ca", "finish", *state) == 0, "d1 follows")
        assert agent.is_running
        second.interrupt()
        second.wait()
        # A connection with the new certificate, to a gateway that shows one of the new authority.
        again = fleet.run_agent("d1", SOURCES[1])
        wait_until(lambda: "connected to" in again.err, "d1 is back")
