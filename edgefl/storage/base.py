"""What the layers above know about crash-safe state: keys, values, one transaction at a time."""

from collections.abc import Mapping
from typing import Protocol

from edgefl.errors import ConfigError

MAX_KEY_BYTES = 256


class KeyValueStore(Protocol):
    """Keys and values of one namespace of a state file.

    When a writing method returns, its change survives kill -9 and power loss (as far as the disk
    keeps its word about fsync). When it raises, nothing of it was done.
    """

    def get(self, key: str) -> bytes | None:
        """Return the value, or None.

        Raises:
            StorageError: the stored row is damaged.
        """

    def put(self, key: str, value: bytes) -> None:
        """Store one value.

        Raises:
            StorageError: it cannot be written; the earlier state stands.
        """

    def put_many(self, changes: Mapping[str, bytes | None]) -> None:
        """Store several values in one transaction; None deletes.

        Raises:
            StorageError: it cannot be written; the earlier state stands.
        """

    def put_across(self, changes: Mapping[str, Mapping[str, bytes | None]]) -> None:
        """Store values of several namespaces in one transaction; None deletes.

        Args:
            changes: New value by key by namespace.

        Raises:
            StorageError: they cannot be written; the earlier state stands.
        """

    def delete(self, key: str) -> None:
        """Delete a key; an absent one is fine.

        Raises:
            StorageError: it cannot be written; the earlier state stands.
        """

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""

    def namespace(self, name: str) -> "KeyValueStore":
        """Return another namespace of the same file: separate keys, common lock and life."""

    def close(self) -> None:
        """Release the file for all namespaces; a second call does nothing."""


def require_key(key: str) -> None:
    """Check a key.

    Raises:
        ConfigError: it is empty or too long, or not encodable.
    """
    try:
        size_bytes = len(key.encode())
    except UnicodeEncodeError as error:
        raise ConfigError("E-STATE-KEY", "a key of valid text", "a lone surrogate") from error
    if not 1 <= size_bytes <= MAX_KEY_BYTES or "\0" in key:
        found = f"{size_bytes} bytes" if "\0" not in key else "a null character"
        raise ConfigError("E-STATE-KEY", f"a key of 1 to {MAX_KEY_BYTES} bytes", found)


def require_namespace(name: str) -> None:
    """Check a namespace name.

    Raises:
        ConfigError: it is not 1 to 32 characters of `a-z 0-9 _`, beginning with a letter.
    """
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789_")
    if not 1 <= len(name) <= 32 or not name[0].isalpha() or not set(name) <= allowed:
        raise ConfigError(
            "E-STATE-NAMESPACE", "a name of 1 to 32 of a-z 0-9 _, first a letter", repr(name[:40])
        )
