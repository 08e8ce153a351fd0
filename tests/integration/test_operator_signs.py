"""An enrolment key that is elsewhere, over TLS: `gateway init --enrolment-key`, `roster sign`."""

import json
from pathlib import Path

import pytest

from edgefl.cli.main import main
from edgefl.storage.enrolment import read_leaving, read_roster
from tests.integration.enrolled_fleet import SOURCES, EnrolledFleet
from tests.integration.real import wait_until

DEVICES = [f"d{index}" for index in range(3)]


class Operator:
    """Somebody with the enrolment key, on a machine of his own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder.mkdir()
        self.folder = folder
        capsys.readouterr()
        assert main(["roster", "init", "--key", str(folder / "enrolment.key"), "--json"]) == 0
        self.key = str(json.loads(capsys.readouterr().out)["public_key"])
        self.count = 0

    def sign(self, gateway: Path) -> None:
        """Sign what the gateway asks for, and bring the roster to it."""
        self.count += 1
        roster = self.folder / f"roster-{self.count}.cbor"
        words = ["roster", "sign", gateway / "roster-request.json", "-o", roster]
        words += ["--key", self.folder / "enrolment.key", "--fleet", "test"]
        if self.count > 1:
            words += ["--previous", self.folder / f"roster-{self.count - 1}.cbor"]
        assert main([str(word) for word in words]) == 0
        (gateway / "roster.new").write_bytes(roster.read_bytes())
        (gateway / "roster.new").rename(gateway / "roster.cbor")


@pytest.mark.timeout(180)
def test_accepted_boards_take_part_once_the_operator_has_signed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator(tmp_path / "operator", capsys)
    with EnrolledFleet(tmp_path / "fleet", "--enrolment-key", operator.key) as fleet:
        fleet.use_free_ports()
        # What is lost of the files beside the authority is made again at the start.
        for name in ("trusted.crt", "server.pem"):
            (fleet.state / "tls" / name).unlink()
        fleet.start_gateway()
        token = fleet.token("--preauthorised", "--uses", len(DEVICES))
        for device in DEVICES:
            fleet.enrol_at_once(device, token)  # quickly: the gateway may not have seen the token
        boards = {
            device: fleet.run_agent(device, source)
            for device, source in zip(DEVICES, SOURCES, strict=False)
        }
        fleet.submit("strict", "--cohort", 3, "--adversary", "malicious")
        request = fleet.state / "roster-request.json"
        wait_until(request.exists, "the gateway asks for a roster")
        wait_until(lambda: len(json.loads(request.read_text())) == 3, "all boards wait")
        # Accepted, connected, and yet no member: that takes the operator's signature.
        assert not [event for event in fleet.events() if event["kind"] in {"phase", "key-epoch"}]
        operator.sign(fleet.state)
        done = fleet.wait_for_round("strict")
        assert (done["outcome"], done["survivors"]) == ("COMMITTED", 3)
        (epoch,) = [event for event in fleet.events() if event["kind"] == "key-epoch"]
        assert (epoch["members"], epoch["trust"]) == (3, "roster signed by an operator")
        assert fleet.run("devices", "revoke", "d2", "--state", fleet.state) == 0
        assert "revoked" in boards["d2"].wait().err
        wait_until(lambda: read_leaving(request) == ("d2",), "d2 is to be taken out")
        operator.sign(fleet.state)
        roster = read_roster(operator.folder / "roster-2.cbor")
        assert [entry.device for entry in roster.entries] == ["d0", "d1"]
        assert all(boards[device].is_running for device in ("d0", "d1"))
