"""Decides whether a board may work for a round now: pure, with hysteresis on every condition.

It looks at power, heat, hours, network and room, and never at the data, so that who takes part
tells nothing about them. What is not known does not forbid, with two exceptions: a battery of which
nobody knows which way its current flows counts as draining, and hours need a clock.

A condition that failed holds again only beyond a second threshold, so that a board at the edge does
not come and go with each reading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from edgefl.agent.power.policy import PowerPolicy
from edgefl.agent.power.readings import Readings, Supply
from edgefl.protocol.presence import PowerBucket

LEVEL_RETURN_PERCENT = 5.0
HEAT_RETURN_C = 3.0
ROOM_RETURN_SHARE = 0.25
PRESSURE_RETURN_SHARE = 0.25
SUPPLY_SETTLES_S = 30.0
"""A loose plug must hold for this long before it counts as external power again."""
DEFAULT_RESERVE_PERCENT = 5.0
"""Charge at which boards go off, where nothing tells it."""
_LOW_PERCENT, _MIDDLE_PERCENT = 30.0, 60.0
_MIB = 1 << 20


class Obstacle(Enum):
    """Why a board does not work for rounds now."""

    PAUSED = "paused by its owner"
    ON_BATTERY = "on battery power"
    LOW_BATTERY = "the battery is low"
    ROUND_TOO_LONG = "the battery would not last for a round"
    UNDERVOLTED = "the supply's voltage is too low"
    HOT = "too hot"
    METERED = "the network is metered"
    OUTSIDE_HOURS = "outside of its hours"
    CLOCK_UNSET = "hours are asked for, and the clock is not set"
    LOW_DISK = "too little room on the disk"
    LOW_MEMORY = "too little free memory"
    BUSY = "busy with other work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the board may work, and why not."""

    obstacles: tuple[Obstacle, ...]

    @property
    def is_eligible(self) -> bool:
        """Tell whether nothing forbids it."""
        return not self.obstacles

    def __str__(self) -> str:
        """Return the reasons for people."""
        return ", ".join(obstacle.value for obstacle in self.obstacles) or "eligible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a decision is made from.

    Attributes:
        now_s: Seconds of a clock that never goes back.
        minute_of_day: Local time, 0 to 1440; None while the clock is not set.
        round_percent: Charge that a round is expected to take.
        is_paused: The owner asked for a pause.
    """

    now_s: float
    readings: Readings
    minute_of_day: float | None
    round_percent: float = 0.0
    is_paused: bool = False


class Eligibility:
    """The decision and its memory.

    Args:
        policy: The owner's conditions.
    """

    def __init__(self, policy: PowerPolicy) -> None:
        """Start without a memory: the first reading decides alone."""
        self._policy = policy
        self._failing: frozenset[Obstacle] = frozenset()
        self._drained_at_s: float | None = None

    def judge(self, moment: Moment) -> Verdict:
        """Decide, and remember what failed."""
        found = [obstacle for obstacle, fails in _CHECKS if fails(self, moment)]
        self._failing = frozenset(found)
        return Verdict(obstacles=tuple(found))

    # ------------------------------------------------------------ conditions

    def _is_paused(self, moment: Moment) -> bool:
        return moment.is_paused

    def _is_on_battery(self, moment: Moment) -> bool:
        if not moment.readings.supply.is_lasting:
            self._drained_at_s = moment.now_s
        if self._policy.on_battery or self._drained_at_s is None:
            return False
        if not moment.readings.supply.is_lasting:
            return True
        return moment.now_s - self._drained_at_s < SUPPLY_SETTLES_S

    def _is_low(self, moment: Moment) -> bool:
        level = moment.readings.level_percent
        if level is None:
            return False
        least = self._policy.least_level_percent
        # A battery that is full must count as such, whatever the margin.
        wanted = min(100.0, least + self._extra(Obstacle.LOW_BATTERY, LEVEL_RETURN_PERCENT))
        return level < wanted

    def _would_die(self, moment: Moment) -> bool:
        readings = moment.readings
        if readings.level_percent is None or readings.supply.is_lasting:
            return False
        needed = reserve_percent(readings) + 2 * moment.round_percent
        return readings.level_percent < needed + self._extra(
            Obstacle.ROUND_TOO_LONG, LEVEL_RETURN_PERCENT
        )

    def _is_undervolted(self, moment: Moment) -> bool:
        return moment.readings.is_undervolted is True

    def _is_hot(self, moment: Moment) -> bool:
        heat, extra_c = moment.readings.heat, self._extra(Obstacle.HOT, HEAT_RETURN_C)
        if heat.margin_c is not None:
            return heat.margin_c < self._policy.least_trip_margin_c + extra_c
        return heat.hottest_c is not None and (
            heat.hottest_c > self._policy.most_temperature_c - extra_c
        )

    def _is_metered(self, moment: Moment) -> bool:
        return moment.readings.is_metered is True and not self._policy.allow_metered

    def _is_outside_hours(self, moment: Moment) -> bool:
        minute = moment.minute_of_day
        windows = self._policy.hours
        return bool(windows) and minute is not None and not any(w.contains(minute) for w in windows)

    def _lacks_clock(self, moment: Moment) -> bool:
        return bool(self._policy.hours) and moment.minute_of_day is None

    def _lacks_disk(self, moment: Moment) -> bool:
        least = self._policy.least_free_disk_mib * _MIB
        return self._lacks(moment.readings.free_disk_bytes, least, Obstacle.LOW_DISK)

    def _lacks_memory(self, moment: Moment) -> bool:
        least = self._policy.least_free_memory_mib * _MIB
        return self._lacks(moment.readings.free_memory_bytes, least, Obstacle.LOW_MEMORY)

    def _is_busy(self, moment: Moment) -> bool:
        share = 1 - self._extra(Obstacle.BUSY, PRESSURE_RETURN_SHARE)
        readings, policy = moment.readings, self._policy
        return _is_above(
            readings.memory_pressure_percent, policy.most_memory_pressure_percent * share
        ) or _is_above(readings.cpu_pressure_percent, policy.most_cpu_pressure_percent * share)

    # ------------------------------------------------------------ helpers

    def _extra(self, obstacle: Obstacle, extra: float) -> float:
        """Return the distance to the second threshold where the condition failed last time."""
        return extra if obstacle in self._failing else 0.0

    def _lacks(self, free_bytes: float | None, least_bytes: float, obstacle: Obstacle) -> bool:
        wanted = least_bytes * (1 + self._extra(obstacle, ROOM_RETURN_SHARE))
        return free_bytes is not None and free_bytes < wanted


_CHECKS: tuple[tuple[Obstacle, Callable[[Eligibility, Moment], bool]], ...] = (
    (Obstacle.PAUSED, Eligibility._is_paused),  # noqa: SLF001 - the class's own table
    (Obstacle.ON_BATTERY, Eligibility._is_on_battery),  # noqa: SLF001
    (Obstacle.LOW_BATTERY, Eligibility._is_low),  # noqa: SLF001
    (Obstacle.ROUND_TOO_LONG, Eligibility._would_die),  # noqa: SLF001
    (Obstacle.UNDERVOLTED, Eligibility._is_undervolted),  # noqa: SLF001
    (Obstacle.HOT, Eligibility._is_hot),  # noqa: SLF001
    (Obstacle.METERED, Eligibility._is_metered),  # noqa: SLF001
    (Obstacle.OUTSIDE_HOURS, Eligibility._is_outside_hours),  # noqa: SLF001
    (Obstacle.CLOCK_UNSET, Eligibility._lacks_clock),  # noqa: SLF001
    (Obstacle.LOW_DISK, Eligibility._lacks_disk),  # noqa: SLF001
    (Obstacle.LOW_MEMORY, Eligibility._lacks_memory),  # noqa: SLF001
    (Obstacle.BUSY, Eligibility._is_busy),  # noqa: SLF001
)


def reserve_percent(readings: Readings) -> float:
    """Return the charge that a round must leave in the battery."""
    battery = readings.battery
    told = None if battery is None else battery.shutdown_percent
    return DEFAULT_RESERVE_PERCENT if told is None else max(DEFAULT_RESERVE_PERCENT, told)


def bucket_of(readings: Readings) -> PowerBucket:
    """Return what may be told of the battery: its exact level would tell boards apart."""
    if readings.supply is Supply.EXTERNAL:
        return PowerBucket.EXTERNAL
    level = readings.level_percent
    if level is None:
        return PowerBucket.UNKNOWN
    if level < _LOW_PERCENT:
        return PowerBucket.LOW
    return PowerBucket.MIDDLE if level < _MIDDLE_PERCENT else PowerBucket.HIGH


def _is_above(value: float | None, most: float) -> bool:
    return value is not None and value > most
