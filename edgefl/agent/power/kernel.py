"""The kernel's battery and charger drivers, by what each says it is and not by its name.

Source: Linux, Documentation/ABI/testing/sysfs-class-power.
"""

from collections.abc import Iterable

from edgefl.agent.power.readings import BatteryReading, Supply
from edgefl.agent.power.tree import Tree

_FOLDER = "sys/class/power_supply"
_MICRO = 1e6
_MOST_MICRO = 1e12


class KernelBattery:
    """Batteries and chargers below /sys/class/power_supply.

    Args:
        tree: The board's files.
    """

    def __init__(self, tree: Tree) -> None:
        """Read nothing yet."""
        self._tree = tree

    def read(self) -> BatteryReading | None:
        """Return what all batteries together say; None where there is none."""
        batteries, chargers = [], []
        for folder in self._tree.folders(_FOLDER):
            kind = self._tree.text(f"{folder}/type")
            if kind == "Battery" and self._is_of_board(folder):
                batteries.append(folder)
            elif kind is not None and kind != "Battery":
                chargers.append(folder)
        if not batteries:
            return None
        return BatteryReading(
            source="kernel",
            supply=self._supply(batteries, chargers),
            level_percent=_mean(self._level(folder) for folder in batteries),
            draw_mw=_sum(self._draw_mw(folder) for folder in batteries),
        )

    def _is_of_board(self, folder: str) -> bool:
        """Tell a battery of this board from those of mice and gamepads, and from empty bays."""
        is_peripheral = self._tree.text(f"{folder}/scope") == "Device"
        return not is_peripheral and self._tree.text(f"{folder}/present") != "0"

    def _supply(self, batteries: list[str], chargers: list[str]) -> Supply:
        online = [self._tree.number(f"{folder}/online", 0, 2) for folder in chargers]
        if any(online):
            return Supply.EXTERNAL
        statuses = {self._tree.text(f"{folder}/status") for folder in batteries}
        if "Discharging" in statuses:
            return Supply.BATTERY
        if "Charging" in statuses:
            return Supply.NOT_DISCHARGING
        is_unplugged = bool(online) and all(one == 0 for one in online)
        if is_unplugged:
            return Supply.BATTERY  # Some gauges go on saying "Full" for a while.
        return Supply.NOT_DISCHARGING if statuses <= {"Full", "Not charging"} else Supply.UNKNOWN

    def _level(self, folder: str) -> float | None:
        level = self._tree.number(f"{folder}/capacity", 0, 100)
        if level is not None:
            return level
        for what in ("energy", "charge"):
            now = self._tree.number(f"{folder}/{what}_now", 0, _MOST_MICRO)
            full = self._tree.number(f"{folder}/{what}_full", 1, _MOST_MICRO)
            if now is not None and full is not None:
                return min(100.0, 100 * now / full)
        return None

    def _draw_mw(self, folder: str) -> float | None:
        # Drivers disagree on the sign while discharging.
        power = self._tree.number(f"{folder}/power_now", -_MOST_MICRO, _MOST_MICRO)
        if power is not None:
            return abs(power) / 1000
        current = self._tree.number(f"{folder}/current_now", -_MOST_MICRO, _MOST_MICRO)
        voltage = self._tree.number(f"{folder}/voltage_now", 0, _MOST_MICRO)
        if current is None or voltage is None:
            return None
        return abs(current) * voltage / _MICRO / 1000


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
