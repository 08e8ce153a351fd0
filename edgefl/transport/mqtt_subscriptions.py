"""The subscriptions of one connection: asked for at once, and again where they were refused."""

import logging
from collections import deque
from collections.abc import Sequence

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

_LOGGER = logging.getLogger(__name__)

_FILTERS_PER_SUBSCRIBE = 8
"""AWS IoT's limit; others allow more."""
_AGAIN_S = 30.0
"""A cluster short of a leader refuses for a while what it will take later."""


class Subscriptions:
    """Keeps the broker's list of filters as the link wants it.

    Args:
        client: Of this connection.
        speaks_5: Whether it speaks MQTT 5.
        filters: What is wanted; may grow meanwhile.
    """

    def __init__(self, client: paho.Client, filters: Sequence[str], *, speaks_5: bool) -> None:
        """Start with nothing asked for."""
        self._client = client
        self._filters = filters
        self._speaks_5 = speaks_5
        self._asked_count = 0
        self._unanswered: dict[int, tuple[float, tuple[str, ...]]] = {}
        self._refused: deque[tuple[float, str]] = deque()

    @property
    def unanswered_since(self) -> float | None:
        """When the oldest unanswered question was asked, on the monotonic clock; None: none is."""
        return min((asked_at for asked_at, _ in self._unanswered.values()), default=None)

    def ask(self, now: float) -> None:
        """Send SUBSCRIBE for what was not asked for yet, and for what was refused long ago."""
        while self._asked_count < len(self._filters):
            some = self._filters[self._asked_count : self._asked_count + _FILTERS_PER_SUBSCRIBE]
            self._asked_count += len(some)
            self._subscribe(some, now)
        while self._refused and self._refused[0][0] <= now:
            self._subscribe([self._refused.popleft()[1]], now)

    def take_answer(self, packet_id: int, codes: Sequence[ReasonCode], now: float) -> None:
        """Note what the broker has granted; a refused filter is named and asked for again later."""
        _, asked = self._unanswered.pop(packet_id, (now, ()))
        for topic_filter, code in zip(asked, codes, strict=False):
            if code.is_failure:
                _LOGGER.error("the broker refused a subscription: %s: %s", topic_filter, code)
                self._refused.append((now + _AGAIN_S, topic_filter))

    def _subscribe(self, filters: Sequence[str], now: float) -> None:
        if self._speaks_5:
            options = SubscribeOptions(qos=1)
            result, packet_id = self._client.subscribe([(name, options) for name in filters])
        else:
            result, packet_id = self._client.subscribe([(name, 1) for name in filters])
        if result == MQTTErrorCode.MQTT_ERR_SUCCESS and packet_id is not None:
            self._unanswered[packet_id] = (now, tuple(filters))
