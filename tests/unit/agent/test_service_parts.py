"""Clock, service manager, unit, status file, settings file: the parts of an agent as a service."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest

from edgefl.agent import clock
from edgefl.agent.config import AgentConfig, read_agent_config
from edgefl.agent.events import PhaseReached, RoundEnded
from edgefl.agent.power.readings import Readings
from edgefl.agent.reporter import Reporter
from edgefl.agent.service import ServiceManager
from edgefl.agent.status_file import AgentStatus, read_status, status_path, write_status
from edgefl.agent.unit import Unit
from edgefl.errors import ConfigError
from edgefl.protocol.reasons import AbortReason, Phase

STATUS = AgentStatus(device="d1", fleet="f", gateway="g", version="1", started_at_s=1.0)


# ---------------------------------------------------------------- clock


def test_a_clock_of_1970_is_waited_for_and_said(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 60.0, clock.RELEASED_S - 1, clock.RELEASED_S])
    signs: list[int] = []
    asyncio.run(clock.wait_until_set(lambda: next(times), lambda: signs.append(1), look_s=0.0))
    # Each look may read the clock a second time, for the message.
    assert len(signs) >= 1
    (line,) = caplog.messages
    assert "1970-01-01" in line
    assert "waiting for it to be set" in line
    assert next(times, None) is None


def test_a_clock_that_is_set_is_not_waited_for() -> None:
    asyncio.run(clock.wait_until_set(lambda: clock.RELEASED_S, lambda: None, look_s=1000.0))


def test_hours_are_known_only_with_a_clock() -> None:
    assert clock.minute_of_day(0.0) is None
    minute = clock.minute_of_day(clock.RELEASED_S + 90)
    assert minute is not None
    assert 0 <= minute < 1440
    assert minute % 1 == pytest.approx(0.5)


# ---------------------------------------------------------------- service manager


def test_the_manager_hears_each_word(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(5)
        service = ServiceManager(
            {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"}
        )
        assert service.heartbeat_s == 10
        service.ready()
        service.status("two\nlines")
        service.alive()
        service.stopping()
        assert [manager.recv(500) for _ in range(4)] == [
            b"READY=1", b"STATUS=two lines", b"WATCHDOG=1", b"STOPPING=1",
        ]  # fmt: skip


def test_a_manager_that_does_not_listen_holds_up_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(2000):
            service.alive()


def test_abstract_addresses_are_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"edgefl-test-{os.getpid()}"
        manager.bind(f"\0{name}")
        manager.settimeout(5)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    "environment",
    [
        {}, {"NOTIFY_SOCKET": "/no/such/socket"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)  # fmt: skip
def test_without_a_manager_nothing_happens(environment: dict[str, str]) -> None:
    service = ServiceManager(environment)
    service.ready()
    assert service.heartbeat_s is None


# ---------------------------------------------------------------- unit


def test_the_unit_is_sound_and_hardened(tmp_path: Path) -> None:
    recordings = Path("/home", "pi", "recordings")
    unit = Unit(
        name="edgefl-agent",
        command=["/usr/bin/env", "true", "--config", "/etc/a%b$c.toml"],
        readable=[recordings, Path("/srv/data")],
        groups=["i2c"],
    ).text()
    lines = unit.splitlines()
    assert "ExecStart=/usr/bin/env true --config /etc/a%%b$$c.toml" in lines
    assert "ProtectHome=tmpfs" in lines
    assert f"BindReadOnlyPaths=-{recordings}" in lines
    assert not any("/srv/data" in line for line in lines)  # no home: it is seen anyway
    assert "SupplementaryGroups=i2c" in lines
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.fail("systemd-analyze is not here; the set-up installs it")
    path = tmp_path / "edgefl-agent.service"
    path.write_text(unit)
    done = subprocess.run([program, "verify", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    words = [program, "security", "--offline=true", "--threshold=25", str(path)]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


def test_without_data_in_homes_no_home_is_seen() -> None:
    assert "ProtectHome=yes\n" in Unit(name="x", command=["/bin/true"]).text()


@pytest.mark.parametrize(
    "more",
    [
        {"command": ["/usr/my programs/python"]}, {"command": ["/bin/true", "a\nExecStartPre=/x"]},
        {"readable": [Path("/srv/a:b")]}, {"groups": ["i2c\nUser=root"]}, {"groups": [""]},
    ],
)  # fmt: skip
def test_words_that_systemd_would_read_otherwise_are_refused(more: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        Unit(**{"name": "x", "command": ["/bin/true"], **more})
    assert refused.value.code == "E-INSTALL-NAME"


# ---------------------------------------------------------------- status file


def test_status_tells_a_running_agent_from_one_that_is_gone(tmp_path: Path) -> None:
    path = status_path(tmp_path, {})
    assert read_status(path) is None
    write_status(path, STATUS)
    found = read_status(path)
    assert found is not None
    assert found["is_running"] is True
    assert found["device"] == "d1"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "process_start": "1"}))  # its number was used again
    found = read_status(path)
    assert found is not None
    assert found["is_running"] is False


@pytest.mark.parametrize("content", ["", "[]", "{", '{"process_id": "x"}', "\udcff"])
def test_a_strange_status_file_is_none_or_not_running(tmp_path: Path, content: str) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    found = read_status(path)
    assert found is None or found["is_running"] is False


def test_a_service_writes_it_to_memory(tmp_path: Path) -> None:
    path = status_path(Path("/var/lib/x"), {"RUNTIME_DIRECTORY": str(tmp_path)})
    assert path.parent == tmp_path


def test_a_status_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    write_status(tmp_path / "gone" / "status.json", STATUS)
    assert not (tmp_path / "gone").exists()


def test_the_status_is_written_when_it_changes_and_not_too_often(tmp_path: Path) -> None:
    now = [0.0]
    path = tmp_path / "status.json"
    reporter = Reporter(STATUS, path, ServiceManager({}), clock_s=lambda: now[0])
    reporter.write_if_due()
    path.unlink()
    reporter.write_if_due()
    assert reporter.due_in_s is None
    assert not path.exists()
    reporter.on_effect(PhaseReached(round_number=7, attempt=1, phase=Phase.SHARE_KEYS))
    assert reporter.due_in_s == 2
    reporter.write_if_due()
    assert not path.exists()
    now[0] = 2.0
    reporter.write_if_due()
    assert json.loads(path.read_text())["phase"] == "SHARE_KEYS"
    ended = RoundEnded(
        round_number=7, attempt=1, phase=Phase.COMMITTED, abort_reason=AbortReason.NONE,
        left=None, counted=True,
    )  # fmt: skip
    reporter.on_effect(ended)
    reporter.on_power(("on battery power",), Readings())
    reporter.write_now()
    content = json.loads(path.read_text())
    assert content["last_round"] == "round 7 COMMITTED, counted"
    assert content["phase"] is None
    assert content["declines_because"] == ["on battery power"]


# ---------------------------------------------------------------- settings file


def test_settings_are_read_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "sensor.toml").write_text("")
    path = tmp_path / "agent.toml"
    path.write_text(
        """
        device = "kitchen-1"
        gateway = "mqtts://a,mqtts://b"
        data = "sensor.toml"
        policy = "policy.toml"
        [tls]
        ca_file = "ca.pem"
        certificate_file = "d.pem"
        key_file = "/etc/d.pem"
        [power]
        on_battery = true
        """
    )
    config = read_agent_config(path, is_named=True)
    assert config.device == "kitchen-1"
    assert config.data == str(tmp_path / "sensor.toml")
    assert config.policy == tmp_path / "policy.toml"
    assert config.power.on_battery
    assert config.tls is not None
    assert config.tls.ca_file == tmp_path / "ca.pem"
    assert config.tls.key_file == Path("/etc/d.pem")


def test_names_of_shipped_data_are_no_paths(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('data = "spar:1-left"')
    assert read_agent_config(path, is_named=True).data == "spar:1-left"


def test_no_file_is_fine_unless_it_was_named(tmp_path: Path) -> None:
    assert read_agent_config(tmp_path / "agent.toml", is_named=False) == AgentConfig()
    with pytest.raises(ConfigError) as refused:
        read_agent_config(tmp_path / "agent.toml", is_named=True)
    assert refused.value.code == "E-AGENT-CONFIG"


@pytest.mark.parametrize(
    "text",
    [
        "devise = 'x'", "device = 3", "device = ''", "power = 3", "[power]\nsleep = 1", "[tls]",
        "[tls]\nca_file = 'a'", "x", 'device = "a\\u0000"', "\udcff",
    ],
)  # fmt: skip
def test_mistakes_in_settings_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as refused:
        read_agent_config(path, is_named=False)
    assert refused.value.code in ("E-AGENT-CONFIG", "E-POWER-POLICY")


def test_the_written_settings_file_can_be_read(tmp_path: Path) -> None:
    import argparse

    from edgefl.cli.agent_install import run_install

    words = {"device": "d1", "data": "spar:1-left", "gateway": None, "fleet": None}
    options = argparse.Namespace(root=tmp_path, readable=[], group=[], no_start=True, **words)
    assert run_install(options) == 0
    text = (tmp_path / "etc/edgefl/agent.toml").read_text()
    assert tomllib.loads(text) == {"device": "d1", "data": "spar:1-left", "power": {}}
