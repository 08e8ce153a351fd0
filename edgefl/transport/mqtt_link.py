"""The network thread of an MQTT client: connect, serve, lose, wait, again; paho does the packets.

Every call into paho happens in this one thread, so its callbacks need no locks, and whatever it
raises ends one connection and never the thread. A fresh paho client is made for each connection:
what was not acknowledged lives in the outbox, not in paho.
"""

import logging
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgefl.transport.backoff import Backoff
from edgefl.transport.base import (
    Inbound,
    LinkDown,
    LinkDownReason,
    LinkUp,
    TransportEvent,
    Will,
)
from edgefl.transport.mqtt_history import LinkHistory
from edgefl.transport.outbox import Outbox, Outgoing
from edgefl.transport.settings import MqttSettings

_LOGGER = logging.getLogger(__name__)

_CONNACK_BYTE = 0x20
_FILTERS_PER_SUBSCRIBE = 8
"""AWS IoT's limit; others allow more."""


class MqttLink:
    """Keeps one connection to the broker alive in a thread of its own.

    Args:
        settings: Where and how.
        will: What the broker says when this process vanishes.
        outbox: Messages to send.
        emit: Takes events in order, called in the network thread; may block to hold back the
            broker, and must return soon after `close` was called.
        on_progress: Called in the network thread when the outbox has shrunk.
    """

    def __init__(
        self,
        settings: MqttSettings,
        will: Will | None,
        outbox: Outbox,
        emit: Callable[[TransportEvent], None],
        on_progress: Callable[[], None],
    ) -> None:
        """Prepare; nothing happens before `start`."""
        self._settings = settings
        self._will = will
        self._outbox = outbox
        self._emit = emit
        self._on_progress = on_progress
        self._filters: list[str] = []
        self._closing = threading.Event()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        name = f"mqtt-{settings.client_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add_filter(self, topic_filter: str) -> None:
        """Subscribe now, if connected, and at each later connection."""
        if topic_filter not in self._filters:
            self._filters.append(topic_filter)
            self.wake()

    def wake(self) -> None:
        """Make the thread look at the outbox and the filters."""
        try:
            self._wake_write.send(b"\0")
        except BlockingIOError:
            return  # full: it will wake anyway
        except OSError:
            return  # closed meanwhile

    def close(self) -> None:
        """Disconnect and end the thread; blocks until it has ended."""
        self._closing.set()
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._wake_read.close()
        self._wake_write.close()

    def _run(self) -> None:
        """Connect for ever, with pauses."""
        settings = self._settings
        history = LinkHistory(host=settings.host, port=settings.port, started_at=time.monotonic())
        backoff = Backoff(
            first_s=settings.backoff_first_s,
            cap_s=settings.backoff_cap_s,
            draw=random.random,  # spreads reconnections; guards nothing
        )
        while not self._closing.is_set():
            connection = _Connection(
                settings, self._will, self._outbox, self._filters, self._emit, self._on_progress
            )
            down = self._serve(connection)
            if self._closing.is_set():
                break
            now = time.monotonic()
            messages = connection.unacknowledged()
            if messages and down.reason is LinkDownReason.LOST:
                messages[0].loss_count += 1
            blame_count = messages[0].loss_count if messages else 0
            down = history.record(
                down,
                ready_at=connection.ready_at,
                had_session=connection.had_session,
                now=now,
                blame_count=blame_count,
            )
            self._return_unacknowledged(messages, down)
            if history.was_stable:
                backoff.reset()
            if history.is_news:
                self._emit(down)
            history.remind(now)
            self._pause(backoff.next_delay_s())

    def _serve(self, connection: "_Connection") -> LinkDown:
        """Run one connection to its end and say how it ended."""
        try:
            return connection.run(self._wake_read, self._closing)
        except OSError:  # the socket, not what came over it
            _LOGGER.debug("connection ended by the socket", exc_info=True)
            return connection.explain_end()
        except Exception as error:  # paho raises many types at foreign bytes
            _LOGGER.debug("connection ended by an exception", exc_info=True)
            detail = f"unreadable answer ({type(error).__name__})"
            return LinkDown(reason=LinkDownReason.NOT_MQTT, detail=detail)
        finally:
            connection.drop()

    def _return_unacknowledged(self, messages: list[Outgoing], down: LinkDown) -> None:
        """Put what the broker did not acknowledge back; set aside what keeps breaking the link."""
        if messages and down.reason is LinkDownReason.MESSAGE_REFUSED:
            refused = messages.pop(0)
            self._outbox.settle()
            _LOGGER.error(
                "message set aside after %s broken connections: topic=%s size_bytes=%s",
                refused.loss_count,
                refused.topic,
                len(refused.payload),
            )
        self._outbox.give_back(messages)

    def _pause(self, delay_s: float) -> None:
        """Wait, but not beyond `close`."""
        self._closing.wait(delay_s)


class _Connection:
    """One TCP connection: CONNECT, subscriptions, messages both ways, until it breaks."""

    def __init__(
        self,
        settings: MqttSettings,
        will: Will | None,
        outbox: Outbox,
        filters: list[str],
        emit: Callable[[TransportEvent], None],
        on_progress: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._filters = filters
        self._emit = emit
        self._on_progress = on_progress
        self._asked_count = 0
        self._unanswered: set[int] = set()
        self._in_flight: dict[int, Outgoing] = {}
        self._early: list[Inbound] = []
        self._connack: LinkUp | None = None
        self._refusal: str | None = None
        self._has_read = False
        self.ready_at: float | None = None
        self._client = self._make_client(will)

    def _make_client(self, will: Will | None) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._settings.client_id,
            clean_session=False,
            protocol=MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = self._settings.connect_timeout_s
        client.max_inflight_messages = self._settings.max_in_flight
        if will is not None:
            client.will_set(will.topic, will.payload, qos=1, retain=will.retain)
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        return client

    def run(self, wake: socket.socket, closing: threading.Event) -> LinkDown:
        """Serve until the link breaks or `closing` is set."""
        settings = self._settings
        try:
            self._client.connect(settings.host, settings.port, settings.keepalive_s)
        except OSError as error:
            detail = error.strerror or type(error).__name__
            return LinkDown(reason=LinkDownReason.UNREACHABLE, detail=detail)
        deadline = time.monotonic() + settings.connect_timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            while not closing.is_set():
                sock = self._client.socket()
                if not isinstance(sock, socket.socket):  # None: paho has closed it
                    break
                down = self._step(sock, selector, deadline)
                if down is not None:
                    return down
        return self.explain_end()

    def _step(
        self, sock: socket.socket, selector: selectors.BaseSelector, deadline: float
    ) -> LinkDown | None:
        """Wait for one thing to happen and handle it."""
        if self._connack is not None:
            self._ask_subscriptions()
            self._become_ready()
        if self.ready_at is None and time.monotonic() > deadline:
            detail = "connected, but no answer to CONNECT or SUBSCRIBE"
            return LinkDown(reason=LinkDownReason.NOT_MQTT, detail=detail)
        self._pump()
        events = selectors.EVENT_READ
        if self._client.want_write():
            events |= selectors.EVENT_WRITE
        _watch(selector, sock, events)
        happened = {key.fileobj: mask for key, mask in selector.select(self._idle_s())}
        for wake in happened:
            if isinstance(wake, socket.socket) and wake is not sock:
                wake.recv(4096)
        return self._transfer(sock, happened.get(sock, 0))

    def _transfer(self, sock: socket.socket, mask: int) -> LinkDown | None:
        """Let paho read, write and look after the keepalive."""
        if mask & selectors.EVENT_READ:
            if not self._has_read and not _begins_like_connack(sock):
                detail = "the first byte of its answer is not a CONNACK"
                return LinkDown(reason=LinkDownReason.NOT_MQTT, detail=detail)
            self._has_read = True
            if self._client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return self.explain_end()
        if mask & selectors.EVENT_WRITE:
            self._client.loop_write()
        self._client.loop_misc()
        return None if self._client.socket() is not None else self.explain_end()

    def _idle_s(self) -> float:
        """Return the longest sleep that keeps pings and deadlines punctual."""
        punctual_s = min(5.0, self._settings.keepalive_s / 10)
        return punctual_s if self.ready_at is not None else min(0.1, punctual_s)

    def _ask_subscriptions(self) -> None:
        """Send SUBSCRIBE for the filters that this connection has not asked for."""
        while self._asked_count < len(self._filters):
            some = self._filters[self._asked_count : self._asked_count + _FILTERS_PER_SUBSCRIBE]
            self._asked_count += len(some)
            result, packet_id = self._client.subscribe([(name, 1) for name in some])
            if result == MQTTErrorCode.MQTT_ERR_SUCCESS and packet_id is not None:
                self._unanswered.add(packet_id)

    def _become_ready(self) -> None:
        """Report the link once the broker has confirmed the subscriptions."""
        if self.ready_at is None and not self._unanswered and self._connack is not None:
            self.ready_at = time.monotonic()
            self._emit(self._connack)
            for inbound in self._early:
                self._emit(inbound)
            self._early.clear()

    def _pump(self) -> None:
        """Hand messages to paho while the window has room."""
        took = False
        while self.ready_at is not None and len(self._in_flight) < self._settings.max_in_flight:
            message = self._outbox.take()
            if message is None:
                break
            took = True
            info = self._client.publish(
                message.topic, message.payload, qos=1, retain=message.retain
            )
            self._in_flight[info.mid] = message
        if took:
            self._on_progress()

    @property
    def had_session(self) -> bool:
        """Tell whether the broker knew this client from an earlier connection."""
        return self._connack is not None and self._connack.session_present

    def unacknowledged(self) -> list[Outgoing]:
        """Return the messages sent without a PUBACK, oldest first."""
        messages = list(self._in_flight.values())
        self._in_flight.clear()
        return messages

    def drop(self) -> None:
        """Take leave if the link still stands, and close the socket."""
        sock = self._client.socket()
        if sock is not None and self._connack is not None:
            self._client.disconnect()
        if sock is not None:
            sock.close()

    def explain_end(self) -> LinkDown:
        """Say how far the connection had come when it ended."""
        if self._refusal is not None:
            return LinkDown(reason=LinkDownReason.REFUSED, detail=self._refusal)
        if self.ready_at is not None:
            return LinkDown(reason=LinkDownReason.LOST, detail="the connection broke")
        detail = "the connection broke before the broker had answered"
        return LinkDown(reason=LinkDownReason.UNREACHABLE, detail=detail)

    def _on_connect(
        self,
        _client: paho.Client,
        _userdata: object,
        flags: paho.ConnectFlags,
        reason_code: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if reason_code.is_failure:
            self._refusal = str(reason_code)
        else:
            self._connack = LinkUp(session_present=flags.session_present)

    def _on_message(
        self, _client: paho.Client, _userdata: object, message: paho.MQTTMessage
    ) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            _LOGGER.warning("message ignored: its topic is not UTF-8")
            return
        inbound = Inbound(topic=topic, payload=bytes(message.payload), retained=message.retain)
        if self.ready_at is None:
            self._early.append(inbound)
        else:
            self._emit(inbound)

    def _on_publish(
        self,
        _client: paho.Client,
        _userdata: object,
        packet_id: int,
        _reason_code: ReasonCode,
        _properties: Properties,
    ) -> None:
        if self._in_flight.pop(packet_id, None) is not None:
            self._outbox.settle()
            self._on_progress()

    def _on_subscribe(
        self,
        _client: paho.Client,
        _userdata: object,
        packet_id: int,
        reason_codes: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        self._unanswered.discard(packet_id)
        if any(code.is_failure for code in reason_codes):
            _LOGGER.error("the broker refused a subscription: %s", self._filters)


def _begins_like_connack(sock: socket.socket) -> bool:
    """Look at the first byte without taking it; paho would take some of HTTP for packets."""
    try:
        first = sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True  # paho will meet the same error and report it
    return not first or first[0] == _CONNACK_BYTE


def _watch(selector: selectors.BaseSelector, sock: socket.socket, events: int) -> None:
    """Register the socket or change what is waited for."""
    if sock not in selector.get_map():
        selector.register(sock, events)
    elif selector.get_key(sock).events != events:
        selector.modify(sock, events)
