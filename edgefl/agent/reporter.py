"""Keeps what people and the service manager see of a running agent: status file and status line."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edgefl.agent.events import AgentEffect, Noticed, PhaseReached, RoundEnded, Stop
from edgefl.agent.power.readings import Readings
from edgefl.agent.service import ServiceManager
from edgefl.agent.status_file import AgentStatus, write_status

_LEAST_PAUSE_S = 2.0
"""Phases of a small fleet follow each other within milliseconds; a disk need not see each."""


class Reporter:
    """Writes when something has changed, at most every two seconds.

    Args:
        status: What is known at the start.
        path: The status file.
        manager: Is told in one line.
        clock_s: Seconds of a clock that never goes back.
    """

    def __init__(
        self,
        status: AgentStatus,
        path: Path,
        manager: ServiceManager,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write nothing yet."""
        self._status = status
        self._path = path
        self._manager = manager
        self._clock_s = clock_s
        self._written: AgentStatus | None = None
        self._written_at_s = float("-inf")

    @property
    def due_in_s(self) -> float | None:
        """In how many seconds `write_if_due` has something to do; None while nothing changed."""
        if self._status == self._written:
            return None
        return max(0.0, self._written_at_s + _LEAST_PAUSE_S - self._clock_s())

    def write_if_due(self) -> None:
        """Write the newest state, if it is new and the last one is old enough."""
        if self.due_in_s == 0.0:
            self.write_now()

    def write_now(self) -> None:
        """Write the newest state."""
        self._written, self._written_at_s = self._status, self._clock_s()
        write_status(self._path, self._status)
        self._manager.status(_line(self._status))

    def on_link(self, link: str) -> None:
        """Note how the link is."""
        self._status = replace(self._status, link=link)

    def on_gateway(self, *, is_heard: bool) -> None:
        """Note whether the gateway has been heard."""
        self._status = replace(self._status, knows_gateway=is_heard)

    def on_power(self, obstacles: tuple[str, ...], readings: Readings) -> None:
        """Note what keeps the board from rounds, and how it is fed."""
        level = readings.level_percent
        self._status = replace(
            self._status,
            declines_because=obstacles,
            supply=readings.supply.value,
            level_percent=None if level is None else round(level),
        )

    def on_spent(self, epsilon: float | None) -> None:
        """Note the account; None if it was lost."""
        rounded = None if epsilon is None else round(epsilon, 4)
        self._status = replace(self._status, spent_epsilon=rounded)

    def on_error(self, error: Exception) -> None:
        """Note what ends the agent, or makes it wait."""
        self._status = replace(self._status, last_error=str(error)[:500])

    def on_effect(self, effect: AgentEffect) -> None:
        """Note what the core tells."""
        if isinstance(effect, PhaseReached):
            self._status = replace(
                self._status, round_number=effect.round_number, phase=effect.phase.name
            )
        elif isinstance(effect, RoundEnded):
            counted = "counted" if effect.counted else "not counted"
            left = "" if effect.left is None else f", left: {effect.left.name}"
            ended = f"round {effect.round_number} {effect.phase.name}, {counted}{left}"
            self._status = replace(self._status, round_number=None, phase=None, last_round=ended)
        elif isinstance(effect, Noticed | Stop):
            self.on_error(effect.error)


def _line(status: AgentStatus) -> str:
    """Return the one line that the service manager shows."""
    if status.round_number is not None:
        doing = f"round {status.round_number}, {status.phase}"
    elif status.declines_because:
        doing = f"rounds declined: {', '.join(status.declines_because)}"
    else:
        doing = "waiting for a round" if status.knows_gateway else "waiting for the gateway"
    return f"{status.link}; {doing}"
