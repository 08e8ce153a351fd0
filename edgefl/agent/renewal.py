"""Keeps an enrolled device's certificate valid: asks for the next one in time, takes what comes.

Times are kept in a small file beside the certificate, so that an agent that has nothing to renew
does not load the library that reads certificates.
"""

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgefl.agent.enrolled import TlsFiles
from edgefl.errors import RemoteProtocolError, StorageError
from edgefl.protocol.enrolment_messages import CertificateIssued, RenewalRequest, digest_of
from edgefl.storage.files import read_file
from edgefl.types import DeviceId

_LOGGER = logging.getLogger(__name__)

_MAX_PEM_BYTES: Final = 64 * 1024
_DUE_AT: Final = 2 / 3
"""Part of a certificate's life after which the next one is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Life:
    """What is known of the certificate without reading it.

    Attributes:
        begins_s: Seconds since 1970.
        ends_s: Seconds since 1970.
        is_newest_authority: The authority that signs now has issued it.
    """

    begins_s: float
    ends_s: float
    is_newest_authority: bool


class CertificateKeeper:
    """One device's certificate over its life. Its methods block for the disk.

    Args:
        files: The device's TLS files.
        device: The name in its certificate.
        wall_clock_s: Seconds since 1970.
    """

    def __init__(
        self, files: TlsFiles, device: DeviceId, wall_clock_s: Callable[[], float]
    ) -> None:
        """Read nothing yet."""
        self._files = files
        self._device = device
        self._wall_clock_s = wall_clock_s
        # It is asked by a timer and by what arrives, in threads.
        self._turn = threading.Lock()

    @property
    def _life_path(self) -> Path:
        return self._files.device.with_name("life.json")

    def wanted(self) -> RenewalRequest | None:
        """Return the request for the next certificate, if it is time; the same one until it comes.

        Raises:
            StorageError: A file is damaged or cannot be written.
        """
        with self._turn:
            return self._wanted()

    def _wanted(self) -> RenewalRequest | None:
        life = self._life()
        due_s = life.begins_s + _DUE_AT * (life.ends_s - life.begins_s)
        if life.is_newest_authority and self._wall_clock_s() < due_s:
            return None
        return self._request()

    def take(self, message: CertificateIssued) -> RenewalRequest | None:
        """Take what the gateway sent, whose signature was checked; return what to say to it.

        Raises:
            RemoteProtocolError: E-CERTIFICATE, it is not what was asked for.
            StorageError: A file is damaged or cannot be written.
        """
        with self._turn:
            return self._take(message)

    def _take(self, message: CertificateIssued) -> RenewalRequest | None:
        from edgefl.agent import device_keys

        files = self._files
        if not message.authorities:
            raise RemoteProtocolError("E-CERTIFICATE", "authorities to trust", "none")
        known = device_keys.from_pem(read_pem(files.trusted))
        if message.authorities != known:
            files.write(files.trusted, device_keys.to_pem(message.authorities))
            _LOGGER.info("the gateway's authorities have changed: %s", len(message.authorities))
        if message.certificate and files.request.exists():
            self._take_certificate(message)
        # Only now: whoever reports is counted on to need the older authorities no more.
        self._note_life()
        return self._wanted() or self._report(message.authorities)

    def _take_certificate(self, message: CertificateIssued) -> None:
        from edgefl.agent import device_keys

        files = self._files
        wish = device_keys.CertificateWish.from_pem(read_pem(files.request))
        content = device_keys.certified(
            wish, message.certificate, message.authorities, self._device
        )
        files.write(files.device, content)
        files.request.unlink(missing_ok=True)
        _LOGGER.info("a new certificate, valid for %.0f days", _days(self._note_life()))

    def _request(self) -> RenewalRequest:
        from edgefl.agent import device_keys

        path = self._files.request
        if path.exists():
            wish = device_keys.CertificateWish.from_pem(read_pem(path))
        else:
            wish = device_keys.new_wish(self._device)
            self._files.write(path, wish.to_pem())
        trusted = device_keys.from_pem(read_pem(self._files.trusted))
        return RenewalRequest(certificate_request=wish.request, trusted_digest=digest_of(trusted))

    def _report(self, trusted: tuple[bytes, ...]) -> RenewalRequest:
        """Say that this device has moved to these authorities, and ask for nothing."""
        return RenewalRequest(certificate_request=b"", trusted_digest=digest_of(trusted))

    def _life(self) -> _Life:
        try:
            return _Life(**json.loads(read_file(self._life_path, _MAX_PEM_BYTES)))
        except (OSError, ValueError, TypeError):
            return self._note_life()

    def _note_life(self) -> _Life:
        """Read the certificate itself, and note what it says."""
        from edgefl.agent import device_keys

        certificate = read_pem(self._files.device)
        newest = device_keys.from_pem(read_pem(self._files.trusted))[0]
        begins_s, ends_s = device_keys.life_of(certificate)
        life = _Life(
            begins_s=begins_s,
            ends_s=ends_s,
            is_newest_authority=device_keys.is_issued_by(certificate, newest),
        )
        content = {
            "begins_s": life.begins_s,
            "ends_s": life.ends_s,
            "is_newest_authority": life.is_newest_authority,
        }
        self._files.write(self._life_path, json.dumps(content).encode())
        return life


def read_pem(path: Path) -> bytes:
    """Read one of the TLS files.

    Raises:
        StorageError: E-TLS-READ.
    """
    try:
        return read_file(path, _MAX_PEM_BYTES)
    except OSError as error:
        raise StorageError(
            "E-TLS-READ", f"{path}, which can be read", error.strerror or str(error), "enrol again"
        ) from error


def _days(life: _Life) -> float:
    return (life.ends_s - life.begins_s) / 86_400
