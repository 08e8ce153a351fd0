"""The board's guard: pauses, battery and training; and a link that rests between transports."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgefl.agent.clock import RELEASED_S
from edgefl.agent.guard import PAUSE_FILE, PowerGuard
from edgefl.agent.link import AgentLink
from edgefl.agent.power.policy import PowerPolicy
from edgefl.agent.power.sensors import Sensors, SensorSettings
from edgefl.protocol.presence import PowerBucket, Presence, PresenceKind
from edgefl.storage.memory import MemoryStore
from edgefl.transport.base import LinkDown, LinkDownReason, LinkUp, TransportEvent
from tests.unit.agent.power.boards import LAPTOP, make_tree


class Board:
    def __init__(self, folder: Path, policy: PowerPolicy | None) -> None:
        self.root = make_tree(folder, LAPTOP)
        self.now_s = 0.0
        self.guard = PowerGuard(
            policy=policy,
            sensors=Sensors(folder, SensorSettings(), root=folder, pisugar=()),
            store=MemoryStore("power"),
            state_dir=folder,
            clock_s=lambda: self.now_s,
            wall_clock_s=lambda: RELEASED_S,
        )

    def set_level(self, percent: int, status: str = "Discharging") -> None:
        (self.root / "sys/class/power_supply/BAT1/capacity").write_text(str(percent))
        (self.root / "sys/class/power_supply/BAT1/status").write_text(status)
        self.now_s += 60


def test_what_is_told_and_why_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    board = Board(tmp_path, PowerPolicy())
    away = Presence(kind=PresenceKind.ONLINE, is_available=False, bucket=PowerBucket.MIDDLE)
    assert board.guard.presence() == away
    assert board.guard.presence(sleeps_s=60).wakes_in_s == 60
    board.set_level(42, "Charging")
    assert board.guard.presence().is_available
    assert caplog.messages == [
        "rounds are declined: on battery power",
        "this device takes part in rounds again",
    ]


def test_a_pause_holds_without_conditions_too(tmp_path: Path) -> None:
    board = Board(tmp_path, None)
    assert board.guard.verdict().is_eligible
    (tmp_path / PAUSE_FILE).touch()
    assert str(board.guard.verdict()) == "paused by its owner"
    (tmp_path / PAUSE_FILE).unlink()
    assert board.guard.verdict().is_eligible


def test_training_is_spared_only_where_the_battery_would_not_outlive_it(tmp_path: Path) -> None:
    board = Board(tmp_path, PowerPolicy(on_battery=True))
    board.guard.round_begins()
    board.set_level(12)
    assert not board.guard.must_spare_training()  # it does not begin rounds, but ends this one
    assert not board.guard.verdict().is_eligible
    board.guard.round_ends()  # thirty percent for a round
    assert board.guard.must_spare_training()
    board.set_level(12, "Charging")
    assert not board.guard.must_spare_training()
    lavish = Board(tmp_path, None)
    lavish.set_level(1)
    assert not lavish.guard.must_spare_training()


# ---------------------------------------------------------------- link


class FakeTransport:
    """Is up until it is closed."""

    max_packet_bytes = 1000

    def __init__(self, log: list[object]) -> None:
        self._log = log
        self._closed = asyncio.Event()

    async def start(self) -> None:
        self._log.append("start")

    async def subscribe(self, *filters: str) -> None:
        self._log.append(filters)

    async def events(self) -> AsyncIterator[TransportEvent]:
        yield LinkUp(session_present=True)
        await self._closed.wait()
        yield LinkDown(reason=LinkDownReason.CLOSED)

    async def publish(self, topic: str, payload: bytes, *, retain: bool, **_: object) -> None:
        self._log.append((topic, payload, retain))

    async def close(self) -> None:
        self._log.append("close")
        self._closed.set()


def test_a_link_rests_between_two_transports() -> None:
    log: list[object] = []

    async def live() -> float:
        link = AgentLink(
            make_transport=lambda: FakeTransport(log), filters=["a", "b"], status_topic="st"
        )
        await link.publish("t", b"lost", retain=False, expiry_s=None)
        assert link.max_packet_bytes is None
        ups: list[float] = []
        async for event in link.events():
            if isinstance(event, LinkUp):
                ups.append(asyncio.get_running_loop().time())
                await link.publish("t", b"heard", retain=False, expiry_s=None)
                if len(ups) == 1:
                    await link.sleep(0.2, b"sleeping 1")
                else:
                    await link.close(b"offline")
        return ups[1] - ups[0]

    assert asyncio.run(live()) >= 0.2
    life = [("a", "b"), "start", ("t", b"heard", False)]
    assert log == [
        *life, ("st", b"sleeping 1", True), "close", *life, ("st", b"offline", True), "close",
    ]  # fmt: skip


def test_a_link_that_is_closed_while_it_rests_does_not_come_back() -> None:
    log: list[object] = []

    async def live() -> None:
        link = AgentLink(make_transport=lambda: FakeTransport(log), filters=[], status_topic="st")

        async def read() -> None:
            async for event in link.events():
                if isinstance(event, LinkUp):
                    await link.sleep(0.2, b"sleeping 1")

        reader = asyncio.create_task(read())
        await asyncio.sleep(0.1)
        await link.close(b"offline")
        await reader

    asyncio.run(live())
    assert log.count("start") == 1


def test_a_link_that_is_renewed_comes_back_at_once_and_says_nothing() -> None:
    log: list[object] = []

    async def live() -> int:
        link = AgentLink(make_transport=lambda: FakeTransport(log), filters=["a"], status_topic="s")
        await link.renew()
        ups = 0
        async for event in link.events():
            if isinstance(event, LinkUp):
                ups += 1
                await (link.renew() if ups == 1 else link.close(b"offline"))
        return ups

    assert asyncio.run(asyncio.wait_for(live(), 5)) == 2
    assert log == [("a",), "start", "close", ("a",), "start", ("s", b"offline", True), "close"]
