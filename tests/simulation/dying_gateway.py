"""Kills the simulated gateway at chosen writes: before or after the commit, or among effects."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from unittest import mock

from broker.events import GatewayEvent
from firmware_sim.gateway import SimulatedGateway

OUTAGE_S = 1.5


class Moment(Enum):
    """When the gateway dies, in a step that changes its state."""

    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT = "after-commit"
    AMONG_EFFECTS = "among-effects"


class Writes:
    """Counts the gateway's writes, over all its lives."""

    def __init__(self, kills: Sequence[tuple[int, Moment]]) -> None:
        self.count = 0
        self.deaths = 0
        self._kills = dict(kills)

    def feed(self, gateway: SimulatedGateway, event: GatewayEvent) -> None:
        """Do what `SimulatedGateway.feed` does, and die where that is due."""
        if gateway._core is None:
            return
        effects = gateway._core.handle(event, gateway._clock.now_s)
        moment = None if gateway._store.batch.is_empty else self._take_moment()
        if moment is Moment.BEFORE_COMMIT:
            self._kill(gateway)
            return
        gateway._store.batch.commit()
        if moment is Moment.AFTER_COMMIT:
            effects = []
        elif moment is Moment.AMONG_EFFECTS:
            effects = effects[: len(effects) // 2]
        for effect in effects:
            gateway._carry_out(effect)
        if moment is not None:
            self._kill(gateway)
        gateway._schedule_wakeup()

    def _take_moment(self) -> Moment | None:
        self.count += 1
        return self._kills.get(self.count)

    def _kill(self, gateway: SimulatedGateway) -> None:
        self.deaths += 1
        gateway.die(outage_s=OUTAGE_S)


@contextmanager
def dying_at(*kills: tuple[int, Moment]) -> Iterator[Writes]:
    """Kill gateways that run within at these writes, counted from 1."""
    writes = Writes(kills)
    with mock.patch.object(
        SimulatedGateway, "feed", lambda gateway, event: writes.feed(gateway, event)
    ):
        yield writes
