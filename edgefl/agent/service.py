"""What a service tells systemd: that it is ready, what it does, and that it is alive.

Source: sd_notify(3): datagrams to the socket that NOTIFY_SOCKET names; sd_watchdog_enabled(3).
"""

import contextlib
import os
import socket
from collections.abc import Mapping


class ServiceManager:
    """The manager that started this process; without one, telling it something does nothing.

    Args:
        environment: Of this process.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Read where it listens."""
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of Linux's abstract names.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog_s = _watchdog_s(environment)

    @property
    def heartbeat_s(self) -> float | None:
        """How often it wants a sign of life, a third of its patience; None where it wants none."""
        return None if self._watchdog_s is None else self._watchdog_s / 3

    def ready(self) -> None:
        """Say that the start is over."""
        self._send("READY=1")

    def alive(self) -> None:
        """Give a sign of life; only for whoever has just seen real work go on."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Say in one line what this process does."""
        self._send(f"STATUS={' '.join(text.split())[:200]}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # A manager that does not listen, or is slow to, must not hold up what it manages.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link,
        ):
            link.sendto(message.encode(), socket.MSG_DONTWAIT, self._address)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    text, process_id = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not text.isdecimal() or int(text) == 0 or process_id not in ("", str(os.getpid())):
        return None
    return int(text) / 1e6
