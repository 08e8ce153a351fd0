"""A simple battery: a charge that work and waiting drain, and that a charger fills."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerProfile:
    """What a board draws, and what it gets.

    Attributes:
        capacity_j: Full charge.
        idle_w: Drawn while awake and waiting.
        training_w: Drawn on top while training.
        joule_per_byte: Radio, for each byte sent.
        charging_w: From a panel or a charger, all the time.
        restart_j: Charge at which a dead board boots again.
    """

    capacity_j: float = 200.0
    idle_w: float = 0.4
    training_w: float = 2.5
    joule_per_byte: float = 4e-6
    charging_w: float = 0.45
    restart_j: float = 40.0


class Battery:
    """The charge of one board in virtual time.

    Args:
        profile: The board.
        charge_j: At the start.
        now_s: The start.
    """

    def __init__(self, profile: PowerProfile, *, charge_j: float, now_s: float) -> None:
        """Start with a charge."""
        self.profile = profile
        self._charge_j = charge_j
        self._read_at_s = now_s
        self._load_w = 0.0
        self.is_on = charge_j > 0

    def charge_j(self, now_s: float) -> float:
        """Return the charge now."""
        profile = self.profile
        drawn_w = (profile.idle_w if self.is_on else 0.0) + self._load_w - profile.charging_w
        charge_j = self._charge_j - drawn_w * (now_s - self._read_at_s)
        self._charge_j = min(max(charge_j, 0.0), profile.capacity_j)
        self._read_at_s = now_s
        return self._charge_j

    def take(self, energy_j: float, now_s: float) -> bool:
        """Draw energy at once; return False if the battery is empty after it."""
        self._charge_j = max(self.charge_j(now_s) - energy_j, 0.0)
        return self._charge_j > 0

    def set_load(self, load_w: float, now_s: float) -> None:
        """Change what is drawn on top of idling."""
        self.charge_j(now_s)
        self._load_w = load_w

    def empties_at_s(self, now_s: float) -> float | None:
        """Return when the charge ends at the present load, or None if it does not."""
        profile = self.profile
        net_w = profile.idle_w + self._load_w - profile.charging_w
        return now_s + self.charge_j(now_s) / net_w if self.is_on and net_w > 0 else None

    def restarts_at_s(self, now_s: float) -> float | None:
        """Return when a dead board has enough charge to boot."""
        missing_j = self.profile.restart_j - self.charge_j(now_s)
        if self.is_on or self.profile.charging_w <= 0:
            return None
        return now_s + max(missing_j, 0.0) / self.profile.charging_w

    def switch(self, *, on: bool, now_s: float) -> None:
        """Note that the board died or booted."""
        self.charge_j(now_s)
        self.is_on = on
        self._load_w = 0.0
