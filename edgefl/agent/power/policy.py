"""What the owner asks of power, heat, hours, network and room before the board works for a round.

```toml
[power]
on_battery = false             # true: also while the battery drains
least_level_percent = 30       # of a battery, however it is fed
least_trip_margin_c = 10       # below the first temperature at which the kernel would act
most_temperature_c = 75        # where no zone has such a temperature
hours = ["22:00-06:30"]        # local time; none means all day
allow_metered = false
least_free_disk_mib = 32
least_free_memory_mib = 64
most_memory_pressure_percent = 25
most_cpu_pressure_percent = 100
keepalive_s = 60               # silence before a ping; 900 for boards whose radio must rest
sleep_s = 0                    # above 0: longest time without a link while nothing is to be done
battery_curve = [[3.3, 0], [3.7, 50], [4.15, 100]]   # volts, percent; a battery behind an INA219
charging_sign = 1              # sign of the current that charges it; 0 if not known
```
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeGuard

from edgefl.agent.power.sensors import SensorSettings
from edgefl.errors import ConfigError
from edgefl.protocol.presence import MOST_SLEEP_S
from edgefl.transport.settings import LONGEST_KEEPALIVE_S

DAY_MINUTES = 24 * 60
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_MOST_POINTS = 64

_RANGES: dict[str, tuple[float, float]] = {
    "least_level_percent": (0, 100),
    "least_trip_margin_c": (0, 100),
    "most_temperature_c": (0, 150),
    "least_free_disk_mib": (0, 1 << 30),
    "least_free_memory_mib": (0, 1 << 30),
    "most_memory_pressure_percent": (0, 100),
    "most_cpu_pressure_percent": (0, 100),
    "keepalive_s": (5, LONGEST_KEEPALIVE_S),
    "sleep_s": (0, MOST_SLEEP_S),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of the day in minutes since midnight; it may pass midnight.

    Raises:
        ConfigError: It is no part of a day.
    """

    from_minute: int
    to_minute: int

    def __post_init__(self) -> None:
        """Check the two ends."""
        if self.from_minute == self.to_minute:
            raise _bad("hours", "two different times", f"{self.from_minute} minutes twice")

    def contains(self, minute: float) -> bool:
        """Tell whether a time of day lies within."""
        if self.from_minute < self.to_minute:
            return self.from_minute <= minute < self.to_minute
        return minute >= self.from_minute or minute < self.to_minute


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPolicy:
    """The owner's conditions; see the head of this file.

    Raises:
        ConfigError: E-POWER-POLICY, a value is out of range.
    """

    on_battery: bool = False
    least_level_percent: float = 30.0
    least_trip_margin_c: float = 10.0
    most_temperature_c: float = 75.0
    hours: tuple[Window, ...] = ()
    allow_metered: bool = False
    least_free_disk_mib: float = 32.0
    least_free_memory_mib: float = 64.0
    most_memory_pressure_percent: float = 25.0
    most_cpu_pressure_percent: float = 100.0
    keepalive_s: float = 60.0
    sleep_s: float = 0.0
    sensors: SensorSettings = field(default_factory=SensorSettings)

    def __post_init__(self) -> None:
        """Check every number."""
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:  # NaN fails, too
                raise _bad(name, f"{low:g} to {high:g}", f"{value}")


def read_power_policy(table: Mapping[str, object], source: str) -> PowerPolicy:
    """Read a `[power]` table; what it does not name keeps its default.

    Args:
        table: Keys and values as TOML gives them.
        source: Which file it is from, for people.

    Raises:
        ConfigError: E-POWER-POLICY, it names an unknown key or a bad value.
    """
    known = {"on_battery", "allow_metered", "hours", "battery_curve", "charging_sign", *_RANGES}
    unknown = sorted(table.keys() - known)
    if unknown:
        # A condition that is misspelt would silently not hold.
        raise _bad("[power]", f"only {', '.join(sorted(known))}", ", ".join(unknown)[:200], source)
    defaults = PowerPolicy()
    return PowerPolicy(
        on_battery=_switch(table, "on_battery", source),
        allow_metered=_switch(table, "allow_metered", source),
        hours=_hours(table.get("hours", []), source),
        sensors=SensorSettings(
            battery_curve=_curve(table.get("battery_curve", []), source),
            charging_sign=_sign(table.get("charging_sign", 0), source),
        ),
        **{name: _number(table, name, getattr(defaults, name), source) for name in _RANGES},
    )


def _switch(table: Mapping[str, object], name: str, source: str) -> bool:
    value = table.get(name, False)
    if not isinstance(value, bool):
        raise _bad(name, "true or false", repr(value)[:80], source)
    return value


def _number(table: Mapping[str, object], name: str, default: float, source: str) -> float:
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(name, "a number", repr(value)[:80], source)
    return float(value)


def _sign(value: object, source: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in (-1, 0, 1):
        raise _bad("charging_sign", "-1, 0 or 1", repr(value)[:80], source)
    return value


def _hours(value: object, source: str) -> tuple[Window, ...]:
    if not isinstance(value, list):
        raise _bad("hours", 'a list such as ["22:00-06:30"]', repr(value)[:80], source)
    windows = []
    for text in value:
        match = _HOURS.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise _bad("hours", '"HH:MM-HH:MM"', repr(text)[:80], source)
        first, last = (60 * int(match[index]) + int(match[index + 1]) for index in (1, 3))
        windows.append(Window(from_minute=first, to_minute=last))
    return tuple(windows)


def _curve(value: object, source: str) -> tuple[tuple[float, float], ...]:
    wanted = "pairs of growing volts and percent, such as [[3.3, 0], [4.15, 100]]"
    if not isinstance(value, list) or len(value) > _MOST_POINTS:
        raise _bad("battery_curve", wanted, repr(value)[:80], source)
    points = []
    for point in value:
        if not _is_point(point):
            raise _bad("battery_curve", wanted, repr(point)[:80], source)
        points.append((float(point[0]), float(point[1])))
    if any(not low[0] < high[0] for low, high in pairwise(points)):
        raise _bad("battery_curve", wanted, repr(value)[:80], source)
    return tuple(points)


def _is_point(point: object) -> TypeGuard[list[float]]:
    if not isinstance(point, list) or len(point) != 2:
        return False
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in point):
        return False
    volts, percent = float(point[0]), float(point[1])
    return 0 <= volts <= 1000 and 0 <= percent <= 100


def _bad(name: str, expected: str, found: str, source: str = "") -> ConfigError:
    where = f" in {source}" if source else ""
    return ConfigError("E-POWER-POLICY", f"{name} = {expected}{where}", found)
