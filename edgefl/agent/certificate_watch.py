"""Looks after the certificate while the agent runs: now and then, and when the gateway says so."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from edgefl.agent.events import CertificateWanted
from edgefl.agent.renewal import CertificateKeeper
from edgefl.errors import EdgeflError
from edgefl.protocol.enrolment_messages import CertificateIssued

_LOGGER = logging.getLogger(__name__)

_LOOK_S: Final = 3600.0


class CertificateWatch:
    """Asks for the next certificate in time.

    A certificate that cannot be renewed ends nothing: the agent goes on as long as it is valid, and
    says what is wrong.

    Args:
        keeper: The certificate; None for a device that is not enrolled.
        put: Gives the core an event.
        look_s: How often to look whether it is time.
    """

    def __init__(
        self,
        keeper: CertificateKeeper | None,
        put: Callable[[CertificateWanted], Awaitable[None]],
        *,
        look_s: float = _LOOK_S,
    ) -> None:
        """Look at nothing yet."""
        self._keeper = keeper
        self._put = put
        self._look_s = look_s

    async def run(self) -> None:
        """Look for ever."""
        while self._keeper is not None:
            try:
                request = await asyncio.to_thread(self._keeper.wanted)
                if request is not None:
                    await self._put(CertificateWanted(request=request))
            except EdgeflError as error:
                _LOGGER.warning("the certificate cannot be renewed: %s", error)
            await asyncio.sleep(self._look_s)

    async def take(self, message: CertificateIssued) -> None:
        """Take what the gateway sent."""
        if self._keeper is None:
            return
        try:
            request = await asyncio.to_thread(self._keeper.take, message)
            if request is not None:
                await self._put(CertificateWanted(request=request))
        except EdgeflError as error:
            _LOGGER.warning("a certificate that the gateway sent is ignored: %s", error)
