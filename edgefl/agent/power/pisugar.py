"""PiSugar batteries, by the text commands of their maker's daemon.

The daemon is only spoken to, never linked or started. A board without one is found out by a
refused connection, which costs nothing worth counting.

Source: README of PiSugar/pisugar-power-manager-rs (commands `get battery` and others).
"""

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from edgefl.agent.power.readings import BatteryReading, Supply
from edgefl.agent.power.tree import number_in

UNIX_SOCKET = Path("/tmp/pisugar-server.sock")  # noqa: S108 - where that daemon puts it
TCP_ADDRESS = ("127.0.0.1", 8423)
"""Also served by the daemon; a service with a /tmp of its own sees only this."""
_TIMEOUT_S = 0.5
_MOST_BYTES = 4096

Address = Path | tuple[str, int]


class PiSugar:
    """The battery that the daemon tells about.

    Args:
        addresses: Where the daemon may be, best first.
    """

    def __init__(self, addresses: Sequence[Address] = (UNIX_SOCKET, TCP_ADDRESS)) -> None:
        """Connect to nothing yet."""
        self._addresses = addresses

    def read(self) -> BatteryReading | None:
        """Return what it says; None where there is no daemon or no battery behind it."""
        for address in self._addresses:
            with contextlib.suppress(OSError), _connect(address) as connection:
                reading = _ask_all(connection)
                if reading is not None:
                    return reading
        return None


def _connect(address: Address) -> socket.socket:
    place = str(address) if isinstance(address, Path) else address
    connection = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(place)
    except OSError:
        connection.close()
        raise
    return connection


def _ask_all(connection: socket.socket) -> BatteryReading | None:
    level = number_in(_ask(connection, "battery"), 0, 100)
    if level is None:
        return None
    return BatteryReading(
        source="pisugar",
        supply=_supply(_ask(connection, "battery_power_plugged"), connection),
        level_percent=level,
        draw_mw=_draw_mw(connection),
        shutdown_percent=number_in(_ask(connection, "safe_shutdown_level"), 0, 100),
    )


def _supply(plugged: str | None, connection: socket.socket) -> Supply:
    if plugged == "true":
        return Supply.EXTERNAL
    charging = _ask(connection, "battery_charging")
    if charging == "true":
        return Supply.NOT_DISCHARGING
    return Supply.BATTERY if "false" in (plugged, charging) else Supply.UNKNOWN


def _draw_mw(connection: socket.socket) -> float | None:
    volts = number_in(_ask(connection, "battery_v"), 0, 50)
    amperes = number_in(_ask(connection, "battery_i"), -50, 50)
    return None if volts is None or amperes is None else 1000 * volts * abs(amperes)


def _ask(connection: socket.socket, what: str) -> str | None:
    """Return the answer to one command, with or without its name before it."""
    connection.sendall(f"get {what}\n".encode())
    line = b""
    while not line.endswith(b"\n"):
        received = connection.recv(_MOST_BYTES)
        line += received
        if not received or len(line) > _MOST_BYTES:
            break
    answer = line.decode(errors="replace").strip().lower()
    return answer.removeprefix(f"{what}:").strip() or None
