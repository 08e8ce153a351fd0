"""Collects the changes of many steps, and stores them in one transaction.

A gateway takes what has arrived meanwhile as one batch: each step changes the state in memory, one
transaction makes all of it durable, and only then is anything said to anybody. Whoever dies in
between has said nothing that the state does not hold.
"""

from collections.abc import Mapping

from edgefl.errors import StorageError
from edgefl.storage.base import KeyValueStore, require_key, require_namespace

Changes = dict[str, dict[str, bytes | None]]
"""New value by key by namespace; None deletes."""


class Batch:
    """The changes that are not stored yet, of all namespaces.

    Args:
        target: Where they go.
    """

    def __init__(self, target: KeyValueStore) -> None:
        """Start with none."""
        self._target = target
        self._changes: Changes = {}
        self._is_open = True

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not self._changes

    @property
    def size_bytes(self) -> int:
        """Bytes of the values that wait to be stored."""
        return sum(len(value or b"") for rows in self._changes.values() for value in rows.values())

    def of(self, namespace: str) -> dict[str, bytes | None]:
        """Return the changes of one namespace; they grow with it.

        Raises:
            StorageError: The store is closed.
        """
        if not self._is_open:
            raise StorageError("E-STATE-CLOSED", "an open state file", "a closed one")
        return self._changes.setdefault(namespace, {})

    def seen_in(self, namespace: str) -> Mapping[str, bytes | None]:
        """Return the changes of one namespace, for reading."""
        return self._changes.get(namespace, {})

    def drop(self) -> None:
        """Forget what was not stored, and take no more."""
        self._changes, self._is_open = {}, False

    def commit(self) -> frozenset[str]:
        """Store all changes in one transaction; may run in another thread, between the steps.

        Returns:
            The namespaces that were changed.

        Raises:
            StorageError: They cannot be written. The earlier state stands, and whoever made the
                changes must not go on from them.
        """
        changed = frozenset(self._changes)
        if changed:
            self._target.put_across(self._changes)
            self._changes = {}
        return changed


class BatchStore:
    """A `KeyValueStore` that shows its changes at once and stores them at `commit`.

    Not for several threads at a time.

    Args:
        target: The same namespace of the durable store.
        namespace: Its name.
        batch: Shared by all namespaces; by default a new one.
    """

    def __init__(
        self, target: KeyValueStore, *, namespace: str, batch: Batch | None = None
    ) -> None:
        """Show what the durable store holds."""
        require_namespace(namespace)
        self._target = target
        self._namespace = namespace
        self.batch = Batch(target) if batch is None else batch

    def get(self, key: str) -> bytes | None:
        """Return the value, or None.

        Raises:
            StorageError: The stored row is damaged.
        """
        changes = self.batch.seen_in(self._namespace)
        return changes[key] if key in changes else self._target.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Note one value."""
        self.put_many({key: value})

    def put_many(self, changes: Mapping[str, bytes | None]) -> None:
        """Note several values; None deletes."""
        for key in changes:
            require_key(key)
        self.batch.of(self._namespace).update(
            {key: None if value is None else bytes(value) for key, value in changes.items()}
        )

    def put_across(self, changes: Mapping[str, Mapping[str, bytes | None]]) -> None:
        """Note values of several namespaces; None deletes."""
        for namespace, rows in changes.items():
            self.namespace(namespace).put_many(rows)

    def delete(self, key: str) -> None:
        """Note that a key is gone; an absent one is fine."""
        self.put_many({key: None})

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, sorted by code point."""
        changes = self.batch.seen_in(self._namespace)
        stored = {key for key in self._target.keys(prefix) if key not in changes}
        new = {
            key for key, value in changes.items() if value is not None and key.startswith(prefix)
        }
        return sorted(stored | new)

    def namespace(self, name: str) -> "BatchStore":
        """Return another namespace, whose changes are stored together with these."""
        return BatchStore(self._target.namespace(name), namespace=name, batch=self.batch)

    def close(self) -> None:
        """Release the durable store. What was not committed is gone."""
        self.batch.drop()
        self._target.close()
