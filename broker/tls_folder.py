"""The gateway's TLS files: authority, certificates, revocations; renewed before they end.

A certificate and its key are one file, so that replacing it is one step. While an authority is
being replaced there are two: `ca.pem`, which signs for devices, and `ca-previous.pem`, which
devices that have not been heard since still need to trust the gateway by.
"""

import datetime
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from broker.certificates import (
    CertificateAuthority,
    KeyPair,
    expiry_of,
    hosts_of,
    make_authority,
    pem_to_der,
)
from edgefl.errors import ConfigError, StorageError
from edgefl.storage.files import read_file, replace_file

FOLDER: Final = "tls"
AGGREGATOR: Final = "aggregator"
"""The name in the certificate with which the gateway connects to a broker of others."""
_MAX_FILE_BYTES: Final = 64 * 1024
_RENEWED_BEFORE: Final = datetime.timedelta(days=122)
"""A third of a certificate's life."""
_ORDER: Final = "last-order"
_END: Final = b"-----END CERTIFICATE-----\n"


class TlsFolder:
    """The files in a gateway's `tls` folder.

    Args:
        state_dir: The gateway's folder.

    Raises:
        ConfigError: E-TLS-FOLDER, there is none; E-CA-FILE, it is damaged.
    """

    def __init__(self, state_dir: Path) -> None:
        """Read the authority."""
        self._folder = state_dir / FOLDER
        self.authority = _read_authority(self._folder / "ca.pem")
        self.previous: CertificateAuthority | None = None
        if (self._folder / "ca-previous.pem").exists():
            previous = _read_authority(self._folder / "ca-previous.pem")
            # Equal where a power cut came between the two steps of `rotate`.
            if previous.certificate != self.authority.certificate:
                self.previous = previous

    @staticmethod
    def exists(state_dir: Path) -> bool:
        """Tell whether a gateway has such files."""
        return (state_dir / FOLDER / "ca.pem").exists()

    @classmethod
    def create(
        cls, state_dir: Path, *, fleet: str, hosts: Sequence[str], now: datetime.datetime
    ) -> "TlsFolder":
        """Make everything anew.

        Args:
            state_dir: The gateway's folder.
            fleet: The fleet's name.
            hosts: Names and addresses that devices connect to.
            now: The time, with its zone.

        Raises:
            ConfigError: E-TLS-FOLDER-EXISTS, there is an authority already; E-HOST-NAME.
        """
        if cls.exists(state_dir):
            raise ConfigError(
                "E-TLS-FOLDER-EXISTS",
                "a gateway without an authority",
                f"{state_dir / FOLDER} has one",
                "devices trust it; 'edgefl gateway ca rotate' replaces it without losing them",
            )
        authority = make_authority(fleet, now)
        signer = CertificateAuthority(authority.certificate, authority.key)
        server = signer.issue_server(hosts, now)  # Before any file: a bad name leaves nothing.
        (state_dir / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(state_dir / FOLDER / "server.pem", server.certificate + server.key)
        _write_private(state_dir / FOLDER / "ca.pem", authority.certificate + authority.key)
        folder = cls(state_dir)
        folder.refresh(hosts, now)
        folder.write_revocations((), now)
        return folder

    @property
    def trusted_file(self) -> Path:
        """PEM with the authorities that devices and brokers trust."""
        return self._folder / "trusted.crt"

    @property
    def server_file(self) -> Path:
        """PEM with the server's certificate and key."""
        return self._folder / "server.pem"

    @property
    def aggregator_file(self) -> Path:
        """PEM with certificate and key of the gateway as a client of a broker."""
        return self._folder / "aggregator.pem"

    @property
    def revocations_file(self) -> Path:
        """PEM with a revocation list of each authority."""
        return self._folder / "revoked.crl"

    @property
    def authorities(self) -> tuple[CertificateAuthority, ...]:
        """All that are trusted, the one that signs first."""
        return (self.authority,) if self.previous is None else (self.authority, self.previous)

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """Certificates of all authorities, DER."""
        return tuple(authority.certificate_der for authority in self.authorities)

    @property
    def last_order(self) -> str:
        """Which order was about to change the authority last; empty for none."""
        path = self._folder / _ORDER
        return _read(path).decode("ascii", "replace") if path.exists() else ""

    def note_order(self, order_id: str) -> None:
        """Note an order before it is carried out: a crash may come before it is answered."""
        _write_private(self._folder / _ORDER, order_id.encode())

    def refresh(self, hosts: Sequence[str], now: datetime.datetime) -> list[str]:
        """Renew what ends soon or is for other names; return what was renewed.

        Raises:
            ConfigError: E-HOST-NAME; E-GATEWAY-CLOCK.
            StorageError: A file cannot be written.
        """
        _write(self.trusted_file, b"".join(a.certificate for a in self.authorities), 0o644)
        # Devices that were not heard since a rotation know the previous authority only.
        signer = self.previous or self.authority
        renewed = []
        is_server_due = self._is_due(self.server_file, now) or _other_hosts(self.server_file, hosts)
        is_aggregator_due = self._is_due(self.aggregator_file, now)
        if is_server_due or is_aggregator_due:
            signer.require_clock(now)
        if is_server_due:
            _write_pair(self.server_file, signer.issue_server(hosts, now))
            renewed.append("server")
        if is_aggregator_due:
            _write_pair(self.aggregator_file, signer.issue_client(AGGREGATOR, now))
            renewed.append(AGGREGATOR)
        return renewed

    def write_revocations(self, serials: Collection[int], now: datetime.datetime) -> None:
        """Write the revocation lists, for brokers that are not this process."""
        lists = [authority.revocation_list(serials, now) for authority in self.authorities]
        _write(self.revocations_file, b"".join(lists), 0o644)

    def rotate(self, *, fleet: str, now: datetime.datetime) -> None:
        """Begin to replace the authority: both are trusted, the new one signs for devices.

        Raises:
            ConfigError: E-CA-ROTATING, it has begun before.
        """
        if self.previous is not None:
            raise ConfigError(
                "E-CA-ROTATING",
                "one authority, or one that is replaced at a time",
                f"{self.previous.fingerprint} is being replaced by {self.authority.fingerprint}",
                "'edgefl gateway ca finish' ends that",
            )
        made = make_authority(fleet, now)
        old = read_file(self._folder / "ca.pem", _MAX_FILE_BYTES)
        _write_private(self._folder / "ca-previous.pem", old)
        _write_private(self._folder / "ca.pem", made.certificate + made.key)
        self.previous = self.authority
        self.authority = CertificateAuthority(made.certificate, made.key)

    def finish(self, hosts: Sequence[str], now: datetime.datetime) -> None:
        """End the replacement: the old authority is trusted no more.

        Raises:
            ConfigError: E-CA-NOT-ROTATING.
        """
        if self.previous is None:
            raise ConfigError(
                "E-CA-NOT-ROTATING",
                "an authority that is being replaced",
                "one that is not",
                "'edgefl gateway ca rotate' begins it",
            )
        (self._folder / "ca-previous.pem").unlink()
        self.previous = None
        self.refresh(hosts, now)

    def _is_due(self, path: Path, now: datetime.datetime) -> bool:
        if not path.exists():
            return True
        content = _read(path)
        certificate = content.partition(_END)[0] + _END
        is_ours = any(a.has_issued(pem_to_der(certificate)) for a in self.authorities)
        return not is_ours or expiry_of(certificate) - now < _RENEWED_BEFORE


def _other_hosts(path: Path, hosts: Sequence[str]) -> bool:
    return set(hosts_of(_read(path))) != set(hosts)


def _read_authority(path: Path) -> CertificateAuthority:
    if not path.exists():
        raise ConfigError(
            "E-TLS-FOLDER",
            "a gateway with an authority of its own",
            f"no {path}",
            "'edgefl gateway init' makes one",
        )
    content = _read(path)
    head, end, key = content.partition(_END)
    return CertificateAuthority(head + end, key)


def _read(path: Path) -> bytes:
    try:
        return read_file(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise _file_problem(path, error, "can be read") from error


def _write_pair(path: Path, pair: KeyPair) -> None:
    _write_private(path, pair.certificate + pair.key)


def _write_private(path: Path, content: bytes) -> None:
    _write(path, content, stat.S_IRUSR | stat.S_IWUSR)


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        replace_file(path, content, mode=mode)
    except OSError as error:
        raise _file_problem(path, error, "can be written") from error


def _file_problem(path: Path, error: OSError, what: str) -> StorageError:
    return StorageError("E-TLS-FOLDER", f"{path}, which {what}", error.strerror or str(error))
