"""Where the brokers are and how the link to one of them behaves."""

from dataclasses import dataclass
from enum import Enum

from edgefl.errors import ConfigError
from edgefl.transport.broker_url import MAX_BROKERS, BrokerAddress
from edgefl.transport.tls import TlsSettings

MAX_CLIENT_ID_BYTES = 128
LONGEST_KEEPALIVE_S = 900
"""A quarter of an hour: 96 pings a day. Longer ones outlive most networks' idle limits anyway."""
BACKOFF_CAP_S = 2.0
MAX_IN_FLIGHT_BYTES = 262_144
_DAY_S = 86_400


class MqttVersion(Enum):
    """Which MQTT the link speaks."""

    AUTO = "auto"  # 5, and 3.1.1 where the broker does not take that
    V5 = "5"
    V311 = "3.1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """One link's settings.

    Attributes:
        brokers: In order of preference; the next one is tried when one fails, the first again
            when the last has failed.
        client_id: Name at the broker, one process only.
        tls: Certificates; needed exactly for addresses with TLS.
        version: Which MQTT to speak.
        keepalive_s: Longest silence before a ping; shortened by itself where networks forget idle
            connections sooner. The broker gives up at 1.5 times this.
        connect_timeout_s: Bound on the TCP connection and again on the broker's answer.
        backoff_first_s: Upper end of the first pause between attempts.
        backoff_cap_s: Upper end of every pause in the first ten minutes of waiting. A gateway that
            starts anew waits 15 s for those who were in its round.
        backoff_later_cap_s: Upper end of every pause after that.
        session_expiry_s: How long the broker shall keep subscriptions and messages for a client
            that is away. MQTT 5 takes nothing said as 0; 3.1.1 has only the broker's own setting.
        clean_start: Begin with an empty session, and leave none behind.
        acknowledges_late: Give each message a ticket, and tell the broker that it arrived only when
            `acknowledge` is called with it; for a receiver that must not lose what is not yet on
            its disk. Beyond `receive_maximum` unacknowledged messages the broker sends no more.
        receive_maximum: Messages that the broker may send ahead of their acknowledgement.
        max_outbox_messages: Bound on waiting messages.
        max_outbox_bytes: Bound on the sum of their payloads.
        max_inbox_messages: Bound on events that wait for the consumer; beyond it the socket is
            not read (back-pressure).
        max_in_flight: Messages sent and not yet acknowledged by the broker.
        max_in_flight_bytes: Bound on the sum of their payloads: what a cut can cost. A larger
            message goes by itself.

    Raises:
        ConfigError: A value is out of range, or TLS is lacking or not used.
    """

    brokers: tuple[BrokerAddress, ...]
    client_id: str
    tls: TlsSettings | None = None
    version: MqttVersion = MqttVersion.AUTO
    keepalive_s: int = 60
    connect_timeout_s: float = 5.0
    backoff_first_s: float = 0.1
    backoff_cap_s: float = BACKOFF_CAP_S
    backoff_later_cap_s: float = 60.0
    session_expiry_s: int = _DAY_S
    clean_start: bool = False
    acknowledges_late: bool = False
    receive_maximum: int = 64
    max_outbox_messages: int = 256
    max_outbox_bytes: int = 16 << 20
    max_inbox_messages: int = 1024
    max_in_flight: int = 16
    max_in_flight_bytes: int = MAX_IN_FLIGHT_BYTES

    def __post_init__(self) -> None:
        """Check every value."""
        _require_range("brokers", len(self.brokers), 1, MAX_BROKERS)
        self._check_tls()
        size_bytes = len(self.client_id.encode(errors="replace"))
        if not 1 <= size_bytes <= MAX_CLIENT_ID_BYTES or not self.client_id.isprintable():
            raise ConfigError(
                "E-CLIENT-ID",
                f"a printable client id of 1 to {MAX_CLIENT_ID_BYTES} bytes",
                repr(self.client_id[:40]),
            )
        _require_range("keepalive_s", self.keepalive_s, 1, LONGEST_KEEPALIVE_S)
        _require_range("connect_timeout_s", self.connect_timeout_s, 0.01, 600)
        _require_range("session_expiry_s", self.session_expiry_s, 0, 30 * _DAY_S)
        _require_range("receive_maximum", self.receive_maximum, 1, 65_535)
        _require_range("max_inbox_messages", self.max_inbox_messages, 1, 1 << 20)
        _require_range("max_in_flight", self.max_in_flight, 1, 1000)
        _require_range("max_in_flight_bytes", self.max_in_flight_bytes, 1, 1 << 30)

    def _check_tls(self) -> None:
        has_tls = {address.scheme.has_tls for address in self.brokers}
        if len(has_tls) > 1:
            found = ", ".join(str(address) for address in self.brokers)
            raise ConfigError("E-BROKER-URL", "addresses that all have TLS, or none", found)
        if has_tls == {True} and self.tls is None:
            raise ConfigError(
                "E-TLS-SETTINGS",
                f"certificates for {self.brokers[0]}",
                "none",
                "enrol first: 'edgefl agent enrol' on a device, 'edgefl gateway init' on a gateway",
            )


def _require_range(name: str, value: float, low: float, high: float) -> None:
    """Check low <= value <= high, which NaN fails."""
    if not low <= value <= high:
        raise ConfigError("E-TRANSPORT-SETTING", f"{name} from {low} to {high}", f"{value}")
