"""Files of enrolment: the key that signs rosters, the gateway's request, and the roster."""

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl._native import Seed, SigningKey
from edgefl.errors import ConfigError, EdgeflError
from edgefl.protocol.public_keys import WEAK_KEY, weakness_of
from edgefl.protocol.roster import Roster
from edgefl.protocol.roster_epoch import KEY_BYTES, MAX_ROSTER
from edgefl.protocol.topics import parse_device_id
from edgefl.storage.files import read_file, replace_file

_KEY_HEAD = "edgefl enrolment key 1"
_KEY_FILE_BYTES = 200
_REQUEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterCandidate:
    """A device that a gateway asks to have enrolled.

    Attributes:
        identity_key: Ed25519 public key that it showed.
        first_seen: When the gateway first saw it, in the gateway's own words; for people to read.
    """

    device: str
    identity_key: bytes
    first_seen: str


def create_enrolment_key(path: Path) -> SigningKey:
    """Make an enrolment key in a new file that its owner alone can read.

    Raises:
        ConfigError: E-ENROLMENT-KEY-EXISTS, or E-ENROLMENT-FILE where it cannot be written.
        EnvironmentProblem: The system gives no randomness.
    """
    seed = Seed.generate()
    content = f"{_KEY_HEAD}\n{seed.export_bytes().hex()}\n"
    try:
        descriptor = os.open(
            path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR | stat.S_IWUSR
        )
    except FileExistsError:
        raise ConfigError(
            "E-ENROLMENT-KEY-EXISTS",
            "a new file for the enrolment key",
            f"{path} is there already",
            "a new key makes every device enrol again; choose another file if that is meant",
        ) from None
    except OSError as error:
        raise _file_problem(path, "a file that can be written", error) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return SigningKey.from_seed(seed)


def read_enrolment_key(path: Path) -> SigningKey:
    """Read an enrolment key.

    Raises:
        ConfigError: E-ENROLMENT-FILE, E-ENROLMENT-KEY-MODE where others can read the file, or
            E-ENROLMENT-KEY-FILE where it holds no such key.
    """
    content = _read(path, _KEY_FILE_BYTES, "an enrolment key")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "E-ENROLMENT-KEY-MODE",
            "an enrolment key that its owner alone can read",
            f"{path} with mode {stat.S_IMODE(path.stat().st_mode):03o}",
            f"chmod 600 {path}",
        )
    head, _, digits = content.decode("ascii", errors="replace").strip().partition("\n")
    secret = _from_hex(digits)
    if head != _KEY_HEAD or secret is None:
        raise ConfigError(
            "E-ENROLMENT-KEY-FILE",
            "a file made by 'edgefl roster init'",
            f"{path} with other content",
        )
    return SigningKey.from_seed(Seed.from_bytes(secret))


def write_request(
    path: Path, candidates: Sequence[RosterCandidate], leaving: Sequence[str] = ()
) -> None:
    """Write the devices that ask to be enrolled, for the holder of the enrolment key.

    Args:
        path: The file.
        candidates: Who asks.
        leaving: Devices of the roster before that the gateway's operator has revoked.

    Raises:
        ConfigError: E-ENROLMENT-FILE, it cannot be written.
    """
    rows: list[dict[str, str | bool]] = [
        {
            "device": candidate.device,
            "identity_key": candidate.identity_key.hex(),
            "first_seen": candidate.first_seen,
        }
        for candidate in candidates
    ]
    rows += [{"device": device, "leaves": True} for device in leaving]
    _replace(path, (json.dumps(rows, indent=1) + "\n").encode())


def read_request(path: Path) -> tuple[RosterCandidate, ...]:
    """Read who asks in a gateway's request.

    Security: nothing in it is signed; a person has to judge it.

    Raises:
        ConfigError: E-ENROLMENT-FILE, or E-ROSTER-REQUEST where it is malformed.
    """
    rows = enumerate(_read_rows(path), start=1)
    return tuple(_read_candidate(path, number, row) for number, row in rows if not _leaves(row))


def read_leaving(path: Path) -> tuple[str, ...]:
    """Read which devices a gateway's request names as revoked.

    Raises:
        ConfigError: E-ENROLMENT-FILE, or E-ROSTER-REQUEST where it is malformed.
    """
    rows = [row for row in _read_rows(path) if _leaves(row)]
    if not all(isinstance(row.get("device"), str) for row in rows):
        raise _bad_request(path, "a row that leaves without a device")
    return tuple(str(parse_device_id(row["device"])) for row in rows)


def _leaves(row: dict[str, str]) -> bool:
    return isinstance(row, dict) and bool(row.get("leaves", False))


def _read_rows(path: Path) -> list[dict[str, str]]:
    content = _read(path, _REQUEST_BYTES, "a roster request")
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError):
        raise _bad_request(path, "text that is no JSON") from None
    if not isinstance(rows, list) or len(rows) > MAX_ROSTER:
        raise _bad_request(path, type(rows).__name__)
    return rows


def write_roster(path: Path, roster: Roster) -> None:
    """Write a roster file in one step: it is there whole, or as it was.

    Raises:
        ConfigError: E-ENROLMENT-FILE, it cannot be written.
    """
    _replace(path, roster.to_bytes())


def read_roster(path: Path) -> Roster:
    """Read a roster file and check it whole.

    Raises:
        ConfigError: E-ENROLMENT-FILE, it cannot be read, or E-ENROLMENT-KEY-WEAK.
        EdgeflError: It is damaged; the error names the file.
    """
    content = _read(path, _REQUEST_BYTES, "a roster")
    try:
        return Roster.from_bytes(content)
    except EdgeflError as error:
        # A weak key was written so; everything else has come to harm since.
        kind = ConfigError if error.code == WEAK_KEY else type(error)
        raise kind(
            error.code, error.expected, f"{error.found} (in {path})", "use an undamaged copy"
        ) from None


def _read_candidate(path: Path, number: int, row: object) -> RosterCandidate:
    if not isinstance(row, dict) or not {"device", "identity_key"} <= set(row):
        raise _bad_request(path, f"row {number} without device and identity_key")
    key = _from_hex(row["identity_key"])
    if not isinstance(row["device"], str) or key is None:
        raise _bad_request(path, f"row {number} without a device id and a key of 64 hex digits")
    weakness = weakness_of(key)
    if weakness is not None:
        raise _bad_request(path, f"row {number} with no device's public key: {weakness}")
    # Printed for a person who decides on it: nothing that could move the cursor.
    seen = "".join(letter for letter in str(row.get("first_seen", ""))[:40] if letter.isprintable())
    return RosterCandidate(device=parse_device_id(row["device"]), identity_key=key, first_seen=seen)


def _from_hex(digits: object) -> bytes | None:
    if not isinstance(digits, str) or len(digits) != 2 * KEY_BYTES:
        return None
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return None


def _bad_request(path: Path, found: str) -> ConfigError:
    return ConfigError(
        "E-ROSTER-REQUEST",
        'a JSON list of {"device", "identity_key", "first_seen"}',
        f"{found} (in {path})",
    )


def _read(path: Path, most_bytes: int, what: str) -> bytes:
    try:
        return read_file(path, most_bytes)
    except OSError as error:
        raise _file_problem(path, f"{what} that can be read", error) from None


def _replace(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise _file_problem(path, "a file that can be written", error) from None


def _file_problem(path: Path, expected: str, error: OSError) -> ConfigError:
    return ConfigError("E-ENROLMENT-FILE", expected, f"{error.strerror} ({path})")
