"""Who a device is, and where its fresh secrets come from."""

from dataclasses import dataclass
from typing import Protocol

from edgefl._native import Seed, SigningKey


class EntropySource(Protocol):
    """Where fresh secrets come from: the OS on a device, a seeded stream in a simulator."""

    def fresh_seed(self) -> Seed:
        """Return 32 bytes that were never returned before."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """Who a device is: its id and its Ed25519 key."""

    device: str
    signing_key: SigningKey

    def __repr__(self) -> str:
        """Hide the key."""
        return f"DeviceIdentity({self.device!r})"
