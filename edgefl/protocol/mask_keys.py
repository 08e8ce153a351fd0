"""A device's batch of one-time mask keys: all public keys, and the secrets still needed."""

from collections.abc import Mapping, Sequence

from edgefl._native import AgreementKey, Seed
from edgefl.errors import LocalProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.key_bundle import (
    MAX_MASK_KEYS,
    MaskKeyProof,
    mask_leaf,
    require_mask_key_count,
)
from edgefl.protocol.merkle import MerkleTree, read_concatenated
from edgefl.protocol.wire import WireValue

_SEED_BYTES = 32


class MaskKeyBatch:
    """A device's one-time mask keys of one key epoch.

    Security: it holds the secrets, each by itself: a revealed or stolen one tells nothing about any
    other, and a destroyed one follows from nothing that is left. The public keys stay, as each
    proof takes all of them.

    Args:
        public_keys: X25519 public key per index, 32 bytes each.
        seeds: What makes the keys, by index; of those that were not destroyed.

    Raises:
        WireError: E-MASK-KEY-COUNT, not a power of two from 1 to 1024.
    """

    def __init__(self, public_keys: Sequence[bytes], seeds: Mapping[int, Seed]) -> None:
        """Hash the tree; `from_epoch_secret` makes the keys."""
        require_mask_key_count(len(public_keys))
        self._public_keys = tuple(public_keys)
        self._seeds = dict(seeds)
        self._tree = MerkleTree([mask_leaf(index, key) for index, key in enumerate(public_keys)])

    @classmethod
    def from_epoch_secret(
        cls, secret: Seed, *, fleet: str, device: str, key_epoch: int, count: int
    ) -> "MaskKeyBatch":
        """Derive a new batch.

        Args:
            secret: Fresh for each key epoch, and not kept.
            fleet: The fleet.
            device: Whose keys they are.
            key_epoch: The key epoch.
            count: A power of two, 1 to 1024.
        """
        require_mask_key_count(count)
        infos = [wire.encode([fleet, device, key_epoch, index]) for index in range(count)]
        seeds = secret.derive_many(b"edgefl/1 mask key", infos)
        public_keys = [AgreementKey.from_seed(seed).public_key for seed in seeds]
        return cls(public_keys, dict(enumerate(seeds)))

    @property
    def root(self) -> bytes:
        """Merkle root over the public keys."""
        return self._tree.root

    @property
    def count(self) -> int:
        """Number of keys, destroyed ones included."""
        return len(self._public_keys)

    def has_secret(self, index: int) -> bool:
        """Tell whether the secret at `index` is there still."""
        return index in self._seeds

    def secret(self, index: int) -> AgreementKey:
        """Return the key at `index`.

        Raises:
            LocalProtocolError: E-MASK-KEY-INDEX, there is none, or it was destroyed.
        """
        self._require_index(index)
        seed = self._seeds.get(index)
        if seed is None:
            raise LocalProtocolError(
                "E-MASK-KEY-INDEX", "a key whose call is not over", f"destroyed key {index}"
            )
        return AgreementKey.from_seed(seed)

    def proof(self, index: int) -> MaskKeyProof:
        """Return the public key at `index` with its path; its secret may be destroyed.

        Raises:
            LocalProtocolError: E-MASK-KEY-INDEX, there is none.
        """
        self._require_index(index)
        key = self._public_keys[index]
        return MaskKeyProof(index=index, key=key, path=self._tree.path(index))

    def destroy(self, index: int) -> bool:
        """Destroy the secret at `index` for good; tell whether it was there."""
        return self._seeds.pop(index, None) is not None

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array. Security: it holds the secrets that were not destroyed."""
        seeds = (self._seeds.get(index) for index in range(self.count))
        return [
            b"".join(self._public_keys),
            [None if seed is None else seed.export_bytes() for seed in seeds],
        ]

    @classmethod
    def from_value(cls, value: WireValue) -> "MaskKeyBatch":
        """Read the CBOR array."""
        parts = wire.as_list(value, 2)
        if len(parts) != 2:
            raise WireError("E-SNAPSHOT", "an array of 2", f"{len(parts)} parts")
        public_keys = read_concatenated(parts[0], MAX_MASK_KEYS)
        seeds = wire.as_list(parts[1], len(public_keys))
        if len(seeds) != len(public_keys):
            raise WireError("E-SNAPSHOT", f"{len(public_keys)} seeds", f"{len(seeds)}")
        return cls(
            public_keys,
            {
                index: Seed.from_bytes(wire.as_bytes(seed, _SEED_BYTES))
                for index, seed in enumerate(seeds)
                if seed is not None
            },
        )

    def _require_index(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise LocalProtocolError("E-MASK-KEY-INDEX", f"an index below {self.count}", str(index))
