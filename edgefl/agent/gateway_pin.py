"""The gateway that a device belongs to: pinned at the first contact, told from any other one."""

import hashlib

from edgefl.errors import RemoteProtocolError
from edgefl.protocol.service_messages import AggregatorStatus
from edgefl.protocol.versions import LEAST_GATEWAY_MINOR
from edgefl.storage.base import KeyValueStore
from edgefl.transfer.manifest import DEFAULT_CHUNK_BYTES

_KEY = "gateway-key"
_MOVED = "gateway-moved-to"


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
        self.chunk_bytes = DEFAULT_CHUNK_BYTES
        self.most_sleep_s = 0
        # Where the gateway said that it is, in this life or an earlier one, and its epoch then.
        epoch, *urls = (store.get(_MOVED) or b"0").decode().split()
        self._moved_epoch = int(epoch)
        self.moved_to = tuple(urls)

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
        self.chunk_bytes = status.chunk_bytes
        self.most_sleep_s = status.most_sleep_s
        return is_new

    def is_moving(self, status: AggregatorStatus) -> bool:
        """Keep where the gateway says that it is from now on; tell whether that is news.

        One that says nothing may be at its new place already, so that nothing is forgotten. Only
        a later start of the gateway is believed over what is known: old words that are repeated,
        and two copies of a gateway that name each other, would send a device to and fro for ever.
        """
        moved_to = tuple(url for url in status.moved_to if url and not url.split()[1:])
        if not moved_to or moved_to == self.moved_to or status.epoch <= self._moved_epoch:
            return False
        self.moved_to, self._moved_epoch = moved_to, status.epoch
        self._store.put(_MOVED, " ".join([str(status.epoch), *moved_to]).encode())
        return True


def pin_gateway(store: KeyValueStore, key: bytes) -> None:
    """Pin the gateway that a token names, before the first contact.

    Raises:
        RemoteProtocolError: E-GATEWAY-KEY, the device belongs to another one.
    """
    pinned = store.get(_KEY)
    if pinned is not None and pinned != key:
        raise foreign_gateway(pinned, key)
    if pinned is None:
        store.put(_KEY, key)


def foreign_gateway(pinned: bytes, found: bytes) -> RemoteProtocolError:
    """Return what to say about a gateway that is not the one a device was first used with."""
    return RemoteProtocolError(
        "E-GATEWAY-KEY",
        f"the gateway that this device was first used with (key {fingerprint(pinned)})",
        f"another gateway (key {fingerprint(found)})",
        "connect to the right gateway, or reset this device's state folder if it moved",
    )


def old_gateway(status: AggregatorStatus, agent_version: str) -> RemoteProtocolError | None:
    """Return what to say about a gateway that is too old for this agent, or None."""
    if status.protocol_minor >= LEAST_GATEWAY_MINOR:
        return None
    version = status.gateway_version or "before 0.2"
    return RemoteProtocolError(
        "E-GATEWAY-OLD",
        f"a gateway of protocol 1.{LEAST_GATEWAY_MINOR} or later",
        f"gateway {version} with protocol 1.{status.protocol_minor}: too old for agent "
        f"{agent_version}",
        "on the gateway run 'pip install --upgrade edgefl-runtime' and start it again",
    )


def fingerprint(public_key: bytes) -> str:
    """Return a short form of a public key for people: 16 hex digits of its SHA-256, in groups."""
    digits = hashlib.sha256(public_key).hexdigest()[:16]
    return "-".join(digits[index : index + 4] for index in range(0, 16, 4))
