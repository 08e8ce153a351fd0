"""The gateway's link to a broker of others: checks that it is safe, carries messages over it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace

from broker.broker_check import check_broker
from broker.events import Json, Reported, UploadMoved
from edgefl.errors import TransportError
from edgefl.protocol import topics
from edgefl.transport.backoff import Backoff
from edgefl.transport.base import LinkUp, TransportEvent, Will
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.mqtt import MqttTransport
from edgefl.transport.settings import BACKOFF_CAP_S, MqttSettings
from edgefl.transport.tls import TlsSettings
from edgefl.types import FleetName

_LOGGER = logging.getLogger(__name__)
_CUT_S = 5.0
_AGAIN_FIRST_S, _AGAIN_CAP_S = 2.0, 30.0


class ExternalBroker:
    """A `GatewayLink` over brokers that others run, with fail-over among them.

    Args:
        brokers: Their addresses, in order of preference.
        tls: The gateway's own certificate; needed for addresses with TLS.
        fleet: Whose gateway this is.
        accepted: Codes of findings that its operator knows and takes, such as E-BROKER-QUEUE.
    """

    def __init__(
        self,
        *,
        brokers: tuple[BrokerAddress, ...],
        tls: TlsSettings | None,
        fleet: FleetName,
        accepted: Collection[str] = (),
    ) -> None:
        """Prepare; nothing is connected before the transport starts.

        Raises:
            ConfigError: TLS is asked for and there is no certificate.
        """
        self._fleet = fleet
        self._accepted = frozenset(accepted)
        self._settings = MqttSettings(
            brokers=brokers,
            tls=tls,
            client_id=f"edgefl-{fleet}-aggregator",
            keepalive_s=20,
            acknowledges_late=True,
            receive_maximum=4096,
            max_outbox_messages=4096,
            max_outbox_bytes=64 << 20,
            max_inbox_messages=8192,
            backoff_later_cap_s=BACKOFF_CAP_S,
            # To many devices: what one of them may have under way is the transfer's own window.
            max_in_flight_bytes=16 << 20,
        )
        will = Will(topic=topics.aggregator(fleet), payload=b"", retain=True)
        self._transport = _Watched(self._settings, will)
        self._is_closed = asyncio.Event()

    @property
    def transport(self) -> MqttTransport:
        """Carries the messages."""
        return self._transport

    @property
    def kind(self) -> str:
        """One word for the status page."""
        return "external"

    @property
    def streams(self) -> None:
        """None: to a broker chunks are messages like all others."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where devices reach it."""
        return tuple(str(address) for address in self._settings.brokers)

    def counters(self) -> dict[str, int]:
        """Return nothing: its operator counts for himself."""
        return {}

    async def start(self) -> None:
        """Do nothing: the broker may come up later than the gateway."""

    async def supervise(self) -> None:
        """Check the broker as soon as it can be reached; then wait for `close`.

        Raises:
            EnvironmentProblem: Running a fleet over it would lose messages or let strangers in.
        """
        closing = asyncio.create_task(self._is_closed.wait(), name="end of the link")
        checking = asyncio.create_task(self._check_when_reachable(), name="broker check")
        try:
            await asyncio.wait({closing, checking}, return_when=asyncio.FIRST_COMPLETED)
            if checking.done():
                await checking
            await closing
        finally:
            checking.cancel()
            closing.cancel()

    async def _check_when_reachable(self) -> None:
        """Try until the broker could be looked at."""
        backoff = Backoff(first_s=_AGAIN_FIRST_S, cap_s=_AGAIN_CAP_S, draw=lambda: 1.0)
        while True:
            try:
                return await self._check()
            except TransportError as error:
                _LOGGER.warning("the broker is not checked yet: %s", error)
            await asyncio.sleep(backoff.next_delay_s())

    async def _check(self) -> None:
        """Look at the broker and say what is wrong with it."""
        findings = await check_broker(self._settings, self._fleet)
        for finding in findings:
            is_accepted = finding.code in self._accepted
            if finding.is_fatal and not is_accepted:
                raise finding.to_error()
            _LOGGER.warning("%s%s", finding, " (accepted)" if is_accepted else "")
        if not findings:
            _LOGGER.info("the broker keeps messages, retained ones too, and takes no strangers")

    async def notices(self) -> AsyncIterator[UploadMoved | Reported]:
        """Yield nothing: chunks come as messages, and the broker has its own log."""
        nothing: tuple[Reported, ...] = ()
        for notice in nothing:
            yield notice

    async def close(self) -> None:
        """End `supervise`."""
        self._is_closed.set()

    # ------------------------------------------------------------ who is out

    def set_revoked(self, serials: Sequence[str], identities: Sequence[str]) -> None:
        """Leave it to the broker's list (`tls/revoked.crl`); the gateway refuses them anyway."""

    def set_certificates(self, chain: bytes, key: bytes, authorities: bytes) -> None:
        """Do nothing: the broker has its own, and the link reads its files at each connection."""

    def disconnect(self, identity: str, reason: str) -> None:
        """Cut a device off, by taking its session over for a moment; blocks.

        A broker of others has no other way that all of them know. The device comes back, is told
        why it may not take part, and stops.
        """
        client_id = f"edgefl-{self._fleet}-{identity}"
        settings = replace(
            self._settings, client_id=client_id, clean_start=True, session_expiry_s=0
        )
        try:
            asyncio.run(_take_over(settings))
        except (TimeoutError, TransportError):
            _LOGGER.warning("device=%s could not be cut off at the broker (%s)", identity, reason)

    def describe(self) -> dict[str, Json]:
        """Return where the broker is."""
        first = self._settings.brokers[0]
        return {"host": first.host, "port": first.port}


async def _take_over(settings: MqttSettings) -> None:
    transport = MqttTransport(settings)
    async with asyncio.timeout(_CUT_S):
        await transport.start()
        async for event in transport.events():
            if isinstance(event, LinkUp):
                break
    await transport.close()


class _Watched(MqttTransport):
    """Says so when the broker has forgotten what it acknowledged."""

    async def events(self) -> AsyncIterator[TransportEvent]:
        """Yield events in order until `close`. For one consumer only."""
        had_link = False
        async for event in super().events():
            if isinstance(event, LinkUp):
                if had_link and not event.session_present:
                    _LOGGER.warning(
                        "E-BROKER-FORGETS: the broker came back without this gateway's session, "
                        "so it may have lost what it had acknowledged; everything is said again. "
                        "Let it keep its state on disk (mosquitto: persistence true)"
                    )
                had_link = True
            yield event
