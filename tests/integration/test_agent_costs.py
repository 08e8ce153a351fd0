"""What an agent costs a board: packets and writes while idle, and bytes written for a round.

`pytest -m long -s tests/integration/test_agent_costs.py` prints the figures of docs/boards.md.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.real import LiveFleet, Process, wait_until

_KEEPALIVE_S = 5
_IDLE_S = 11.0
_DAY_S = 86_400
_LONGEST_KEEPALIVE_S = 900
_ROUNDS = 3
_PARAMETERS_BYTES = 4 * 1911
_LEAST_PERIODS = int(_IDLE_S / _KEEPALIVE_S)


class CountingProxy:
    """Passes bytes on, and counts the pieces that come from the agent: small ones are packets."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.port = int(self._listener.getsockname()[1])
        self.pieces = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                agent, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [agent, broker]
            for source, target in ((agent, broker), (broker, agent)):
                threading.Thread(
                    target=self._pass_on, args=(source, target, source is agent), daemon=True
                ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_counted: bool) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65_536):
                self.pieces += is_counted
                target.sendall(content)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextlib.contextmanager
def counting_proxy(port: int) -> Iterator[CountingProxy]:
    proxy = CountingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


def written_bytes(agent: Process) -> int:
    """Return what the process has handed to files; sockets do not count."""
    lines = Path(f"/proc/{agent.process_id}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar:")).split()[1])


@pytest.mark.long
def test_an_idle_agent_is_quiet_and_a_round_writes_little(tmp_path: Path) -> None:
    with LiveFleet(tmp_path, devices=2) as fleet, counting_proxy(fleet.port) as proxy:
        settings = tmp_path / "agent.toml"
        settings.write_text(f"[power]\nkeepalive_s = {_KEEPALIVE_S}\n")
        more = ("--gateway", f"127.0.0.1:{proxy.port}", "--config", settings)
        agent = fleet.add_agent("measured", *more)
        status = tmp_path / "measured" / "status.json"
        wait_until(
            lambda: status.exists() and json.loads(status.read_text())["knows_gateway"],
            "the agent's start",
        )
        fleet.submit("first", "--rounds", 1)
        fleet.wait_for_line("task first done: 1 rounds")
        wait_until(lambda: "COMMITTED, counted" in status.read_text(), "the end of the round")
        time.sleep(3)  # receipts, models, the status file
        before = written_bytes(agent)
        fleet.submit("second", "--rounds", _ROUNDS)
        fleet.wait_for_line(f"task second done: {_ROUNDS} rounds")
        time.sleep(3)
        a_round = (written_bytes(agent) - before) / _ROUNDS

        pieces, before = proxy.pieces, written_bytes(agent)
        time.sleep(_IDLE_S)
        pings, idle_bytes = proxy.pieces - pieces, written_bytes(agent) - before
    print(f"{pings} packets in {_IDLE_S} s, {idle_bytes} bytes idle, {a_round:.0f} bytes a round")
    assert _LEAST_PERIODS - 1 <= pings <= _LEAST_PERIODS + 1
    # A ping per keepalive and nothing else: with 900 s it is 96 a day.
    assert pings / (_IDLE_S / _KEEPALIVE_S) * _DAY_S / _LONGEST_KEEPALIVE_S <= 150
    assert idle_bytes < 100, "an idle agent writes to no file"
    # Two models are kept, the masked vector is spooled; the rest is seven commits of the database.
    assert a_round <= 3 * _PARAMETERS_BYTES + 150_000
