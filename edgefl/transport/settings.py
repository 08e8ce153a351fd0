"""Where a broker is and how the link to it behaves; refuses plaintext beyond this machine."""

import ipaddress
from dataclasses import dataclass

from edgefl.errors import ConfigError

MAX_CLIENT_ID_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """One link's settings.

    Attributes:
        host: Loopback name or address; other hosts need TLS, which this version does not have.
        port: TCP port.
        client_id: Name at the broker, one process only.
        keepalive_s: Silence after which a ping is sent; the broker gives up at 1.5 times this.
        connect_timeout_s: Bound on the TCP connection and again on the broker's answer.
        backoff_first_s: Upper end of the first pause between attempts.
        backoff_cap_s: Upper end of every pause.
        max_outbox_messages: Bound on waiting messages.
        max_outbox_bytes: Bound on the sum of their payloads.
        max_inbox_messages: Bound on events that wait for the consumer; beyond it the socket is
            not read (back-pressure).
        max_in_flight: Messages sent and not yet acknowledged by the broker.

    Raises:
        ConfigError: a value is out of range, or the host is not loopback.
    """

    host: str
    port: int
    client_id: str
    keepalive_s: int = 60
    connect_timeout_s: float = 5.0
    backoff_first_s: float = 0.1
    backoff_cap_s: float = 2.0
    max_outbox_messages: int = 256
    max_outbox_bytes: int = 16 << 20
    max_inbox_messages: int = 1024
    max_in_flight: int = 16

    def __post_init__(self) -> None:
        """Check every value."""
        require_loopback(self.host)
        require_port(self.port)
        size_bytes = len(self.client_id.encode(errors="replace"))
        if not 1 <= size_bytes <= MAX_CLIENT_ID_BYTES or not self.client_id.isprintable():
            raise ConfigError(
                "E-CLIENT-ID",
                f"a printable client id of 1 to {MAX_CLIENT_ID_BYTES} bytes",
                repr(self.client_id[:40]),
            )
        _require_range("keepalive_s", self.keepalive_s, 1, 65_535)
        _require_range("connect_timeout_s", self.connect_timeout_s, 0.01, 600)
        _require_range("max_inbox_messages", self.max_inbox_messages, 1, 1 << 20)
        _require_range("max_in_flight", self.max_in_flight, 1, 1000)


def require_loopback(host: str) -> None:
    """Refuse a host outside this machine.

    Raises:
        ConfigError: it is not `localhost` and not a loopback address.
    """
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigError(
            "E-PLAINTEXT-REMOTE",
            "a broker on this machine (127.0.0.1, ::1 or localhost), for there is no TLS yet",
            repr(host[:80]),
            "run the agent beside the gateway or through a tunnel that ends on loopback",
        )


def require_port(port: int) -> None:
    """Refuse a number that is no TCP port.

    Raises:
        ConfigError: it is not in 1 to 65,535.
    """
    _require_range("port", port, 1, 65_535)


def _require_range(name: str, value: float, low: float, high: float) -> None:
    """Check low <= value <= high, which NaN fails."""
    if not low <= value <= high:
        raise ConfigError("E-TRANSPORT-SETTING", f"{name} from {low} to {high}", f"{value}")
