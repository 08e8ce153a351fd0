"""One connection to one broker: CONNECT, subscriptions, messages both ways, until it ends."""

import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgefl.errors import EdgeflError
from edgefl.transport import mqtt5
from edgefl.transport.base import Inbound, LinkDown, LinkDownReason, LinkUp, TransportEvent, Will
from edgefl.transport.broker_choice import BrokerChoice
from edgefl.transport.broker_url import is_loopback
from edgefl.transport.mqtt5 import BrokerLimits
from edgefl.transport.mqtt_client import OneConnection
from edgefl.transport.mqtt_socket import begins_like_connack, has_buffered, watch
from edgefl.transport.mqtt_subscriptions import Subscriptions
from edgefl.transport.mqtt_window import SendingWindow
from edgefl.transport.outbox import Outbox, Outgoing
from edgefl.transport.settings import MqttSettings, MqttVersion
from edgefl.transport.tls import failure_of

_LOGGER = logging.getLogger(__name__)

_PING_PATIENCE_S = 20.0
_LOCAL_TRIAL_S = 2.0
_ANSWER_FACTOR = 2
"""A cluster that has just lost a node answers only after it has chosen new leaders."""
_TICKET_BITS, _TICKET_MASK = 16, 0xFFFF


class MqttConnection:
    """Serves one connection in the thread that calls it.

    Args:
        settings: How the link behaves.
        choice: Where to connect and with which version; learns from what happens.
        will: What the broker says when this process vanishes.
        outbox: Messages to send.
        filters: Subscriptions; may grow meanwhile.
        number: Of this connection in the life of the link; part of its tickets.
        emit: Takes events in order; may block.
        on_progress: Called when the outbox has shrunk.
    """

    def __init__(
        self,
        settings: MqttSettings,
        choice: BrokerChoice,
        will: Will | None,
        outbox: Outbox,
        filters: Sequence[str],
        number: int,
        emit: Callable[[TransportEvent], None],
        on_progress: Callable[[], None],
    ) -> None:
        """Prepare; nothing happens before `run`."""
        self._settings = settings
        self._choice = choice
        self._address = choice.address
        self._speaks_5 = choice.version is MqttVersion.V5
        self._keepalive_s = choice.keepalive_s
        self._number = number
        self._safe: deque[int] = deque()
        self._emit = emit
        self._on_progress = on_progress
        self._early: list[Inbound] = []
        self._connack: LinkUp | None = None
        self._refusal: str | None = None
        self._goodbye = ""
        self._has_read = False
        self._last_read_at = time.monotonic()
        self.limits = BrokerLimits()
        self._has_asked = False
        self._must_end = False
        self._is_version_refused = False
        self.died_silently = False
        self.is_client_id_refused = False
        self.ready_at: float | None = None
        self._client = self._make_client(will)
        self._subscriptions = Subscriptions(self._client, filters, speaks_5=self._speaks_5)
        self._window = SendingWindow(
            self._client,
            outbox,
            size=settings.max_in_flight,
            size_bytes=settings.max_in_flight_bytes,
            speaks_5=self._speaks_5,
            broker=str(self._address),
        )

    def _make_client(self, will: Will | None) -> OneConnection:
        client = OneConnection(
            self._settings,
            self._address,
            client_id=self._choice.client_id,
            will=will,
            speaks_5=self._speaks_5,
        )
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        return client

    # ------------------------------------------------------------ the loop

    def run(self, wake: socket.socket, closing: threading.Event) -> LinkDown:
        """Serve until the link breaks or `closing` is set."""
        down = self._connect()
        if down is not None:
            return down
        deadline = time.monotonic() + self._answer_within_s()
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            while not closing.is_set() and self._client.socket() is not None:
                down = self._step(wake, selector, deadline)
                if down is not None:
                    return down
        return self.explain_end()

    def _answer_within_s(self) -> float:
        """Bound the wait for the broker's answer.

        A broker on this machine that knows MQTT 5 answers at once; amqtt, which does not, stays
        silent and would cost each client the whole time.
        """
        patience_s = _ANSWER_FACTOR * self._settings.connect_timeout_s
        is_trial = self._speaks_5 and self._settings.version is MqttVersion.AUTO
        if is_trial and is_loopback(self._address.host):
            return min(patience_s, _LOCAL_TRIAL_S)
        return patience_s

    def _connect(self) -> LinkDown | None:
        """Open the socket and send CONNECT."""
        address = self._address
        try:
            if address.scheme.has_tls and self._settings.tls is not None:
                # Made anew each time: certificates may have been renewed since.
                self._client.use_tls(self._settings.tls.context())
            if self._speaks_5:
                properties = mqtt5.connect_properties(self._settings)
                clean_start = self._settings.clean_start
                self._client.connect(
                    address.host,
                    address.port,
                    self._keepalive_s,
                    clean_start=clean_start,
                    properties=properties,
                )
            else:
                self._client.connect(address.host, address.port, self._keepalive_s)
        except EdgeflError as error:
            return LinkDown(reason=LinkDownReason.TLS, detail=str(error))
        except paho.WebsocketConnectionError as error:
            detail = f"no WebSocket for MQTT at {address} ({error})"
            return LinkDown(reason=LinkDownReason.NOT_MQTT, detail=detail)
        except OSError as error:
            return self.explain_socket_error(error)
        self._has_asked = True
        return None

    def _step(
        self, wake: socket.socket, selector: selectors.BaseSelector, deadline: float
    ) -> LinkDown | None:
        """Wait for one thing to happen and handle it."""
        if self._connack is not None:
            self._subscriptions.ask(time.monotonic())
            self._become_ready()
        down = self._overdue(deadline)
        if down is not None:
            return down
        self._acknowledge()
        if self.ready_at is not None and self._window.pump(time.monotonic()):
            self._on_progress()
        sock = self._client.socket()
        if sock is None:
            return self.explain_end()
        number = sock.fileno()
        is_buffered = has_buffered(sock)
        wants = selectors.EVENT_READ
        if self._client.want_write():
            wants |= selectors.EVENT_WRITE
        watch(selector, number, wants)
        happened = {
            key.fd: mask for key, mask in selector.select(0 if is_buffered else self._idle_s())
        }
        if wake.fileno() in happened:
            wake.recv(4096)
        mask = happened.get(number, 0) | (selectors.EVENT_READ if is_buffered else 0)
        return self._transfer(sock, mask)

    def _overdue(self, deadline: float) -> LinkDown | None:
        """Say what the broker should have answered by now, or that this side wants to leave."""
        now = time.monotonic()
        if self._must_end:
            return LinkDown(reason=LinkDownReason.LOST, detail="left for another broker")
        if self.ready_at is None:
            detail = "connected, but no answer to CONNECT or SUBSCRIBE"
            is_late = now > deadline
            return LinkDown(reason=LinkDownReason.SILENT, detail=detail) if is_late else None
        asked_at = self._subscriptions.unanswered_since
        if asked_at is not None and now > asked_at + self._answer_within_s():
            return LinkDown(reason=LinkDownReason.LOST, detail="no answer to SUBSCRIBE")
        if now > self._last_read_at + self._keepalive_s + _PING_PATIENCE_S:
            self.died_silently = True
            return LinkDown(reason=LinkDownReason.LOST, detail="no answer to a ping")
        return None

    def _transfer(self, sock: object, mask: int) -> LinkDown | None:
        """Let paho read, write and look after the keepalive."""
        if mask & selectors.EVENT_READ:
            if not self._has_read and not begins_like_connack(sock):
                detail = "the first byte of its answer is not a CONNACK"
                return LinkDown(reason=LinkDownReason.NOT_MQTT, detail=detail)
            self._has_read = True
            self._note_silence()
            if self._client.loop_read() != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return self.explain_end()
        if mask & selectors.EVENT_WRITE:
            self._client.loop_write()
        self._client.loop_misc()
        return None if self._client.socket() is not None else self.explain_end()

    def _note_silence(self) -> None:
        """Start the clock of silence anew; remember for the end how long it had been."""
        now = time.monotonic()
        self.died_silently = now - self._last_read_at > self._keepalive_s + 1.0
        self._last_read_at = now

    def _idle_s(self) -> float:
        """Return the longest sleep that keeps pings and deadlines punctual."""
        punctual_s = min(5.0, self._keepalive_s / 10)
        if self._window.held_until is not None:
            punctual_s = min(punctual_s, max(0.05, self._window.held_until - time.monotonic()))
        return punctual_s if self.ready_at is not None else min(0.1, punctual_s)

    # ------------------------------------------------------------ what goes out

    def _become_ready(self) -> None:
        """Report the link once the broker has confirmed the subscriptions."""
        if (
            self.ready_at is None
            and self._subscriptions.unanswered_since is None
            and self._connack is not None
        ):
            self.ready_at = time.monotonic()
            self._choice.note_up()
            self._emit(self._connack)
            for inbound in self._early:
                self._emit(inbound)
            self._early.clear()

    def acknowledge(self, ticket: int) -> None:
        """Note that a message is safe; may be called in any thread, followed by a wake-up.

        Tickets of earlier connections are of no use: the broker sends their messages again.
        """
        if ticket >> _TICKET_BITS == self._number:
            self._safe.append(ticket & _TICKET_MASK)

    def _acknowledge(self) -> None:
        """Tell the broker what is safe."""
        while self._safe:
            self._client.ack(self._safe.popleft(), 1)

    # ------------------------------------------------------------ the end

    @property
    def may_lack_version(self) -> bool:
        """Tell whether the other version of MQTT may fare better.

        Some 3.1.1 brokers close without a word, or say nothing, at a CONNECT of MQTT 5.
        """
        is_unanswered = self._connack is None and self._refusal is None
        is_unanswered = is_unanswered and self._client.tls_error is None
        return self._is_version_refused or (self._has_asked and is_unanswered)

    def ask_to_end(self) -> None:
        """Let `run` return soon; may be called in any thread, followed by a wake-up."""
        self._must_end = True

    @property
    def had_session(self) -> bool:
        """Tell whether the broker knew this client from an earlier connection."""
        return self._connack is not None and self._connack.session_present

    def unacknowledged(self) -> list[Outgoing]:
        """Return the messages sent without a PUBACK, oldest first."""
        return self._window.take_unacknowledged()

    def drop(self) -> None:
        """Take leave if the link still stands, and close the socket."""
        sock = self._client.socket()
        if sock is not None and self._connack is not None:
            self._client.leave()
        if sock is not None:
            sock.close()
        self._client.close_opened()

    def explain_end(self) -> LinkDown:
        """Say how far the connection had come when it ended."""
        if self._refusal is not None:
            return LinkDown(reason=LinkDownReason.REFUSED, detail=self._refusal)
        if self._client.tls_error is not None:
            failure = failure_of(self._client.tls_error, host=self._address.host)
            if failure is not None:
                return LinkDown(reason=LinkDownReason.TLS, detail=failure.detail)
        if self.ready_at is not None:
            silence_s = time.monotonic() - self._last_read_at
            self.died_silently = self.died_silently or silence_s > self._keepalive_s + 1.0
            detail = self._goodbye or "the connection broke"
            return LinkDown(reason=LinkDownReason.LOST, detail=detail)
        detail = "the connection broke before the broker had answered"
        if self._address.scheme.has_tls:
            # With TLS 1.3 a server says no after the handshake, and its word may get lost.
            detail += "; perhaps it does not take this side's certificate"
        return LinkDown(reason=LinkDownReason.UNREACHABLE, detail=detail)

    def explain_socket_error(self, error: OSError) -> LinkDown:
        """Say why a socket could not be opened or broke."""
        failure = failure_of(error, host=self._address.host)
        if failure is not None:
            return LinkDown(reason=LinkDownReason.TLS, detail=failure.detail)
        if self.ready_at is not None or self._client.socket() is not None:
            return self.explain_end()
        detail = error.strerror or str(error) or type(error).__name__
        return LinkDown(reason=LinkDownReason.UNREACHABLE, detail=detail)

    # ------------------------------------------------------------ paho's callbacks

    def _on_connect(
        self,
        _client: paho.Client,
        _userdata: object,
        flags: paho.ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason_code.is_failure:
            self._refusal = mqtt5.words_of_refusal(reason_code, properties)
            self._is_version_refused = reason_code.value == mqtt5.UNSUPPORTED_VERSION
            self.is_client_id_refused = reason_code.value == mqtt5.BAD_CLIENT_ID
            self._follow(reason_code, properties)
            return
        self.limits = mqtt5.limits_of(properties)
        self._window.apply(self.limits)
        if self.limits.keepalive_s:
            self._keepalive_s = self.limits.keepalive_s
        self._connack = LinkUp(session_present=flags.session_present, broker=str(self._address))

    def _on_disconnect(
        self,
        _client: paho.Client,
        _userdata: object,
        flags: paho.DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if not flags.is_disconnect_packet_from_server:
            return
        self._goodbye = f"the broker said: {reason_code}"
        self._follow(reason_code, properties)

    def _follow(self, reason_code: ReasonCode, properties: Properties | None) -> None:
        """Go to the server that the broker refers to, if it does."""
        reference = mqtt5.server_reference(properties)
        if reason_code.value in mqtt5.REFERRALS and reference is not None:
            self._choice.refer(reference)

    def _on_message(
        self, _client: paho.Client, _userdata: object, message: paho.MQTTMessage
    ) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            _LOGGER.warning("message ignored: its topic is not UTF-8")
            self._client.ack(message.mid, message.qos)
            return
        ticket = None
        if self._settings.acknowledges_late and message.qos == 1:
            ticket = self._number << _TICKET_BITS | message.mid
        inbound = Inbound(
            topic=topic, payload=bytes(message.payload), retained=message.retain, ticket=ticket
        )
        if self.ready_at is None:
            self._early.append(inbound)
        else:
            self._emit(inbound)

    def _on_publish(
        self,
        _client: paho.Client,
        _userdata: object,
        packet_id: int,
        reason_code: ReasonCode,
        _properties: Properties,
    ) -> None:
        if self._window.take_answer(packet_id, reason_code, time.monotonic()):
            self._on_progress()

    def _on_subscribe(
        self,
        _client: paho.Client,
        _userdata: object,
        packet_id: int,
        reason_codes: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        self._subscriptions.take_answer(packet_id, reason_codes, time.monotonic())
