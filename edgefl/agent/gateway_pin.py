"""The gateway that a device belongs to: pinned at the first contact, told from any other one."""

import hashlib

from edgefl.errors import RemoteProtocolError
from edgefl.protocol.service_messages import AggregatorStatus
from edgefl.storage.base import KeyValueStore

_KEY = "gateway-key"


class GatewayPin:
    """The pinned key, and the newest status of the gateway that has it.

    Args:
        store: Durable state.
    """

    def __init__(self, store: KeyValueStore) -> None:
        """Read the key; there is none before the first contact."""
        self._store = store
        self.key = store.get(_KEY)
        self.epoch: int | None = None
        self.most_sleep_s = 0

    @property
    def is_heard(self) -> bool:
        """Tell whether the gateway has been heard since the start."""
        return self.epoch is not None

    def take(self, status: AggregatorStatus) -> bool:
        """Take a status whose signature was checked; tell whether the gateway has started anew.

        Raises:
            RemoteProtocolError: E-GATEWAY-KEY, it is another gateway's.
        """
        if self.key is None:
            self._store.put(_KEY, status.identity_key)
            self.key = status.identity_key
        if status.identity_key != self.key:
            raise foreign_gateway(self.key, status.identity_key)
        is_new = self.epoch != status.epoch
        self.epoch = status.epoch
        self.most_sleep_s = status.most_sleep_s
        return is_new


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
