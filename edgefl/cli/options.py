"""Options and conversions that several commands share."""

import argparse
import logging
import os
import re
from pathlib import Path

from edgefl.errors import ConfigError
from edgefl.protocol.limits import KEY_BYTES
from edgefl.protocol.public_keys import WEAK_KEY, weakness_of
from edgefl.storage.sqlite_file import set_aside
from edgefl.storage.state_copy import previous_of

_LOGGER = logging.getLogger(__name__)

DEFAULT_FLEET = "fleet"
DEFAULT_PORT = 1883
_FINGERPRINT = re.compile(r"[0-9a-f]{4}(-[0-9a-f]{4}){4}")


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the default of an option that has one, and that its text does not tell already."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_plain = action.default in (None, False) or action.default == []
        return action.help if is_plain else super()._get_help_string(action)


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add what every command has."""
    parser.add_argument("--debug", action="store_true", help="show tracebacks and debug messages")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for machine-readable output."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout")


def add_reset_state(parser: argparse.ArgumentParser, lost: str) -> None:
    """Add the option that begins anew after a damaged state file.

    Args:
        parser: Of the command.
        lost: What is given up by it.
    """
    parser.add_argument(
        "--reset-state",
        action="store_true",
        help=f"set the state file aside (it is kept) and begin anew; {lost}",
    )


def set_state_aside(path: Path, lost: str) -> None:
    """Set a state file aside where there is one, and say what that costs.

    Raises:
        StorageError: It cannot be moved.
    """
    copy = previous_of(path)
    if path.exists() or copy.exists():
        aside = set_aside(path)
        if copy.exists():
            # Else the state would be taken up again from its copy.
            copy.replace(previous_of(aside))
        _LOGGER.warning("the state file was set aside as %s; %s", aside, lost)


def default_state_dir(role: str) -> Path:
    """Return where a role keeps its state: the service's folder, or one in the user's home."""
    service = os.environ.get("STATE_DIRECTORY")
    base = Path(service) if service else Path.home() / ".local" / "share" / "edgefl"
    return base / role


def parse_public_key(text: str | None) -> bytes | None:
    """Read an Ed25519 public key of 64 hex digits; None stays None.

    Raises:
        ConfigError: It is something else.
    """
    if text is None:
        return None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            "E-ENROLMENT-KEY",
            "a public key of 64 hex digits",
            repr(text[:80]),
            "'edgefl roster init' and 'edgefl roster show' print it",
        )
    weakness = weakness_of(key)
    if weakness is not None:
        raise ConfigError(
            WEAK_KEY,
            "the public key of an enrolment key",
            f"{text[:80]!r}, {weakness}",
            "'edgefl roster init' makes one",
        )
    return key


def parse_fingerprint(text: str) -> str:
    """Check a key's fingerprint.

    Raises:
        ConfigError: E-FINGERPRINT, it is none.
    """
    if _FINGERPRINT.fullmatch(text) is None:
        raise ConfigError(
            "E-FINGERPRINT",
            "a fingerprint as 'edgefl agent enrol --key-only' shows it",
            repr(text[:80]),
        )
    return text


def require_port(port: int) -> int:
    """Check a port to listen on; 0 asks for a free one.

    Raises:
        ConfigError: It is out of range.
    """
    if not 0 <= port < 65_536:
        raise ConfigError("E-PORT", "a port from 0 to 65535", str(port))
    return port
