"""`agent.toml`: what an agent is run with, so that a service needs no options.

```toml
device = "kitchen-1"                  # this board's name; not needed after `edgefl agent enrol`
fleet = "fleet"
gateway = "mqtts://gateway.local"     # one or several, with commas between
enrolment_key = "3b6a27..."           # hex; who signs the roster
data = "sensor.toml"                  # paths are relative to this file
policy = "policy.toml"

[tls]                                 # instead of what 'edgefl agent enrol' keeps
ca_file = "ca.pem"
certificate_file = "device.pem"
key_file = "device.pem"               # both may be one file

[power]
on_battery = false
```
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from edgefl.agent.power.policy import PowerPolicy, read_power_policy
from edgefl.errors import ConfigError
from edgefl.storage.files import read_file
from edgefl.transport.tls import TlsSettings

CONFIG_FILE = "agent.toml"
_MOST_BYTES = 1 << 20
_TLS_FILES = ("ca_file", "certificate_file", "key_file")
_TEXTS = ("device", "fleet", "gateway", "enrolment_key", "data", "policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What the file says; None where it says nothing.

    Attributes:
        gateway: One or several addresses, with commas between.
        enrolment_key: 64 hex digits.
        data: As `--data`, a file's path made absolute.
        tls: The `[tls]` table.
        power: The `[power]` table, or its defaults.
    """

    device: str | None = None
    fleet: str | None = None
    gateway: str | None = None
    enrolment_key: str | None = None
    data: str | None = None
    policy: Path | None = None
    tls: TlsSettings | None = None
    power: PowerPolicy = field(default_factory=PowerPolicy)


def read_agent_config(path: Path, *, is_named: bool) -> AgentConfig:
    """Read the file.

    Args:
        path: The file.
        is_named: The user named it, so that it must be there.

    Raises:
        ConfigError: E-AGENT-CONFIG, it cannot be read or names what is not known, or
            E-POWER-POLICY.
    """
    try:
        content = tomllib.loads(read_file(path, _MOST_BYTES).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if is_named:
            raise _bad(f"a file {path}", "none") from None
        return AgentConfig()
    except OSError as error:
        raise _bad(f"a readable file {path}", error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"TOML in {path}", str(error)) from error
    unknown = sorted(content.keys() - {*_TEXTS, "tls", "power"})
    if unknown:
        # A key that is misspelt would silently do nothing.
        raise _bad(
            f"only {', '.join((*_TEXTS, '[tls]', '[power]'))} in {path}", ", ".join(unknown)[:200]
        )
    texts = {key: _text(content, key, path) for key in _TEXTS}
    power = content.get("power", {})
    if not isinstance(power, dict):
        raise _bad(f"a table [power] in {path}", repr(power)[:80])
    policy = texts["policy"]
    return AgentConfig(
        device=texts["device"],
        fleet=texts["fleet"],
        gateway=texts["gateway"],
        enrolment_key=texts["enrolment_key"],
        data=_placed(texts["data"], path.parent),
        policy=None if policy is None else path.parent / policy,
        tls=_tls(content.get("tls"), path),
        power=read_power_policy(power, str(path)),
    )


def _tls(table: object, path: Path) -> TlsSettings | None:
    if table is None:
        return None
    if not isinstance(table, dict) or set(table) != set(_TLS_FILES):
        raise _bad(f"a table [tls] of {', '.join(_TLS_FILES)} in {path}", repr(table)[:80])
    ca, certificate, key = (path.parent / str(_text(table, one, path)) for one in _TLS_FILES)
    return TlsSettings(ca_file=ca, certificate_file=certificate, key_file=key)


def _text(content: dict[str, object], key: str, path: Path) -> str | None:
    value = content.get(key)
    if value is not None and (not isinstance(value, str) or not value or "\0" in value):
        raise _bad(f"{key} = a text in {path}", repr(value)[:80])
    return value


def _placed(data: str | None, folder: Path) -> str | None:
    """Make a file's path absolute; names such as `spar:1-left` stay as they are."""
    if data is None:
        return None
    placed = folder / data
    return str(placed) if placed.exists() or data.endswith((".toml", ".npz")) else data


def _bad(expected: str, found: str) -> ConfigError:
    return ConfigError("E-AGENT-CONFIG", expected, found)
