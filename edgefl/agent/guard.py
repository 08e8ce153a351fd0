"""Watches over a board for its owner: what the sensors say, the owner's conditions, and a pause."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from edgefl.agent.clock import minute_of_day
from edgefl.agent.eligibility import (
    Eligibility,
    Moment,
    Obstacle,
    Verdict,
    bucket_of,
    reserve_percent,
)
from edgefl.agent.power.energy import EnergyBook
from edgefl.agent.power.policy import PowerPolicy
from edgefl.agent.power.readings import Readings
from edgefl.agent.power.sensors import Sensors
from edgefl.protocol.presence import Presence, PresenceKind
from edgefl.storage.base import KeyValueStore

_LOGGER = logging.getLogger(__name__)

PAUSE_FILE = "paused"
"""While it is in the state folder, rounds are declined."""


class PowerGuard:
    """Says whether the board works for rounds now. For one thread.

    Args:
        policy: The owner's conditions; None sets none, and only a pause counts.
        sensors: What the board tells.
        store: A durable namespace of its own.
        state_dir: Where a pause is noted.
        clock_s: Seconds of a clock that never goes back.
        wall_clock_s: Seconds since 1970, as far as the board knows.
    """

    def __init__(
        self,
        *,
        policy: PowerPolicy | None,
        sensors: Sensors,
        store: KeyValueStore,
        state_dir: Path,
        clock_s: Callable[[], float] = time.monotonic,
        wall_clock_s: Callable[[], float] = time.time,
    ) -> None:
        """Read nothing yet."""
        self._policy = policy
        self._sensors = sensors
        self._energy = EnergyBook(store)
        self._pause_file = state_dir / PAUSE_FILE
        self._clock_s = clock_s
        self._wall_clock_s = wall_clock_s
        self._eligibility = None if policy is None else Eligibility(policy)
        self._said: Verdict | None = None

    @property
    def sleep_s(self) -> float:
        """Longest time without a link that the owner allows; 0 keeps the link."""
        return 0.0 if self._policy is None else self._policy.sleep_s

    def verdict(self) -> Verdict:
        """Decide; a change is said once."""
        verdict = self._judge(is_paused=self._pause_file.exists())
        if self._said is None or verdict != self._said:
            self._say(verdict)
        self._said = verdict
        return verdict

    def _judge(self, *, is_paused: bool) -> Verdict:
        if self._eligibility is None:
            return Verdict(obstacles=(Obstacle.PAUSED,) if is_paused else ())
        return self._eligibility.judge(
            Moment(
                now_s=self._clock_s(),
                readings=self.readings(),
                minute_of_day=minute_of_day(self._wall_clock_s()),
                round_percent=self._energy.round_percent,
                is_paused=is_paused,
            )
        )

    def readings(self) -> Readings:
        """Return what the sensors said at most 10 seconds ago."""
        return self._sensors.read(self._clock_s())

    def presence(self, *, sleeps_s: int = 0) -> Presence:
        """Return what is told to the gateway.

        Args:
            sleeps_s: For how long the board has no link; 0 if it has one.
        """
        return Presence(
            kind=PresenceKind.SLEEPING if sleeps_s else PresenceKind.ONLINE,
            is_available=self.verdict().is_eligible,
            bucket=bucket_of(self.readings()),
            wakes_in_s=sleeps_s,
        )

    def round_begins(self) -> None:
        """Note the charge at check-in."""
        self._energy.begin(self.readings())

    def round_ends(self) -> None:
        """Learn what the round took."""
        self._energy.end(self.readings())

    def must_spare_training(self) -> bool:
        """Tell whether a round that has begun must go on without training.

        A change of power ends no round: its few messages cost little, and leaving costs the others
        more. Only training is left out, and only where the battery would not outlive it.
        """
        readings = self.readings()
        if self._policy is None or readings.level_percent is None or readings.supply.is_lasting:
            return False
        return readings.level_percent < reserve_percent(readings) + self._energy.round_percent

    def _say(self, verdict: Verdict) -> None:
        if not verdict.is_eligible:
            _LOGGER.warning("rounds are declined: %s", verdict)
        elif self._said is not None:
            _LOGGER.info("this device takes part in rounds again")
