"""What enrolment needs of a link that the gateway itself serves: to refuse, and to cut off."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


@runtime_checkable
class SessionControl(Protocol):
    """A link whose clients the gateway can refuse and cut off."""

    def set_revoked(self, serials: Sequence[str], identities: Sequence[str]) -> None:
        """Refuse these from now on, and cut off those that are there.

        Args:
            serials: Of certificates, lower-case hexadecimal without leading zeros.
            identities: Names in certificates.
        """
        ...

    def disconnect(self, identity: str, reason: str) -> None:
        """Cut off a client by the name in its certificate; one that is not there is fine."""
        ...

    def set_certificates(self, chain: bytes, key: bytes, authorities: bytes) -> None:
        """Show another certificate from the next connection on, and trust other authorities.

        Args:
            chain: PEM.
            key: PEM.
            authorities: PEM, of those that clients' certificates may come from.
        """
        ...
