"""Thermal zones and how far each is from the first temperature at which the kernel would act.

Source: Linux, Documentation/driver-api/thermal/sysfs-api.
"""

from edgefl.agent.power.readings import Heat
from edgefl.agent.power.tree import Tree

_FOLDER = "sys/class/thermal"
_COLDEST_MC = -40_000.0
_HOTTEST_MC = 200_000.0
_LEAST_TRIP_MC = 35_000.0
"""Drivers write 0 or less for trip points that are not in use."""
_SLOWING_TRIPS = frozenset({"passive", "hot", "critical"})
"""`active` ones only start a fan."""


class ThermalZones:
    """The zones below /sys/class/thermal.

    Args:
        tree: The board's files.
    """

    def __init__(self, tree: Tree) -> None:
        """Read nothing yet."""
        self._tree = tree

    def read(self) -> Heat:
        """Return the hottest temperature and the least margin; None where nothing tells."""
        temperatures, margins = [], []
        for zone in self._tree.folders(_FOLDER, "thermal_zone"):
            temperature_mc = self._tree.number(f"{zone}/temp", _COLDEST_MC, _HOTTEST_MC)
            if temperature_mc is None:
                continue
            temperatures.append(temperature_mc)
            trips = self._trips_mc(zone)
            if trips:
                margins.append(min(trips) - temperature_mc)
        return Heat(
            hottest_c=max(temperatures) / 1000 if temperatures else None,
            margin_c=min(margins) / 1000 if margins else None,
        )

    def _trips_mc(self, zone: str) -> list[float]:
        trips = []
        for path in self._tree.folders(zone, "trip_point_"):
            if not path.endswith("_type") or self._tree.text(path) not in _SLOWING_TRIPS:
                continue
            trip = self._tree.number(
                f"{path.removesuffix('_type')}_temp", _LEAST_TRIP_MC, _HOTTEST_MC
            )
            if trip is not None:
                trips.append(trip)
        return trips
