"""All boards come back at once after the broker was started anew; and a name that nobody knows."""

import asyncio
import logging
import os
import socket
import time
from pathlib import Path

import pytest

from edgefl.transport.base import LinkDown, LinkDownReason, LinkUp
from edgefl.transport.broker_url import parse_broker_url
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import MqttSettings
from tests.integration.local_endpoint import local_endpoint
from tests.integration.mqtt_lab import Client, link_to, recorded
from tests.integration.real import free_port, wait_until

BOARDS = 120
AWAY_S = 3.0
"""Long enough that all pauses have grown to their cap."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Storm:
    """Many links in one loop, and when each of them came up."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ups: dict[str, list[float]] = {}
        self._running: list[asyncio.Task[None]] = []
        self._transports = [link_to(port, f"b{number}") for number in range(BOARDS)]

    async def start(self) -> None:
        for transport in self._transports:
            await transport.start()
        self._running = [
            asyncio.create_task(self._watch(f"b{number}", transport))
            for number, transport in enumerate(self._transports)
        ]

    async def _watch(self, name: str, transport: MqttTransport) -> None:
        async for event in transport.events():
            if isinstance(event, LinkUp):
                self.ups.setdefault(name, []).append(time.monotonic())

    async def until_up(self, times: int) -> list[float]:
        await asyncio.to_thread(wait_until, lambda: self.are_up(times), "all boards are there")
        return sorted(ups[times - 1] for ups in self.ups.values())

    def are_up(self, times: int) -> bool:
        return len(self.ups) == BOARDS and all(len(ups) >= times for ups in self.ups.values())

    async def close(self) -> None:
        await asyncio.gather(*(transport.close() for transport in self._transports))
        await asyncio.gather(*self._running)


def test_all_boards_come_back_spread_over_the_pause_and_cost_a_bounded_amount() -> None:
    port = free_port()

    async def run() -> tuple[list[float], float, int]:
        storm = Storm(port)
        with local_endpoint(port):
            await storm.start()
            await storm.until_up(1)
        await asyncio.sleep(AWAY_S)
        before = resident_bytes()
        with local_endpoint(port):
            back_s = time.monotonic()
            ups = await storm.until_up(2)
            grown = resident_bytes() - before
            await storm.close()
        return ups, back_s, grown

    ups, back_s, grown = asyncio.run(run())
    # Pauses are 1 to 2 s by now: no more than a share comes in any tenth of a second.
    tenths = [int((up - back_s) * 10) for up in ups]
    most_at_once = max(tenths.count(tenth) for tenth in set(tenths))
    assert most_at_once < BOARDS / 2, tenths
    assert ups[-1] - ups[0] > 0.5
    assert grown < 32 << 20


def test_a_name_that_nobody_knows_is_said_once_and_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A name service that is down, as it is while a network comes up; then it answers."""
    tries: list[str] = []
    resolve = socket.getaddrinfo
    is_down = True

    def look_up(host: str, *rest: object, **more: object) -> object:
        if host == "localhost":
            tries.append(host)
            if is_down:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def run(port: int) -> Client:
        nonlocal is_down
        settings = MqttSettings(
            brokers=(parse_broker_url(f"mqtt://localhost:{port}"),), client_id="d1"
        )
        transport = MqttTransport(settings)
        async with recorded(transport) as client:
            await asyncio.to_thread(wait_until, lambda: len(tries) >= 4, "four tries")
            is_down = False
            await asyncio.to_thread(wait_until, lambda: client.ups, "the connection")
        return client

    with caplog.at_level(logging.DEBUG), local_endpoint() as port:
        client = asyncio.run(run(port))
    downs = [event for event in client.events if isinstance(event, LinkDown)]
    unreachable = [one for one in downs if one.reason is LinkDownReason.UNREACHABLE]
    assert [one.detail for one in unreachable] == ["Temporary failure in name resolution"]
