"""Voltage and current sensors below /sys/class/hwmon: INA219 and its kin, Jetson rails, Pi supply.

Sources: Linux, Documentation/hwmon/{ina2xx,ina3221,raspberrypi-hwmon,sysfs-interface}.
"""

from collections.abc import Sequence
from itertools import pairwise

from edgefl.agent.power.readings import BatteryReading, Supply
from edgefl.agent.power.tree import Tree

_FOLDER = "sys/class/hwmon"
_INA_NAMES = frozenset(
    {"ina209", "ina219", "ina220", "ina226", "ina230", "ina231", "ina260", "ina2xx"}
)
_RAIL_NAMES = frozenset({"ina3221", "ina3221x"})
_WHOLE_BOARD = frozenset({"VDD_IN", "POM_5V_IN", "VDD_5V_IN"})
_PI_SUPPLY = "rpi_volt"
_MOST_MV = 100_000.0
_MOST_MA = 100_000.0
_MOST_UW = 1e10
_STILL_MA = 20.0
"""Below it a battery's current is taken for none: shunts have an offset."""


class HwmonSensors:
    """The sensors that a kernel driver makes files of.

    Args:
        tree: The board's files.
    """

    def __init__(self, tree: Tree) -> None:
        """Read nothing yet."""
        self._tree = tree

    def is_undervolted(self) -> bool | None:
        """Tell whether a Raspberry Pi's supply is too low now; None where nothing tells."""
        for folder in self._named(frozenset({_PI_SUPPLY})):
            alarm = self._tree.number(f"{folder}/in0_lcrit_alarm", 0, 1)
            if alarm is not None:
                return alarm == 1
        return None

    def board_draw_mw(self) -> float | None:
        """Return what the whole board takes, on a Jetson; None where nothing tells."""
        for folder in self._named(_RAIL_NAMES):
            draws = {
                self._tree.text(f"{folder}/in{rail}_label"): self._rail_mw(folder, rail)
                for rail in (1, 2, 3)
            }
            for label in _WHOLE_BOARD & draws.keys():
                if draws[label] is not None:
                    return draws[label]
        return None

    def battery(
        self, curve: Sequence[tuple[float, float]], *, charging_sign: int
    ) -> BatteryReading | None:
        """Return what an INA219 or its kin says about the battery that it sits at.

        Args:
            curve: Pairs of (volts, percent), volts growing; of that battery, from its owner. Empty
                means that the sensor sits at no battery.
            charging_sign: 1 if a positive current charges it, -1 if a negative one does, 0 if that
                is not known.
        """
        if not curve:
            return None
        for folder in self._named(_INA_NAMES):
            voltage_mv = self._tree.number(f"{folder}/in1_input", 0, _MOST_MV)
            if voltage_mv is None:
                continue
            current_ma = self._tree.number(f"{folder}/curr1_input", -_MOST_MA, _MOST_MA)
            power_uw = self._tree.number(f"{folder}/power1_input", 0, _MOST_UW)
            return BatteryReading(
                source="hwmon",
                supply=_supply(current_ma, charging_sign),
                level_percent=_on_curve(voltage_mv / 1000, curve),
                draw_mw=None if power_uw is None else power_uw / 1000,
            )
        return None

    def _named(self, names: frozenset[str]) -> list[str]:
        folders = self._tree.folders(_FOLDER)
        return [folder for folder in folders if self._tree.text(f"{folder}/name") in names]

    def _rail_mw(self, folder: str, rail: int) -> float | None:
        voltage_mv = self._tree.number(f"{folder}/in{rail}_input", 0, _MOST_MV)
        current_ma = self._tree.number(f"{folder}/curr{rail}_input", 0, _MOST_MA)
        return None if voltage_mv is None or current_ma is None else voltage_mv * current_ma / 1000


def _supply(current_ma: float | None, charging_sign: int) -> Supply:
    if current_ma is None or charging_sign == 0:
        return Supply.UNKNOWN
    is_draining = current_ma * charging_sign < -_STILL_MA
    return Supply.BATTERY if is_draining else Supply.NOT_DISCHARGING


def _on_curve(volts: float, curve: Sequence[tuple[float, float]]) -> float:
    """Return the percentage between two points of the curve, or that of its nearer end."""
    if volts <= curve[0][0]:
        return curve[0][1]
    for (low_v, low), (high_v, high) in pairwise(curve):
        if volts <= high_v:
            return low + (high - low) * (volts - low_v) / (high_v - low_v)
    return curve[-1][1]
