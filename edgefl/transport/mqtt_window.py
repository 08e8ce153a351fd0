"""What one connection has sent and the broker not acknowledged yet; pauses when told to."""

import logging

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from edgefl.transport import mqtt5
from edgefl.transport.mqtt5 import BrokerLimits
from edgefl.transport.outbox import Outbox, Outgoing

_LOGGER = logging.getLogger(__name__)

_HOLD_FIRST_S, _HOLD_CAP_S = 1.0, 30.0
_HEADER_ROOM_BYTES = 64
"""Fixed header, topic length, packet id and properties of a PUBLISH, with some to spare."""


class SendingWindow:
    """Moves messages from the outbox to the broker, so many at a time.

    Args:
        client: Of this connection.
        outbox: What waits.
        size: Most messages under way.
        size_bytes: Most bytes of payloads under way; a larger message goes by itself.
        speaks_5: Whether the connection speaks MQTT 5.
        broker: Its address, for the log.
    """

    def __init__(
        self,
        client: paho.Client,
        outbox: Outbox,
        *,
        size: int,
        size_bytes: int,
        speaks_5: bool,
        broker: str,
    ) -> None:
        """Start with nothing under way."""
        self._client = client
        self._outbox = outbox
        self._size = size
        self._size_bytes = size_bytes
        self._speaks_5 = speaks_5
        self._broker = broker
        self._limits = BrokerLimits()
        self._in_flight: dict[int, Outgoing] = {}
        self._in_flight_bytes = 0
        self._held_until: float | None = None
        self._hold_s = _HOLD_FIRST_S

    @property
    def held_until(self) -> float | None:
        """Monotonic clock until which the broker asked for a pause; None: it did not."""
        return self._held_until

    def apply(self, limits: BrokerLimits) -> None:
        """Keep to what the broker takes."""
        self._limits = limits
        if limits.receive_maximum is not None:
            self._size = min(self._size, limits.receive_maximum)

    def pump(self, now: float) -> bool:
        """Send what has room; return whether the outbox has shrunk."""
        if self._held_until is not None and now < self._held_until:
            return False
        self._held_until = None
        took = False
        while self._has_room():
            message = self._outbox.take(now)
            if message is None:
                break
            took = True
            if self._is_too_large(message):
                self._outbox.settle()
            else:
                self._send(message, now)
        return took

    def take_answer(self, packet_id: int, code: ReasonCode, now: float) -> bool:
        """Note an acknowledgement; return whether one more message is done with."""
        message = self._in_flight.pop(packet_id, None)
        if message is None:
            return False
        self._in_flight_bytes -= len(message.payload)
        if code.value == mqtt5.QUOTA_EXCEEDED:
            self._hold(message, now)
            return False
        if code.is_failure:
            _LOGGER.error(
                "the broker refused a message: topic=%s size_bytes=%s: %s",
                message.topic,
                len(message.payload),
                code,
            )
            self._outbox.count_refused()
        else:
            self._hold_s = _HOLD_FIRST_S
        self._outbox.settle()
        return True

    def take_unacknowledged(self) -> list[Outgoing]:
        """Remove and return the messages sent without a PUBACK, oldest first."""
        messages = list(self._in_flight.values())
        self._in_flight.clear()
        self._in_flight_bytes = 0
        return messages

    def _has_room(self) -> bool:
        """Tell whether another message may follow, whose size only the outbox knows."""
        if not self._in_flight:
            return True
        next_bytes = self._outbox.next_bytes
        fits = self._in_flight_bytes + next_bytes <= self._size_bytes
        return len(self._in_flight) < self._size and fits

    def _send(self, message: Outgoing, now: float) -> None:
        properties = None
        if self._speaks_5:
            properties = mqtt5.publish_properties(message.remaining_s(now))
        info = self._client.publish(
            message.topic, message.payload, 1, message.retain, properties=properties
        )
        self._in_flight[info.mid] = message
        self._in_flight_bytes += len(message.payload)

    def _is_too_large(self, message: Outgoing) -> bool:
        """Set a message aside that would only make the broker close the connection."""
        limit_bytes = self._limits.max_packet_bytes
        packet_bytes = len(message.payload) + len(message.topic.encode()) + _HEADER_ROOM_BYTES
        if limit_bytes is None or packet_bytes <= limit_bytes:
            return False
        _LOGGER.error(
            "message set aside: topic=%s size_bytes=%s, but %s takes no packet above %s bytes",
            message.topic,
            len(message.payload),
            self._broker,
            limit_bytes,
        )
        self._outbox.count_refused()
        return True

    def _hold(self, message: Outgoing, now: float) -> None:
        """Keep a message that the broker has no room for, and send more slowly."""
        self._outbox.give_back([message])
        self._held_until = now + self._hold_s
        _LOGGER.info("%s has no room; sending again in %.0f s", self._broker, self._hold_s)
        self._hold_s = min(2 * self._hold_s, _HOLD_CAP_S)
