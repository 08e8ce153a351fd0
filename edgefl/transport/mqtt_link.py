"""The network thread of an MQTT client: connect, serve, lose, wait, again; paho does the packets.

Every call into paho happens in this one thread, so its callbacks need no locks, and whatever it
raises ends one connection and never the thread. A fresh paho client is made for each connection:
what was not acknowledged lives in the outbox, not in paho.
"""

import itertools
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence

from edgefl.transport.backoff import Backoff
from edgefl.transport.base import LinkDown, LinkDownReason, TransportEvent, Will
from edgefl.transport.broker_choice import BrokerChoice
from edgefl.transport.broker_url import BrokerAddress
from edgefl.transport.mqtt5 import BrokerLimits
from edgefl.transport.mqtt_connection import MqttConnection
from edgefl.transport.mqtt_history import LinkHistory
from edgefl.transport.outbox import Outbox, Outgoing
from edgefl.transport.settings import MqttSettings

_LOGGER = logging.getLogger(__name__)


class MqttLink:
    """Keeps one connection to one of the brokers alive in a thread of its own.

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
        self._choice = BrokerChoice(settings)
        self._will = will
        self._outbox = outbox
        self._emit = emit
        self._on_progress = on_progress
        self._filters: list[str] = []
        self._connection: MqttConnection | None = None
        self._has_changed_version = False
        self._closing = threading.Event()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        name = f"mqtt-{settings.client_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def limits(self) -> BrokerLimits:
        """What the present broker said about itself."""
        connection = self._connection
        return BrokerLimits() if connection is None else connection.limits

    @property
    def address(self) -> BrokerAddress:
        """The broker that is used or tried now."""
        return self._choice.address

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add_filter(self, topic_filter: str) -> None:
        """Subscribe now, if connected, and at each later connection."""
        if topic_filter not in self._filters:
            self._filters.append(topic_filter)
            self.wake()

    def acknowledge(self, tickets: Sequence[int]) -> None:
        """Tell the broker that messages are safe, where the settings say that this waits."""
        connection = self._connection
        if connection is not None and tickets:
            for ticket in tickets:
                connection.acknowledge(ticket)
            self.wake()

    def move_to(self, reference: str) -> bool:
        """Leave the present broker for another one.

        Returns:
            False where the reference names no usable broker; then the link stays.
        """
        if not self._choice.refer(reference):
            return False
        connection = self._connection
        if connection is not None:
            connection.ask_to_end()
            self.wake()
        return True

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
        history = LinkHistory(started_at=time.monotonic())
        backoff = Backoff(
            first_s=settings.backoff_first_s,
            cap_s=settings.backoff_cap_s,
            later_cap_s=max(settings.backoff_cap_s, settings.backoff_later_cap_s),
            draw=random.random,  # spreads reconnections; guards nothing
        )
        for number in itertools.count():
            if self._closing.is_set():
                break
            address = self._choice.address
            connection = MqttConnection(
                settings,
                self._choice,
                self._will,
                self._outbox,
                self._filters,
                number,
                self._emit,
                self._on_progress,
            )
            self._connection = connection
            down = self._serve(connection)
            if self._closing.is_set():
                break
            now = time.monotonic()
            if connection.is_client_id_refused and self._choice.note_client_id_refused():
                continue
            if self._tries_other_version(connection):
                continue
            down = self._judge(history, connection, down, now)
            history.remind(now, waiting_for=str(address))
            if history.was_stable:
                backoff.reset()
            self._choose_next(connection, address, now)
            if self._choice.has_tried_all:
                self._closing.wait(backoff.next_delay_s())

    def _serve(self, connection: MqttConnection) -> LinkDown:
        """Run one connection to its end and say how it ended."""
        try:
            return connection.run(self._wake_read, self._closing)
        except OSError as error:  # the socket, not what came over it
            _LOGGER.debug("connection ended by the socket", exc_info=True)
            return connection.explain_socket_error(error)
        except Exception as error:  # paho raises many types at foreign bytes
            _LOGGER.debug("connection ended by an exception", exc_info=True)
            detail = f"unreadable answer ({type(error).__name__})"
            return LinkDown(reason=LinkDownReason.NOT_MQTT, detail=detail)
        finally:
            connection.drop()

    def _tries_other_version(self, connection: MqttConnection) -> bool:
        """Change the version where that may be the obstacle; once for each failing address."""
        if not connection.may_lack_version or not self._choice.note_version_refused():
            self._has_changed_version = False
            return False
        self._has_changed_version = not self._has_changed_version
        return self._has_changed_version

    def _judge(
        self, history: LinkHistory, connection: MqttConnection, down: LinkDown, now: float
    ) -> LinkDown:
        """Find the reason in the light of the past, tell it, and keep what was not delivered."""
        messages = connection.unacknowledged()
        if messages and down.reason is LinkDownReason.LOST:
            messages[0].loss_count += 1
        down = history.record(
            down,
            ready_at=connection.ready_at,
            had_session=connection.had_session,
            now=now,
            blame_count=messages[0].loss_count if messages else 0,
        )
        self._return_unacknowledged(messages, down)
        if history.is_news:
            self._emit(down)
        return down

    def _choose_next(self, connection: MqttConnection, address: BrokerAddress, now: float) -> None:
        """Let the choice of the next broker learn from this connection."""
        if connection.ready_at is not None:
            self._choice.note_lost(
                lived_s=now - connection.ready_at, died_silently=connection.died_silently
            )
        elif self._choice.address == address:  # else the broker has referred to another one
            self._choice.note_failed()

    def _return_unacknowledged(self, messages: list[Outgoing], down: LinkDown) -> None:
        """Put what the broker did not acknowledge back; set aside what keeps breaking the link."""
        if messages and down.reason is LinkDownReason.MESSAGE_REFUSED:
            refused = messages.pop(0)
            self._outbox.settle()
            self._outbox.count_refused()
            _LOGGER.error(
                "message set aside after %s broken connections: topic=%s size_bytes=%s",
                refused.loss_count,
                refused.topic,
                len(refused.payload),
            )
        self._outbox.give_back(messages)
