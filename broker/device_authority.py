"""What the desk of enrolment needs of a certificate authority; it knows no cryptography itself."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate that was made.

    Attributes:
        certificate: DER.
        serial: Its serial number.
        expires_s: Seconds since 1970.
    """

    certificate: bytes
    serial: int
    expires_s: int


class DeviceAuthority(Protocol):
    """Makes certificates for boards, and knows the signatures of claims."""

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """Authorities that boards shall trust, DER, the one that signs first."""
        ...

    def check(self, request: bytes, device: str) -> None:
        """Check a certificate request (PKCS #10, DER), whatever bytes it is.

        Raises:
            RemoteProtocolError: It is damaged, for another name, or for another kind of key.
        """
        ...

    def issue(self, request: bytes, device: str, now_s: float) -> Issued:
        """Make a certificate for a request.

        Raises:
            RemoteProtocolError: As `check`.
        """
        ...

    def verify(self, certificate: bytes, signature: bytes, content: bytes) -> bool:
        """Tell whether the key of a certificate (DER) made a signature."""
        ...
