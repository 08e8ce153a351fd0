"""Events on their way to the gateway's core, handed over in batches that are committed as one."""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.events import GatewayEvent
from edgefl.transport.core_events import Woken

MOST_EVENTS: Final = 64
"""Beyond it the transport waits, whose own bounds then hold back the broker."""


class EventBatches:
    """A bounded queue that gives out all that is there.

    Args:
        clock_s: The core's clock.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """Start empty."""
        self._clock_s = clock_s
        self._queue: asyncio.Queue[GatewayEvent] = asyncio.Queue(MOST_EVENTS)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self._queue.empty()

    async def put(self, event: GatewayEvent) -> None:
        """Add an event, when there is room."""
        await self._queue.put(event)

    def nudge(self) -> None:
        """Have a batch given out soon; a full queue sees to that by itself."""
        if not self._queue.full():
            self._queue.put_nowait(Woken())

    async def next(self, wakeup_s: float | None) -> list[GatewayEvent]:
        """Wait for events, and return those that are there; `Woken` where the time is up.

        Args:
            wakeup_s: When the core wants `Woken`; a flood of other events does not put it off.
        """
        batch: list[GatewayEvent] = []
        delay_s = None if wakeup_s is None else max(0.0, wakeup_s - self._clock_s())
        try:
            async with asyncio.timeout(delay_s):
                batch.append(await self._queue.get())
        except TimeoutError:
            return [Woken()]
        while not self._queue.empty():
            batch.append(self._queue.get_nowait())
        if wakeup_s is not None and self._clock_s() >= wakeup_s:
            batch.append(Woken())
        return batch
