"""The desk's certificate authority over the gateway's TLS files."""

import datetime

from broker.certificates import read_request, verify_with_certificate
from broker.device_authority import Issued
from broker.tls_folder import TlsFolder
from edgefl.errors import ConfigError, RemoteProtocolError


class TlsAuthority:
    """A `DeviceAuthority` over files, which may be replaced while it is used.

    Args:
        folder: The files.
    """

    def __init__(self, folder: TlsFolder) -> None:
        """Take the folder as it is."""
        self._folder = folder

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """Authorities that boards shall trust, DER, the one that signs first."""
        return self._folder.trusted

    def check(self, request: bytes, device: str) -> None:
        """Check a certificate request (PKCS #10, DER), whatever bytes it is.

        Raises:
            RemoteProtocolError: It is damaged, for another name, or for another kind of key.
        """
        read_request(request, device)

    def issue(self, request: bytes, device: str, now_s: float) -> Issued:
        """Make a certificate for a request.

        Raises:
            RemoteProtocolError: As `check`; or this machine's clock is wrong.
        """
        now = datetime.datetime.fromtimestamp(now_s, tz=datetime.UTC)
        try:
            self._folder.authority.require_clock(now)
        except ConfigError as error:  # Whoever asks is not to blame, and must not end the gateway.
            raise RemoteProtocolError(error.code, error.expected, error.found) from error
        return self._folder.authority.issue_device(request, device, now)

    def verify(self, certificate: bytes, signature: bytes, content: bytes) -> bool:
        """Tell whether the key of a certificate (DER) made a signature."""
        return verify_with_certificate(certificate, signature, content)
