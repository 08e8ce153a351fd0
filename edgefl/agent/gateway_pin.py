"""How a device tells its own gateway from another one, in words for people."""

import hashlib

from edgefl.errors import RemoteProtocolError


def foreign_gateway(pinned: bytes, found: bytes) -> RemoteProtocolError:
    """Return what to say about a gateway that is not the one a device was first used with."""
    return RemoteProtocolError(
        "E-GATEWAY-KEY",
        f"the gateway that this device was first used with (key {fingerprint(pinned)})",
        f"another gateway (key {fingerprint(found)})",
        "connect to the right gateway, or reset this device's state folder if it moved",
    )


def fingerprint(public_key: bytes) -> str:
    """Return a short form of a public key for people: 16 hex digits of its SHA-256, in groups."""
    digits = hashlib.sha256(public_key).hexdigest()[:16]
    return "-".join(digits[index : index + 4] for index in range(0, 16, 4))
