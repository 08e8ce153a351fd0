"""Real agents on a wire that doubles 5 % of the messages and lets others overtake them.

MQTT over TCP does neither; bridges, brokers that come back and clients that send again do both.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.peers.mqtt_wire import PUBLISH, packet_at
from tests.integration.real import LiveFleet, Process, agent_words, wait_until

DEVICES = 4
ROUNDS = 3
_DOUBLE_SHARE = 0.05
_HOLD_SHARE = 0.1
_HOLD_S = 0.05
_DUP_FLAG = 0x08


class Disturbed:
    """One direction of a connection: packets in, disturbed packets out."""

    def __init__(self, writer: asyncio.StreamWriter, rng: random.Random) -> None:
        self._writer = writer
        self._rng = rng
        self._rest = b""
        self._held: list[bytes] = []
        self.doubled = self.overtaken = 0

    def take(self, data: bytes) -> None:
        buffer, at = self._rest + data, 0
        while (found := packet_at(buffer, at)) is not None and found[1] <= len(buffer):
            self._pass_on(buffer[at : found[1]])
            at = found[1]
        self._rest = buffer[at:]

    def let_go(self) -> None:
        """Send what was held back; nobody overtakes it any more."""
        held, self._held = self._held, []
        for packet in held:
            self._writer.write(packet)

    def _pass_on(self, packet: bytes) -> None:
        if packet[0] >> 4 != PUBLISH:
            self._writer.write(packet)
            return
        if not self._held and self._rng.random() < _HOLD_SHARE:
            self._held.append(packet)
            asyncio.get_running_loop().call_later(_HOLD_S, self.let_go)
            return
        self.overtaken += len(self._held)
        self._writer.write(packet)
        if packet[0] >> 1 & 3 and self._rng.random() < _DOUBLE_SHARE:
            self.doubled += 1
            self._writer.write(bytes((packet[0] | _DUP_FLAG,)) + packet[1:])


class DisturbingProxy:
    """Passes connections on to a port, disturbed in both directions; runs in a thread."""

    def __init__(self, target: int, seed: int) -> None:
        self._target = target
        self._rng = random.Random(seed)
        self._ways: list[Disturbed] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[None]] = []
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._is_listening.wait(10)

    @property
    def doubled(self) -> int:
        return sum(way.doubled for way in self._ways)

    @property
    def overtaken(self) -> int:
        return sum(way.overtaken for way in self._ways)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        self._is_listening.set()
        await self._is_over.wait()
        server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, up_writer]
        for source, target in ((reader, up_writer), (up_reader, writer)):
            self._serving.append(asyncio.create_task(self._pump(source, target)))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        way = Disturbed(writer, self._rng)
        self._ways.append(way)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                way.take(data)
                await writer.drain()
        writer.transport.abort()


@contextlib.contextmanager
def disturbing_proxy(target: int, seed: int) -> Iterator[DisturbingProxy]:
    proxy = DisturbingProxy(target, seed)
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.mark.timeout(120)
def test_every_update_is_counted_once(tmp_path: Path) -> None:
    with LiveFleet(tmp_path) as fleet, disturbing_proxy(fleet.port, seed=5) as proxy:
        for number in range(DEVICES):
            name = f"d{number}"
            words = agent_words(tmp_path / name, proxy.port, "--max-epsilon", 10_000, device=name)
            fleet.agents.append(Process(tmp_path / "output", *words))
        wait_until(lambda: devices_of(fleet) == DEVICES, "all devices")
        words = ("--rounds", ROUNDS, "--cohort", DEVICES, "--phase-limit-s", 30)
        fleet.submit("disturbed", *words)
        fleet.wait_for_line(f"task disturbed done: {ROUNDS} rounds")
        rounds = [event for event in fleet.events() if event["kind"] == "round"]
        doubled, overtaken = proxy.doubled, proxy.overtaken
    assert [event["outcome"] for event in rounds] == ["COMMITTED"] * ROUNDS
    assert [event["survivors"] for event in rounds] == [DEVICES] * ROUNDS
    # The check coordinates would show an update that is in the sum twice.
    assert all(event["sum_check_held"] for event in rounds)
    rows = (fleet.state / "ledger.jsonl").read_text().splitlines()
    assert len(rows) == ROUNDS
    assert doubled > 0
    assert overtaken > 0


def devices_of(fleet: LiveFleet) -> int:
    return sum(event["kind"] == "device-new" for event in fleet.events())
