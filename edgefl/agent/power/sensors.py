"""All sensors of a board together, read seldom: reading must not keep a board awake."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.agent.power.hwmon import HwmonSensors
from edgefl.agent.power.kernel import KernelBattery
from edgefl.agent.power.load import free_memory_bytes, pressure_percent
from edgefl.agent.power.network import MeteredNetwork
from edgefl.agent.power.pisugar import TCP_ADDRESS, UNIX_SOCKET, Address, PiSugar
from edgefl.agent.power.readings import BatteryReading, Readings
from edgefl.agent.power.thermal import ThermalZones
from edgefl.agent.power.tree import Tree

LEAST_AGE_S = 10.0
_NETWORK_AGE_S = 300.0
"""NetworkManager is asked through a process, which costs more than all else together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSettings:
    """What only the board's owner knows about its sensors.

    Attributes:
        battery_curve: Pairs of (volts, percent) of a battery behind an INA219 or its kin.
        charging_sign: Sign of the current that charges it; 0 if not known.
    """

    battery_curve: tuple[tuple[float, float], ...] = ()
    charging_sign: int = 0


class Sensors:
    """Reads everything, at most every 10 seconds.

    Args:
        state_dir: The folder whose disk matters.
        settings: What the owner knows.
        root: Where the system's files are; tests have a tree of their own.
        pisugar: Where PiSugar's daemon may be.
        ask_manager: For `MeteredNetwork`.
    """

    def __init__(
        self,
        state_dir: Path,
        settings: SensorSettings,
        *,
        root: Path = Path("/"),
        pisugar: Sequence[Address] = (UNIX_SOCKET, TCP_ADDRESS),
        ask_manager: Callable[[str], str | None] | None = None,
    ) -> None:
        """Read nothing yet."""
        self._state_dir = state_dir
        self._settings = settings
        self._tree = Tree(root)
        self._kernel = KernelBattery(self._tree)
        self._pisugar = PiSugar(pisugar)
        self._hwmon = HwmonSensors(self._tree)
        self._zones = ThermalZones(self._tree)
        self._network = MeteredNetwork(self._tree, ask_manager)
        self._newest: Readings | None = None
        self._read_at_s = 0.0
        self._network_at_s: float | None = None
        self._is_metered: bool | None = None

    def read(self, now_s: float) -> Readings:
        """Return readings that are at most 10 seconds old.

        Args:
            now_s: Seconds of a clock that never goes back.
        """
        if self._newest is None or now_s - self._read_at_s >= LEAST_AGE_S:
            self._newest, self._read_at_s = self._read_now(now_s), now_s
        return self._newest

    def _read_now(self, now_s: float) -> Readings:
        tree = self._tree
        return Readings(
            battery=self._battery(),
            board_draw_mw=self._hwmon.board_draw_mw(),
            is_undervolted=self._hwmon.is_undervolted(),
            heat=self._zones.read(),
            free_memory_bytes=free_memory_bytes(tree),
            memory_pressure_percent=pressure_percent(tree, "memory", "full"),
            cpu_pressure_percent=pressure_percent(tree, "cpu", "some"),
            free_disk_bytes=_free_disk_bytes(self._state_dir),
            is_metered=self._metered(now_s),
        )

    def _battery(self) -> BatteryReading | None:
        """Return the first source that knows a battery; HATs come before the kernel's own."""
        settings = self._settings
        sources: tuple[Callable[[], BatteryReading | None], ...] = (
            self._pisugar.read,
            lambda: self._hwmon.battery(
                settings.battery_curve, charging_sign=settings.charging_sign
            ),
            self._kernel.read,
        )
        return next((found for read in sources if (found := read()) is not None), None)

    def _metered(self, now_s: float) -> bool | None:
        if self._network_at_s is None or now_s - self._network_at_s >= _NETWORK_AGE_S:
            self._is_metered, self._network_at_s = self._network.read(), now_s
        return self._is_metered


def _free_disk_bytes(folder: Path) -> float | None:
    try:
        facts = os.statvfs(folder)
    except OSError:
        return None
    return float(facts.f_bavail) * facts.f_frsize
