"""The gateway's settings in `gateway.toml`, which `edgefl gateway init` writes with comments.

Without that file a gateway is a first run: plaintext on loopback, and it enrols whoever says hello.
Options of the command line come before the file.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.tls_folder import TlsFolder
from edgefl.errors import ConfigError
from edgefl.protocol.limits import KEY_BYTES
from edgefl.protocol.public_keys import WEAK_KEY, weakness_of
from edgefl.protocol.service_messages import MOST_ADDRESSES, MOST_URL_CHARS
from edgefl.protocol.topics import parse_fleet
from edgefl.storage.files import read_file
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES, MAX_CHUNK_BYTES, MIN_CHUNK_BYTES
from edgefl.transport.broker_url import parse_broker_urls
from edgefl.types import FleetName

CONFIG_FILE: Final = "gateway.toml"
DEFAULT_MQTTS_PORT: Final = 8883
DEFAULT_WSS_PORT: Final = 8443
DEFAULT_HTTP_PORT: Final = 8484
_MOST_BYTES: Final = 1 << 20
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - boards are on other machines; TLS guards the port
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where the gateway's own MQTT endpoint listens; a port of None is closed, 0 picks a free one.

    Attributes:
        mqtt_port: Plaintext, on loopback only.
        mqtts_port: MQTT over TLS.
        wss_port: MQTT over WebSocket over TLS.
        ws_port: MQTT over WebSocket in plaintext, on loopback only.
    """

    mqtt_port: int | None = None
    mqtts_host: str = _EVERYWHERE
    mqtts_port: int | None = DEFAULT_MQTTS_PORT
    wss_host: str = _EVERYWHERE
    wss_port: int | None = DEFAULT_WSS_PORT
    ws_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of the gateway's own endpoint.

    Attributes:
        connections: Most clients at a time.
        upload_slots: Most uploads at a time.
        upload_window_bytes: Most bytes that devices may have under way at a time.
        chunk_bytes: Largest chunk of what does not fit into one packet.
    """

    connections: int = 20_000
    upload_slots: int = 64
    upload_window_bytes: int = 64 << 20
    chunk_bytes: int = DEFAULT_CHUNK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """What `gateway.toml` says.

    Attributes:
        enrolment_key: Who signs the roster away from this gateway; None lets the gateway sign it.
        names: Names and addresses that boards reach this gateway by, for its certificate.
        brokers: URLs of an external broker; empty uses the gateway's own endpoint.
        moved_to: URLs by which devices shall reach the gateway from now on.
    """

    fleet: FleetName
    enrolment_key: bytes | None
    names: tuple[str, ...]
    listening: Listening
    brokers: tuple[str, ...]
    http_host: str
    http_port: int
    limits: Limits
    moved_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Key:
    """What one key of the file may be."""

    kind: type
    wanted: str
    low: int = 0
    high: int = 0
    may_be_off: bool = False


_PORT: Final = _Key(int, "a port from 0 to 65535, or false", 0, 65_535, may_be_off=True)
_TEXT: Final = _Key(str, "text")
_KEYS: Final[dict[str, dict[str, _Key]]] = {
    "": {
        "fleet": _TEXT,
        "enrolment_key": _TEXT,
        "names": _Key(list, "a list of names and addresses"),
        "moved_to": _Key(list, "a list of URLs"),
    },
    "listen": {
        "mqtt_port": _PORT,
        "mqtts_host": _TEXT,
        "mqtts_port": _PORT,
        "wss_host": _TEXT,
        "wss_port": _PORT,
        "ws_port": _PORT,
    },
    "broker": {"urls": _Key(list, "a list of URLs")},
    "http": {"host": _TEXT, "port": _Key(int, "a port from 0 to 65535", 0, 65_535)},
    "limits": {
        "connections": _Key(int, "1 to 1000000", 1, 1_000_000),
        "upload_slots": _Key(int, "1 to 65536", 1, 65_536),
        "upload_window_bytes": _Key(int, "262144 to 2^40", 262_144, 1 << 40),
        "chunk_bytes": _Key(int, "4096 to 122880", MIN_CHUNK_BYTES, MAX_CHUNK_BYTES),
    },
}

_Value = str | int | bool | tuple[str, ...]
_Table = dict[str, _Value]


def load_config(state_dir: Path) -> GatewayConfig | None:
    """Read a gateway's settings; None where it was never set up by `init`.

    Raises:
        ConfigError: E-GATEWAY-CONFIG: it cannot be read, names an unknown key or a bad value.
    """
    path = state_dir / CONFIG_FILE
    if not path.exists():
        if TlsFolder.exists(state_dir):
            # As a first run it would take in everybody, also those who were put out.
            raise ConfigError(
                "E-GATEWAY-CONFIG",
                f"the settings of a gateway that was set up, in {path}",
                "no file",
                "bring it back, or have 'edgefl gateway init' write it anew",
            )
        return None
    try:
        content = tomllib.loads(read_file(path, _MOST_BYTES).decode())
    except OSError as error:
        raise _bad(path, "a file that can be read", error.strerror or "another") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(path, "a TOML file", " ".join(str(error).split())[:120]) from error
    tables = _checked_tables(path, content)
    top = tables[""]
    if "fleet" not in top:
        raise _bad(path, "the fleet's name", "none")
    names = _texts(top.get("names"))
    if not names:
        # Without them there would be no certificate, and so no enrolment: a gateway of a first run.
        raise _bad(path, "names: one name or address that boards reach this gateway by", "none")
    return GatewayConfig(
        fleet=parse_fleet(str(top["fleet"])),
        enrolment_key=_parse_key(path, str(top.get("enrolment_key", ""))),
        names=names,
        listening=_listening(tables["listen"]),
        brokers=_texts(tables["broker"].get("urls")),
        http_host=str(tables["http"].get("host", _LOOPBACK)),
        http_port=_number(tables["http"], "port", DEFAULT_HTTP_PORT),
        moved_to=_moved_to(path, top.get("moved_to")),
        limits=Limits(**{name: int(str(value)) for name, value in tables["limits"].items()}),
    )


def config_text(*, fleet: str, names: Sequence[str], enrolment_key: str | None) -> str:
    """Return a new `gateway.toml` with comments.

    Args:
        fleet: The fleet's name.
        names: Names and addresses of the gateway.
        enrolment_key: Hex public key of who signs the roster, or None.
    """
    listed = ", ".join(f'"{name}"' for name in names)
    key = f'enrolment_key = "{enrolment_key}"' if enrolment_key else '# enrolment_key = ""'
    return f"""\
# Settings of this gateway; edgefl reads them at its start. Unknown keys are refused.

fleet = "{fleet}"

# Names and addresses that boards reach this gateway by. They stand in its certificate, which is
# made anew at the next start after a change.
names = [{listed}]

# Who signs the roster, away from this gateway ('edgefl roster init' prints the public key). Without
# it the gateway signs, and the fleet is safe against an honest-but-curious gateway only.
{key}

# Where devices shall look for this gateway from now on; it tells them so, wherever it runs now.
# moved_to = ["mqtts://new.example:8883"]

[listen]
mqtts_host = "{_EVERYWHERE}"
mqtts_port = {DEFAULT_MQTTS_PORT}   # MQTT over TLS; 0 picks a free port, false closes it
wss_host = "{_EVERYWHERE}"
wss_port = {DEFAULT_WSS_PORT}     # WebSocket over TLS; 443 passes the most firewalls
mqtt_port = false   # plaintext, on loopback only: whoever can connect may speak for any device

# [broker]
# urls = ["mqtts://broker.example:8883"]   # use this broker instead of the gateway's own endpoint

[http]
host = "{_LOOPBACK}"
port = {DEFAULT_HTTP_PORT}   # status page and metrics

# [limits]
# connections = {Limits().connections}
# upload_slots = {Limits().upload_slots}
# upload_window_bytes = {Limits().upload_window_bytes}
# chunk_bytes = {Limits().chunk_bytes}
"""


def _listening(table: _Table) -> Listening:
    base = Listening()
    return Listening(
        mqtt_port=_port(table, "mqtt_port", base.mqtt_port),
        mqtts_host=str(table.get("mqtts_host", base.mqtts_host)),
        mqtts_port=_port(table, "mqtts_port", base.mqtts_port),
        wss_host=str(table.get("wss_host", base.wss_host)),
        wss_port=_port(table, "wss_port", base.wss_port),
        ws_port=_port(table, "ws_port", base.ws_port),
    )


def _port(table: _Table, key: str, default: int | None) -> int | None:
    value = table.get(key, default)
    return None if value is False or value is None else int(str(value))


def _number(table: _Table, key: str, default: int) -> int:
    return int(str(table.get(key, default)))


def _texts(value: _Value | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _moved_to(path: Path, value: _Value | None) -> tuple[str, ...]:
    texts = _texts(value)
    urls = tuple(map(str, parse_broker_urls(",".join(texts)))) if texts else ()
    # A device would refuse the whole status.
    if len(urls) > MOST_ADDRESSES or any(len(url) > MOST_URL_CHARS for url in urls):
        expected = f"moved_to: at most {MOST_ADDRESSES} URLs of {MOST_URL_CHARS} characters"
        raise _bad(path, expected, f"{len(urls)}, the longest of {max(map(len, urls))}")
    return urls


def _checked_tables(path: Path, content: Mapping[str, object]) -> dict[str, _Table]:
    tables: dict[str, _Table] = {name: {} for name in _KEYS}
    for key, value in content.items():
        if isinstance(value, dict) and key in _KEYS:
            for inner, item in value.items():
                tables[key][inner] = _checked(path, key, inner, item)
        else:
            tables[""][key] = _checked(path, "", key, value)
    return tables


def _checked(path: Path, table: str, key: str, value: object) -> _Value:
    shown = f"{table}.{key}" if table else key
    known = _KEYS[table].get(key)
    if known is None:
        raise _bad(path, f"one of {', '.join(sorted(_KEYS[table]))}", f"unknown key {shown!r}")
    if known.may_be_off and value is False:
        return False
    if known.kind is list:
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif known.kind is str:
        if isinstance(value, str):
            return value
    elif type(value) is int and known.low <= value <= known.high:
        return value
    raise _bad(path, f"{shown} as {known.wanted}", repr(value)[:80])


def _parse_key(path: Path, text: str) -> bytes | None:
    if not text:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise _bad(path, "enrolment_key as 64 hex digits", repr(text[:80]))
    weakness = weakness_of(key)
    if weakness is not None:
        raise ConfigError(WEAK_KEY, "the public key of an enrolment key", weakness)
    return key


def _bad(path: Path, expected: str, found: str) -> ConfigError:
    return ConfigError("E-GATEWAY-CONFIG", expected, f"{found} (in {path})", "correct the file")
