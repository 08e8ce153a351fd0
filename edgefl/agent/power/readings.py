"""What the sensors of a board say at one moment; None means that nobody knows."""

from dataclasses import dataclass, field
from enum import Enum


class Supply(Enum):
    """Where the current comes from."""

    EXTERNAL = "external"
    """A mains adapter or USB supply is connected, or the board has no battery at all."""
    NOT_DISCHARGING = "not-discharging"
    """The battery is full or being charged, by whatever charges it."""
    BATTERY = "battery"
    UNKNOWN = "unknown"
    """There is a battery, and nothing tells which way its current flows."""

    @property
    def is_lasting(self) -> bool:
        """Tell whether work costs the battery nothing."""
        return self in (Supply.EXTERNAL, Supply.NOT_DISCHARGING)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatteryReading:
    """What one source says about the battery.

    Attributes:
        source: Which source it is, for people.
        supply: Where the current comes from.
        level_percent: Charge, 0 to 100.
        draw_mw: Power that the battery gives or the board takes.
        shutdown_percent: At which charge the board is switched off by others.
    """

    source: str
    supply: Supply
    level_percent: float | None = None
    draw_mw: float | None = None
    shutdown_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """The hottest place of the board.

    Attributes:
        hottest_c: Highest temperature of all zones.
        margin_c: Least distance of a zone from its lowest trip point; None if no zone has any.
    """

    hottest_c: float | None = None
    margin_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """All that the sensors say at one moment.

    Attributes:
        battery: None for a board without a battery: it counts as powered from outside.
        board_draw_mw: What the whole board takes, where a sensor sits at its input.
        is_undervolted: The supply's voltage is too low now.
        free_memory_bytes: What the kernel could give without swapping.
        memory_pressure_percent: Share of the last 10 s in which all work waited for memory.
        cpu_pressure_percent: Share of the last 10 s in which some work waited for a processor.
        free_disk_bytes: Room for this user in the state folder.
        is_metered: The network costs money by volume.
    """

    battery: BatteryReading | None = None
    board_draw_mw: float | None = None
    is_undervolted: bool | None = None
    heat: Heat = field(default_factory=Heat)
    free_memory_bytes: float | None = None
    memory_pressure_percent: float | None = None
    cpu_pressure_percent: float | None = None
    free_disk_bytes: float | None = None
    is_metered: bool | None = None

    @property
    def supply(self) -> Supply:
        """Where the current comes from; a board without a battery is powered from outside."""
        return Supply.EXTERNAL if self.battery is None else self.battery.supply

    @property
    def level_percent(self) -> float | None:
        """The battery's charge, 0 to 100."""
        return None if self.battery is None else self.battery.level_percent

    @property
    def draw_mw(self) -> float | None:
        """What the board takes now, as far as a sensor tells."""
        from_battery = None if self.battery is None else self.battery.draw_mw
        return from_battery if self.board_draw_mw is None else self.board_draw_mw
