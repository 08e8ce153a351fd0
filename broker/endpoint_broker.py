"""amqtt's broker with what a fleet needs and amqtt 0.12 gets wrong put right.

Found by reading and by test in amqtt 0.12.1, and handled here:
- a session that a second connection took over stays marked as disconnected, so its client hears
  nothing; here the first connection is ended and awaited before the second is served;
- each new connection is sent, at QoS 0, every retained message that matches anybody's
  subscription, while the table it walks may change; here only SUBSCRIBE replays retained messages;
- messages that were acknowledged, but not yet passed on when their sender disconnects, stay behind
  in its session; here they are passed on first;
- keepalive is counted but never acted on; here silence of 1.5 times the keepalive ends the link;
- messages kept for a client that is away have no bound and arrive marked as retained; here the
  oldest go beyond a bound, and they arrive as what they are;
- a packet may announce 256 MiB; here the link ends at a bound;
- the whole payload is formatted for a debug line that nobody reads; here that costs nothing.

Left as they are, for the layers above do not rely on a PUBACK: a message that was in flight to a
client when its link broke, or that it did not acknowledge for five seconds, is not sent again; and
nothing survives the broker's end.
"""

import asyncio
import logging
from typing import cast

from amqtt.adapters import ReaderAdapter, StreamWriterAdapter, WriterAdapter
from amqtt.broker import Broker, Server
from amqtt.contexts import BrokerConfig
from amqtt.errors import MQTTError, NoDataError
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler, Subscription
from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import ApplicationMessage, Session

_LOGGER = logging.getLogger(__name__)

LISTENER = "loopback"
MAX_PACKET_BYTES = 1 << 20
MAX_AWAY_MESSAGES = 256
CONNECT_WITHIN_S = 10.0
_TAKE_OVER_S = 2.0
_TAKE_OVER_POLL_S = 0.01


class LoopbackAccess(BaseAuthPlugin):
    """Lets every client in that comes from this machine, without making its session anonymous.

    amqtt keeps no messages for sessions that it calls anonymous.
    """

    async def authenticate(self, *, session: Session) -> bool | None:
        """Tell whether the peer is on loopback."""
        return session.remote_address in {"127.0.0.1", "::1"}


class EdgeBroker(Broker):
    """The broker behind the embedded endpoint; connections are accepted by the caller."""

    def __init__(self) -> None:
        """Prepare without listening."""
        self._subscribing: set[str | None] = set()
        config = BrokerConfig.from_dict(
            {
                "listeners": {"default": {"type": "external"}, LISTENER: {"type": "external"}},
                "plugins": {"broker.endpoint_broker.LoopbackAccess": {}},
                "session_expiry_interval": 3600,
            }
        )
        super().__init__(config)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end; whatever its bytes are, only this one suffers."""
        try:
            await self.external_connected(
                GuardedReader(reader), StreamWriterAdapter(writer), LISTENER
            )
        except Exception as error:
            _LOGGER.warning("connection ended by %s", type(error).__name__)
            _LOGGER.debug("connection ended", exc_info=True)
        finally:
            writer.close()

    async def _handle_client_session(
        self,
        reader: ReaderAdapter,
        writer: WriterAdapter,
        client_session: Session,
        handler: BrokerProtocolHandler,
        server: Server,
        listener_name: str,
    ) -> None:
        """End an earlier connection of the same client first."""
        await self._end_connection(client_session.client_id)
        # the factor is [MQTT-3.1.2-24]'s
        client_session.keep_alive = client_session.keep_alive * 3 // 2
        await super()._handle_client_session(
            reader, writer, client_session, handler, server, listener_name
        )

    async def _delete_session(self, client_id: str) -> None:
        """End the connection of a session that is thrown away."""
        await self._end_connection(client_id)
        await super()._delete_session(client_id)

    async def _end_connection(self, client_id: str | None) -> None:
        """Close a connected client's link and wait until its will is on the way.

        Raises:
            MQTTError: it does not end; the new connection is refused, and its client tries again.
        """
        session, handler = self._sessions.get(client_id or "", (None, None))
        if session is None or handler is None or not session.transitions.is_connected():
            return
        _LOGGER.warning("client %s connected a second time: the first is closed", client_id)
        waited_s = 0.0
        while session.transitions.is_connected():
            if waited_s >= _TAKE_OVER_S:
                raise MQTTError("the earlier connection does not end")
            await handler.handle_connection_closed()
            await asyncio.sleep(_TAKE_OVER_POLL_S)
            waited_s += _TAKE_OVER_POLL_S

    async def _client_message_loop(
        self, client_session: Session, handler: BrokerProtocolHandler
    ) -> None:
        """Serve a client until it is gone, and pass on all that was taken from it."""
        gone = asyncio.ensure_future(handler.wait_disconnect())
        subscribe = asyncio.ensure_future(handler.get_next_pending_subscription())
        unsubscribe = asyncio.ensure_future(handler.get_next_pending_unsubscription())
        deliver = asyncio.ensure_future(handler.mqtt_deliver_next_message())
        try:
            while not gone.done():
                await asyncio.wait(
                    [gone, subscribe, unsubscribe, deliver], return_when=asyncio.FIRST_COMPLETED
                )
                if subscribe.done():
                    await self._handle_subscription(client_session, handler, subscribe)
                    subscribe = asyncio.ensure_future(handler.get_next_pending_subscription())
                if unsubscribe.done():
                    await self._handle_unsubscription(client_session, handler, unsubscribe)
                    unsubscribe = asyncio.ensure_future(handler.get_next_pending_unsubscription())
                if deliver.done():
                    await self._deliver(client_session, handler, deliver)
                    deliver = asyncio.ensure_future(handler.mqtt_deliver_next_message())
            deliver.cancel()
            await self._deliver(client_session, handler, deliver)
            while not client_session.delivered_message_queue.empty():
                deliver = asyncio.ensure_future(handler.mqtt_deliver_next_message())
                await self._deliver(client_session, handler, deliver)
            await self._handle_disconnect(client_session, handler, gone)
        finally:
            waiters = [gone, subscribe, unsubscribe, deliver]
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)

    async def _deliver(
        self,
        client_session: Session,
        handler: BrokerProtocolHandler,
        deliver: "asyncio.Future[ApplicationMessage | None]",
    ) -> None:
        """Pass one message on; a sender that breaks the rules of topics is cut off."""
        await asyncio.wait([deliver])
        if deliver.cancelled() or deliver.result() is None:
            return
        if not await self._handle_message_delivery(client_session, handler, deliver):
            await handler.handle_connection_closed()

    async def _handle_subscription(
        self,
        client_session: Session,
        handler: BrokerProtocolHandler,
        subscribe_waiter: "asyncio.Future[Subscription]",
    ) -> None:
        """Note that this client has asked, so that retained messages are for it."""
        self._subscribing.add(client_session.client_id)
        try:
            await super()._handle_subscription(client_session, handler, subscribe_waiter)
        finally:
            self._subscribing.discard(client_session.client_id)

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Replay retained messages only to a client that is subscribing."""
        if session.client_id in self._subscribing:
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def _retain_broadcast_message(
        self, broadcast: dict[str, object], qos: int, target_session: Session
    ) -> None:
        """Keep a message for a client that is away; beyond the bound the oldest goes."""
        while target_session.retained_messages.qsize() >= MAX_AWAY_MESSAGES:
            target_session.retained_messages.get_nowait()
        await super()._retain_broadcast_message(broadcast, qos, target_session)

    async def _publish_session_retained_messages(self, session: Session) -> None:
        """Deliver what was kept for a client that was away, not marked as retained."""
        handler = self._get_handler(session)
        deliveries = []
        while handler is not None and not session.retained_messages.empty():
            kept = session.retained_messages.get_nowait()
            delivery = handler.mqtt_publish(kept.topic, kept.data, kept.qos, retain=False)
            deliveries.append(asyncio.ensure_future(delivery))
        await asyncio.gather(*deliveries, return_exceptions=True)

    async def _broadcast_message(
        self,
        session: Session | None,
        topic: str | None,
        data: bytes | bytearray | None,
        force_qos: int | None = None,
    ) -> None:
        """Queue a message as amqtt does, in a dictionary that is cheap to format."""
        broadcast = _QuietDict(session=session, topic=topic, data=data)
        if force_qos is not None:
            broadcast["qos"] = force_qos
        await self._broadcast_queue.put(cast("dict[str, object]", broadcast))


class GuardedReader(ReaderAdapter):
    """Reads from a connection within bounds of size and time.

    Args:
        reader: The connection's stream.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        """Begin before the CONNECT packet."""
        self._reader = reader
        self._has_begun = False
        self._is_cut = False

    async def read(self, n: int = -1) -> bytes:
        """Return exactly n bytes.

        Raises:
            NoDataError: the peer was silent for too long or announces too large a packet.
        """
        if self._is_cut or not 0 <= n <= MAX_PACKET_BYTES:
            self._is_cut = True
            raise NoDataError("silent for too long, or too large a packet")
        try:
            if self._has_begun:
                return await self._reader.readexactly(n)
            async with asyncio.timeout(CONNECT_WITHIN_S):
                first = await self._reader.readexactly(n)
        except TimeoutError as error:
            raise NoDataError("no CONNECT packet") from error
        except asyncio.CancelledError:
            # amqtt cancels a read when the keepalive time is over, and would then read on
            self._is_cut = True
            raise
        self._has_begun = True
        return first

    def feed_eof(self) -> None:
        """End the stream."""
        self._reader.feed_eof()


class _QuietDict(dict[str, object]):
    """A dictionary that does not show its payload."""

    def __repr__(self) -> str:
        return f"<message on {self.get('topic')}>"
