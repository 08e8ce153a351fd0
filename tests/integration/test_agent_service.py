"""An agent as a board's service: power, sleeps, pauses, full and read-only disks, a wrong clock."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefl.cli.main import main
from tests.integration.real import LiveFleet, Process, agent_words, free_port, wait_until
from tests.unit.agent.power.boards import LAPTOP, make_tree

HURRIED = ("-P", Path(__file__).with_name("hurried_agent.py"))
_READ_ONLY = (
    "mount --bind / / && mount --bind {state} {state} && mount -o remount,ro,bind / && "
    'mount -o remount,rw,bind {state} && ! touch /etc/edgefl-test && exec "$@"'
)
_SMALL_DISK = 'mount -t tmpfs -o size=4m tmpfs {state} && exec "$@"'


class Board:
    """One device's process, and what its own status command says."""

    def __init__(self, fleet: LiveFleet, name: str, settings: str, **more: object) -> None:
        self.name = name
        self.state = fleet.folder / name
        self.state.mkdir()
        settings_file = fleet.folder / f"{name}.toml"
        settings_file.write_text(
            f'device = "{name}"\ngateway = "127.0.0.1:{fleet.port}"\ndata = "spar:1-left"\n'
            f"[power]\n{settings}\n"
        )
        within = str(more.pop("within", ""))
        if within:
            script = within.format(state=self.state)
            # Mounting takes root, or a user namespace in which this user is root.
            as_root = "-m" if os.getuid() == 0 else "-rm"
            more["within"] = ["unshare", as_root, "sh", "-c", script, "sh"]
        self.process = Process(
            fleet.folder / "output",
            *("agent", "run", "--state", self.state, "--config", settings_file),
            *("--max-epsilon", 10_000, "--backend", "onnx", "--provider", "cpu"),
            program=HURRIED,
            **more,
        )
        fleet.agents.append(self.process)

    @property
    def folder(self) -> Path:
        """Return the state folder as the process sees it."""
        return Path(f"/proc/{self.process.process_id}/root") / self.state.relative_to("/")

    def status(self) -> dict:
        for folder in (self.folder, self.state):  # the latter once the process is gone
            with contextlib.suppress(FileNotFoundError):
                return dict(json.loads((folder / "status.json").read_text()))
        return {}

    def wait_for(self, **wanted: object) -> None:
        wait_until(lambda: wanted.items() <= self.status().items(), f"{self.name}: {wanted}")


@contextlib.contextmanager
def service_manager(path: Path) -> Iterator[list[bytes]]:
    """Listen like systemd; give the list that messages come into."""
    messages: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))

        def listen() -> None:
            while message := manager.recv(1000):
                messages.append(message)

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield messages
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
                end.sendto(b"", str(path))
            thread.join()


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert os.statvfs(path.parent).f_bavail == 0


def offline_devices(fleet: LiveFleet) -> set[str]:
    return {event["device"] for event in fleet.events() if event["kind"] == "device-offline"}


@pytest.mark.timeout(240)
def test_boards_live_through_what_boards_live_through(tmp_path: Path) -> None:
    laptop = make_tree(tmp_path / "laptop", LAPTOP)
    with service_manager(tmp_path / "notify") as told, LiveFleet(tmp_path) as fleet:
        watched = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1500000"}
        read_only = Board(fleet, "d0", "", within=_READ_ONLY, environment=watched)
        small = Board(fleet, "d1", "least_free_disk_mib = 0", within=_SMALL_DISK)
        sleeper = Board(fleet, "d2", "sleep_s = 6")
        battery = Board(
            fleet, "d3", "allow_metered = true", environment={"EDGEFL_TEST_BOARD": str(laptop)}
        )
        boards = (read_only, small, sleeper, battery)
        for board in boards:
            board.wait_for(knows_gateway=True)
        battery.wait_for(declines_because=["on battery power"], level_percent=42)

        # Three of four take part; the fourth says that it is away, and nobody waits for it.
        fleet.submit("first", "--rounds", 1, "--selection", "gateway")
        fleet.wait_for_line("task first done: 1 rounds")
        (closed,) = [event for event in fleet.events() if event["kind"] == "round"]
        assert closed["outcome"] == "COMMITTED"
        for board in (read_only, small, sleeper):
            board.wait_for(last_round="round 1 COMMITTED, counted")
        assert battery.status()["last_round"] == ""
        assert not list(read_only.state.parent.glob("*.new-*"))

        # A paused board, one with a full disk: the next task waits until there are three again.
        assert main(["agent", "pause", "--state", str(read_only.state)]) == 0
        read_only.wait_for(declines_because=["paused by its owner"])
        filler = small.folder / "filler"
        fill(filler)
        fleet.submit("second", "--rounds", 1, "--selection", "gateway")
        (laptop / "sys/class/power_supply/AC/online").write_text("1\n")
        battery.wait_for(declines_because=[], supply="external")
        wait_until(lambda: "is full: rounds are declined" in small.process.err, "a full disk")
        assert small.process.is_running
        filler.unlink()
        assert main(["agent", "resume", "--state", str(read_only.state)]) == 0
        fleet.wait_for_line("task second done: 1 rounds")

        # Nobody who slept was taken for gone; whoever is idle sleeps, and comes back.
        wait_until(lambda: "asleep" in str(sleeper.status().get("link")), "a sleep")
        sleeper.wait_for(link="connected")
        assert "d2" not in offline_devices(fleet)
        assert not [board.name for board in boards if "Traceback" in board.process.err]
        for board in boards:
            board.process.stop()
    assert told[0] == b"READY=1"
    assert b"WATCHDOG=1" in told
    assert any(message.startswith(b"STATUS=connected; ") for message in told)
    assert told[-1] == b"STOPPING=1"
    stopped = read_only.status()
    assert stopped["link"] == "stopped"


def test_a_hanging_loop_gives_no_sign_of_life(tmp_path: Path) -> None:
    """The watchdog is fed by the loop that works, not by a timer beside it."""
    with service_manager(tmp_path / "notify") as told:
        agent = Process(
            tmp_path / "output",
            *agent_words(tmp_path / "state", free_port()),
            *("--backend", "onnx", "--provider", "cpu"),
            program=HURRIED,
            environment={
                "NOTIFY_SOCKET": str(tmp_path / "notify"),
                "WATCHDOG_USEC": "600000",
                "EDGEFL_TEST_HANGS_AFTER_S": "4",
            },
        )
        try:
            wait_until(lambda: "hangs now" in agent.err, "the hanging")
            assert b"WATCHDOG=1" in told
            time.sleep(0.5)
            told.clear()
            time.sleep(1.0)
            assert b"WATCHDOG=1" not in told
        finally:
            agent.kill()


@pytest.mark.long
def test_a_training_that_hangs_ends_the_signs_of_life(tmp_path: Path) -> None:
    with service_manager(tmp_path / "notify") as told, LiveFleet(tmp_path, devices=3) as fleet:
        environment = {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "600000",
            "EDGEFL_TEST_TRAINING_HANGS": "1",
        }
        board = Board(fleet, "d9", "", environment=environment)
        wait_until(lambda: b"WATCHDOG=1" in told, "signs of life")
        fleet.submit("first", "--rounds", 1, "--cohort", 4)
        wait_until(lambda: "training hangs now" in board.process.err, "the training")
        wait_until(lambda: "no sign of life" in board.process.err, "it is noticed")
        told.clear()
        time.sleep(1.0)
        assert b"WATCHDOG=1" not in told
        board.process.kill()


def test_a_clock_of_before_the_release_is_waited_for_and_nothing_is_trusted(
    tmp_path: Path,
) -> None:
    tls = "".join(f'{name} = "no.pem"\n' for name in ("ca_file", "certificate_file", "key_file"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        settings = tmp_path / "agent.toml"
        settings.write_text(
            'device = "d1"\ndata = "spar:1-left"\n'
            f'gateway = "mqtts://127.0.0.1:{server.getsockname()[1]}"\n[tls]\n{tls}'
        )
        agent = Process(
            tmp_path / "output",
            *("agent", "run", "--config", settings, "--state", tmp_path / "state"),
            *("--backend", "onnx", "--provider", "cpu"),
            program=HURRIED,
            environment={"EDGEFL_TEST_RELEASED_S": str(time.time() + 30 * 86_400)},
        )
        try:
            wait_until(lambda: "waiting for it to be set" in agent.err, "the notice")
            time.sleep(0.5)
            assert agent.is_running
            with pytest.raises(BlockingIOError):
                server.accept()
        finally:
            agent.stop()
    assert "certificates cannot be checked before" in agent.err
