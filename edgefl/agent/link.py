"""An agent's link over its life: one transport after another, with sleeps between them."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence

from edgefl.errors import TransportError
from edgefl.transport.base import Transport, TransportEvent

_LOGGER = logging.getLogger(__name__)


class AgentLink:
    """The link to the broker, which may rest.

    The broker keeps the session while there is no link, and with it what it is sent.

    Args:
        make_transport: Returns a transport that was not started yet.
        filters: Topics to subscribe to.
        status_topic: Where a farewell is published.
        clock_s: Seconds of a clock that never goes back.
    """

    def __init__(
        self,
        *,
        make_transport: Callable[[], Transport],
        filters: Sequence[str],
        status_topic: str,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect to nothing yet."""
        self._make_transport = make_transport
        self._filters = filters
        self._status_topic = status_topic
        self._clock_s = clock_s
        self._transport: Transport | None = None
        self._is_closed = False
        self._wakes_at_s = 0.0

    @property
    def max_packet_bytes(self) -> int | None:
        """Largest packet that the broker takes; None: it did not say, or there is no link."""
        return None if self._transport is None else self._transport.max_packet_bytes

    async def events(self) -> AsyncIterator[TransportEvent]:
        """Yield the events of one transport after another until `close`; for one consumer."""
        while not self._is_closed:
            transport = self._make_transport()
            # First, so that the link counts as up only once the subscriptions stand.
            await transport.subscribe(*self._filters)
            await transport.start()
            self._transport = transport
            async for event in transport.events():
                yield event
            self._transport = None
            if not self._is_closed:
                await asyncio.sleep(max(0.0, self._wakes_at_s - self._clock_s()))

    async def publish(
        self, topic: str, payload: bytes, *, retain: bool, expiry_s: float | None
    ) -> None:
        """Hand a message to the transport; without one it is dropped, and said again later."""
        if self._transport is not None:
            await self._transport.publish(topic, payload, retain=retain, expiry_s=expiry_s)

    async def sleep(self, sleep_s: float, farewell: bytes) -> None:
        """Say a farewell on the status topic, and have no link for a while.

        Args:
            sleep_s: For how long.
            farewell: What the status topic says meanwhile.
        """
        transport = self._transport
        if transport is None:
            return
        # From now: the farewell may take a while, and the gateway counts from it.
        self._wakes_at_s = self._clock_s() + sleep_s
        await transport.publish(self._status_topic, farewell, retain=True)
        await transport.close()

    async def renew(self) -> None:
        """Give the present connection up for another one; the broker keeps the session."""
        if self._transport is not None:
            await self._transport.close()

    async def close(self, farewell: bytes) -> None:
        """Say a farewell and end the link for good."""
        self._is_closed = True
        transport = self._transport
        if transport is None:
            return
        with contextlib.suppress(TransportError):
            await transport.publish(self._status_topic, farewell, retain=True)
        await transport.close()
