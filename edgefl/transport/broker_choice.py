"""Which broker to try next, with which version of MQTT and which keepalive."""

import logging

from edgefl.errors import ConfigError
from edgefl.transport.broker_url import MAX_BROKERS, BrokerAddress, parse_broker_url
from edgefl.transport.settings import MqttSettings, MqttVersion

_LOGGER = logging.getLogger(__name__)

SHORTEST_KEEPALIVE_S = 30
CALM_S = 24 * 3600.0
"""After a day without a silent loss the keepalive is doubled again."""


class BrokerChoice:
    """Remembers what past connections taught about each address.

    *Version.* AUTO begins with MQTT 5. A broker that refuses it, or closes before it has answered,
    is tried with 3.1.1 next; what worked last stays.

    *Keepalive.* A connection that dies in silence, with a ping unanswered, was most likely
    forgotten by a router on the way: the next one pings twice as often. A day without such a loss
    doubles the time again, up to the one that was set.

    *Client id.* NATS takes none with a dot, which names of devices may have: there the dots become
    tildes, which no name has.

    *Address.* A link that stood is tried at the same address first; one that failed moves to the
    next address.

    Args:
        settings: The addresses and the first values.
    """

    def __init__(self, settings: MqttSettings) -> None:
        """Start at the first address."""
        self._settings = settings
        self._addresses = list(settings.brokers)
        self._index = 0
        self._failed_in_a_row = 0
        self._takes_5: dict[BrokerAddress, bool] = {}
        self._no_dots: set[BrokerAddress] = set()
        self._keepalive_s = settings.keepalive_s

    @property
    def address(self) -> BrokerAddress:
        """Where to connect next."""
        return self._addresses[self._index]

    @property
    def version(self) -> MqttVersion:
        """Which MQTT to speak there: V5 or V311."""
        if self._settings.version is not MqttVersion.AUTO:
            return self._settings.version
        takes_5 = self._takes_5.get(self.address, True)
        return MqttVersion.V5 if takes_5 else MqttVersion.V311

    @property
    def client_id(self) -> str:
        """The name to connect there under."""
        client_id = self._settings.client_id
        return client_id.replace(".", "~") if self.address in self._no_dots else client_id

    @property
    def keepalive_s(self) -> int:
        """The silence after which to ping."""
        return self._keepalive_s

    @property
    def has_tried_all(self) -> bool:
        """Tell whether every address has failed since the last link: time for a pause."""
        return self._failed_in_a_row % len(self._addresses) == 0

    def note_up(self) -> None:
        """Remember that the present address and version work."""
        self._failed_in_a_row = 0

    def note_version_refused(self) -> bool:
        """Take the other version at this address next time.

        Returns:
            Whether there is another one.
        """
        if self._settings.version is not MqttVersion.AUTO:
            return False
        self._takes_5[self.address] = not self._takes_5.get(self.address, True)
        return True

    def note_client_id_refused(self) -> bool:
        """Do without dots in the client id at this address.

        Returns:
            Whether that changes anything.
        """
        before = self.client_id
        self._no_dots.add(self.address)
        return self.client_id != before

    def note_failed(self) -> None:
        """Move on to the next address."""
        self._failed_in_a_row += 1
        self._index = (self._index + 1) % len(self._addresses)

    def note_lost(self, *, lived_s: float, died_silently: bool) -> None:
        """Learn from the end of a link that stood.

        Args:
            lived_s: How long it stood.
            died_silently: Whether a ping, sent after the full keepalive, had no answer.
        """
        before_s = self._keepalive_s
        if died_silently:
            shortest_s = min(SHORTEST_KEEPALIVE_S, self._settings.keepalive_s)
            self._keepalive_s = max(shortest_s, before_s // 2)
        elif lived_s >= CALM_S:
            self._keepalive_s = min(2 * before_s, self._settings.keepalive_s)
        if self._keepalive_s != before_s:
            _LOGGER.info("keepalive is %s s from now on, it was %s s", self._keepalive_s, before_s)

    def refer(self, reference: str) -> bool:
        """Go to another broker next, because the present one said so.

        Args:
            reference: HOST:PORT or a URL, several separated by spaces. Without a scheme it is
                reached as the present one is; one that would give TLS up is not taken.

        Returns:
            Whether one of them is usable.
        """
        present = self.address
        for part in reference.split()[:MAX_BROKERS]:
            text = part if "://" in part else f"{present.scheme.value}://{part}"
            try:
                address = parse_broker_url(text)
            except ConfigError as error:
                _LOGGER.warning("not followed to another broker: %s", error)
                continue
            if address.scheme.has_tls != present.scheme.has_tls or address == present:
                continue
            self._put_first(address)
            return True
        return False

    def _put_first(self, address: BrokerAddress) -> None:
        """Make an address the next one; the oldest ones stay behind it as a way back."""
        others = [each for each in self._addresses if each != address]
        self._addresses = [address, *others][:MAX_BROKERS]
        self._index = 0
        self._failed_in_a_row = 0
