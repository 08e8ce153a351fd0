"""The key-value store without a disk, for tests and the simulator."""

from collections.abc import Mapping

from edgefl.errors import StorageError
from edgefl.storage.base import require_key, require_namespace


class MemoryFile:
    """What the namespaces of one store have in common: the stand-in for a file."""

    def __init__(self) -> None:
        """Start empty and open."""
        self.is_open = True
        self.tables: dict[str, dict[str, bytes]] = {}


class MemoryStore:
    """A `KeyValueStore` in a dictionary.

    Args:
        namespace: Name of the namespace that this object shows.
        file: Content to share with other namespaces or with an earlier life; by default a new one.
    """

    def __init__(self, namespace: str = "state", *, file: MemoryFile | None = None) -> None:
        """Open the namespace."""
        require_namespace(namespace)
        self._file = MemoryFile() if file is None else file
        self._namespace = namespace
        self._rows = self._file.tables.setdefault(namespace, {})

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        require_key(key)
        self._require_open()
        return self._rows.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Store one value."""
        self.put_many({key: value})

    def put_many(self, changes: Mapping[str, bytes | None]) -> None:
        """Store several values; None deletes."""
        self._require_open()
        for key in changes:
            require_key(key)
        for key, value in changes.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = bytes(value)

    def put_across(self, changes: Mapping[str, Mapping[str, bytes | None]]) -> None:
        """Store values of several namespaces; None deletes."""
        self._require_open()
        for rows in changes.values():
            for key in rows:
                require_key(key)
        for namespace, rows in changes.items():
            self.namespace(namespace).put_many(rows)

    def delete(self, key: str) -> None:
        """Delete a key; an absent one is fine."""
        self.put_many({key: None})

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""
        self._require_open()
        return sorted(key for key in self._rows if key.startswith(prefix))

    def namespace(self, name: str) -> "MemoryStore":
        """Return another namespace that shares this one's life."""
        self._require_open()
        return MemoryStore(name, file=self._file)

    def reopened(self) -> "MemoryStore":
        """Close, and return an open store as a restarted process would find it."""
        self.close()
        successor = MemoryFile()
        successor.tables = self._file.tables
        return MemoryStore(self._namespace, file=successor)

    def close(self) -> None:
        """Refuse further use of all namespaces."""
        self._file.is_open = False

    def _require_open(self) -> None:
        if not self._file.is_open:
            raise StorageError("E-STATE-CLOSED", "an open state file", "a closed one")
