"""Addresses of brokers as URLs: what may be written, and what is refused before a connection."""

import ipaddress
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from edgefl.errors import ConfigError

MAX_BROKERS = 8
"""More addresses than a cluster has nodes is a mistake."""
_EXAMPLE = "for example mqtts://gateway.local:8883 or 127.0.0.1:1883"
_LARGEST_PORT = 65_535
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,127}")


class BrokerScheme(StrEnum):
    """How MQTT reaches the broker."""

    MQTT = "mqtt"  # TCP without TLS: on this machine only
    MQTTS = "mqtts"  # TLS
    WS = "ws"  # WebSocket without TLS: on this machine only
    WSS = "wss"  # WebSocket over TLS, for networks that let nothing but HTTPS out

    @property
    def has_tls(self) -> bool:
        """Tell whether the connection is encrypted and the broker's name checked."""
        return self in {BrokerScheme.MQTTS, BrokerScheme.WSS}

    @property
    def is_websocket(self) -> bool:
        """Tell whether MQTT is carried inside a WebSocket."""
        return self in {BrokerScheme.WS, BrokerScheme.WSS}

    @property
    def default_port(self) -> int:
        """The port where none is written."""
        return _DEFAULT_PORTS[self]


_DEFAULT_PORTS = {
    BrokerScheme.MQTT: 1883,
    BrokerScheme.MQTTS: 8883,
    BrokerScheme.WS: 80,
    BrokerScheme.WSS: 443,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """Where one broker listens.

    Attributes:
        scheme: How it is reached.
        host: Name or address, without brackets.
        port: TCP port.
        path: Of the WebSocket; not used without one.

    Raises:
        ConfigError: E-PLAINTEXT-REMOTE, no TLS and not this machine; E-BROKER-URL, a malformed
            host or path; E-TRANSPORT-SETTING, a port out of range.
    """

    scheme: BrokerScheme = BrokerScheme.MQTT
    host: str
    port: int
    path: str = "/mqtt"

    def __post_init__(self) -> None:
        """Refuse what no connection should be tried to."""
        if not self.scheme.has_tls:
            require_loopback(self.host)
        if not _is_host(self.host):
            raise ConfigError("E-BROKER-URL", "a host name or address", repr(self.host[:80]))
        require_port(self.port)
        if not _PATH.fullmatch(self.path):
            raise ConfigError("E-BROKER-URL", "a path of up to 128 characters", self.path[:80])

    def __str__(self) -> str:
        """Return the URL."""
        path = self.path if self.scheme.is_websocket else ""
        return f"{self.scheme.value}://{self.host_and_port}{path}"

    @property
    def host_and_port(self) -> str:
        """HOST:PORT, an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def plain_broker(port: int, host: str = "127.0.0.1") -> BrokerAddress:
    """Return the address of a broker without TLS on this machine.

    Raises:
        ConfigError: The host is not loopback, or the port is out of range.
    """
    return BrokerAddress(host=host, port=port)


def parse_broker_urls(text: str) -> tuple[BrokerAddress, ...]:
    """Read one or more addresses, separated by commas, in order of preference.

    Args:
        text: Each `SCHEME://HOST[:PORT][/PATH]`, or `HOST[:PORT]`, which means mqtt.

    Raises:
        ConfigError: E-BROKER-URL and those of `BrokerAddress`.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not 1 <= len(parts) <= MAX_BROKERS:
        found = f"{len(parts)} in {text[:80]!r}"
        raise ConfigError("E-BROKER-URL", f"1 to {MAX_BROKERS} addresses", found, _EXAMPLE)
    addresses = tuple(parse_broker_url(part) for part in parts)
    if len({address.scheme.has_tls for address in addresses}) > 1:
        raise ConfigError(
            "E-BROKER-URL",
            "addresses that all have TLS, or none",
            text[:160],
            "a fail-over must not be a way around TLS",
        )
    return addresses


def parse_broker_url(text: str) -> BrokerAddress:
    """Read one address.

    Raises:
        ConfigError: E-BROKER-URL and those of `BrokerAddress`.
    """
    try:
        url = urlsplit(text if "://" in text else f"mqtt://{_bracketed(text)}")
        host, port = url.hostname, url.port
    except ValueError as error:
        raise _malformed(text) from error
    _require_plain_parts(url, text)
    try:
        scheme = BrokerScheme(url.scheme)
    except ValueError as error:
        known = ", ".join(each.value for each in BrokerScheme)
        raise ConfigError(
            "E-BROKER-URL", f"one of {known} before ://", repr(text[:80]), _EXAMPLE
        ) from error
    if not host or url.netloc.endswith(":"):
        raise _malformed(text)
    if url.path not in {"", "/"} and not scheme.is_websocket:
        raise ConfigError("E-BROKER-URL", "no path, for there is no WebSocket", repr(text[:80]))
    return BrokerAddress(
        scheme=scheme,
        host=host,
        port=scheme.default_port if port is None else port,
        path=url.path if url.path not in {"", "/"} else "/mqtt",
    )


def require_loopback(host: str) -> None:
    """Refuse a host outside this machine.

    Raises:
        ConfigError: It is not `localhost` and not a loopback address.
    """
    if not is_loopback(host):
        raise ConfigError(
            "E-PLAINTEXT-REMOTE",
            "TLS (mqtts:// or wss://) to a broker that is not on this machine",
            f"no TLS to {host[:80]!r}",
            "ask the gateway's operator for a claim token (edgefl agent enrol), which brings what "
            "TLS needs; without TLS only 127.0.0.1, ::1 and localhost are allowed",
        )


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine by its very name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_port(port: int) -> None:
    """Refuse a number that is no TCP port.

    Raises:
        ConfigError: It is not in 1 to 65,535.
    """
    if not 1 <= port <= _LARGEST_PORT:
        found = f"{port}"
        raise ConfigError("E-TRANSPORT-SETTING", f"port from 1 to {_LARGEST_PORT}", found)


def _bracketed(text: str) -> str:
    """Put a bare IPv6 address into brackets, as a URL wants it."""
    try:
        return f"[{ipaddress.IPv6Address(text)}]"
    except ValueError:
        return text


def _is_host(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return len(host) <= 253 and _HOST_NAME.fullmatch(host) is not None
    return True


def _require_plain_parts(url: SplitResult, text: str) -> None:
    """Refuse secrets in a URL, which would end in logs and process lists, and what has no use."""
    if "@" in url.netloc:
        raise ConfigError(
            "E-BROKER-URL",
            "no user name or password in a broker's URL",
            "one (not shown)",
            "devices and gateway prove who they are by TLS certificates",
        )
    if url.query or url.fragment:
        raise _malformed(text)


def _malformed(text: str) -> ConfigError:
    return ConfigError("E-BROKER-URL", "SCHEME://HOST:PORT or HOST:PORT", repr(text[:80]), _EXAMPLE)
