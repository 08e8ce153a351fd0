"""What enrolment leaves on a device: whom it belongs to, and its TLS files.

`enrolled.json` is written by `edgefl agent enrol` and read by `edgefl agent run`; what a person
wants to be otherwise goes into `agent.toml`, which comes first.
"""

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgefl.errors import ConfigError, StorageError
from edgefl.protocol.topics import parse_device_id, parse_fleet
from edgefl.storage.files import read_file, replace_file
from edgefl.transport.tls import TlsSettings
from edgefl.types import DeviceId, FleetName

ENROLLED_FILE: Final = "enrolled.json"
TLS_FOLDER: Final = "tls"
_MAX_BYTES: Final = 64 * 1024
_PRIVATE: Final = stat.S_IRUSR | stat.S_IWUSR


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The paths of a device's TLS files.

    Attributes:
        state_dir: The agent's folder.
    """

    state_dir: Path

    @property
    def trusted(self) -> Path:
        """Authorities that the gateway's certificate may come from."""
        return self.state_dir / TLS_FOLDER / "trusted.crt"

    @property
    def device(self) -> Path:
        """The device's certificate with its key: one file, so that both change at once."""
        return self.state_dir / TLS_FOLDER / "device.pem"

    @property
    def request(self) -> Path:
        """A new key with the request for its certificate, until that comes."""
        return self.state_dir / TLS_FOLDER / "request.pem"

    @property
    def token(self) -> Path:
        """The token, while the enrolment is not over."""
        return self.state_dir / TLS_FOLDER / "token"

    @property
    def claim(self) -> Path:
        """The token's certificate with its key, while the enrolment is not over."""
        return self.state_dir / TLS_FOLDER / "claim.pem"

    @property
    def settings(self) -> TlsSettings:
        """TLS as this device."""
        return TlsSettings(ca_file=self.trusted, certificate_file=self.device, key_file=self.device)

    @property
    def claim_settings(self) -> TlsSettings:
        """TLS with a token."""
        return TlsSettings(ca_file=self.trusted, certificate_file=self.claim, key_file=self.claim)

    def write(self, path: Path, content: bytes) -> None:
        """Write one of these files, readable by its owner only, in one step.

        Raises:
            StorageError: E-TLS-WRITE.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, content, mode=_PRIVATE)
        except OSError as error:
            raise StorageError(
                "E-TLS-WRITE", f"{path}, which can be written", error.strerror or str(error)
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """A device that was let into a fleet.

    Attributes:
        gateways: URLs, in order of preference.
        enrolment_key: Who signs the roster, hexadecimal; None where the gateway does.
        state_dir: The agent's folder.
    """

    device: DeviceId
    fleet: FleetName
    gateways: tuple[str, ...]
    enrolment_key: str | None
    state_dir: Path

    @property
    def tls(self) -> TlsSettings:
        """How to connect as this device."""
        return TlsFiles(state_dir=self.state_dir).settings

    def write(self) -> None:
        """Write the file in one step.

        Raises:
            StorageError: E-TLS-WRITE.
        """
        content = {
            "device": self.device,
            "fleet": self.fleet,
            "gateways": list(self.gateways),
            "enrolment_key": self.enrolment_key,
        }
        files = TlsFiles(state_dir=self.state_dir)
        files.write(self.state_dir / ENROLLED_FILE, (json.dumps(content, indent=1) + "\n").encode())


def read_enrolled(state_dir: Path) -> Enrolled | None:
    """Return what enrolment left; None on a device that is not enrolled.

    Raises:
        ConfigError: E-ENROLLED, the file is damaged.
    """
    path = state_dir / ENROLLED_FILE
    try:
        fields = json.loads(read_file(path, _MAX_BYTES))
        gateways = tuple(str(url) for url in fields["gateways"])
        key = fields["enrolment_key"]
        return Enrolled(
            device=parse_device_id(fields["device"]),
            fleet=parse_fleet(fields["fleet"]),
            gateways=gateways,
            enrolment_key=None if key is None else str(key),
            state_dir=state_dir,
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, ConfigError) as error:
        raise ConfigError(
            "E-ENROLLED",
            f"{path} as 'edgefl agent enrol' wrote it",
            f"a damaged file ({type(error).__name__})",
            "enrol again: the device keeps its identity",
        ) from error
