"""A device's signed key bundle for one key epoch, and proofs that a mask key is of its batch."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

from edgefl._native import AgreementKey, Seed, SigningKey, verify
from edgefl.errors import RemoteProtocolError, WireError
from edgefl.protocol import wire
from edgefl.protocol.merkle import DIGEST_BYTES, is_leaf, read_path
from edgefl.protocol.roster_epoch import KEY_BYTES, SIGNATURE_BYTES
from edgefl.protocol.wire import WireValue, as_bytes, as_int, as_text

MAX_KEY_EPOCH = 2**32 - 1
DEFAULT_MASK_KEYS = 64
MAX_MASK_KEYS = 1024
PRG_CHACHA20 = 1
PRG_AES_128_CTR = 2
MAX_PRGS = 2**16 - 1

_PROBE_KEY = AgreementKey.from_seed(Seed.from_bytes(bytes(range(32))))
"""No secret: whether a public key is of small order does not depend on the other end's key."""
_CACHED_BUNDLES = 4096


def prg_bitmask(*prgs: int) -> int:
    """Return the bitmask that declares PRGs: ChaCha20 always, further ones by their number."""
    return sum(1 << (prg - 1) for prg in {PRG_CHACHA20, *prgs})


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyBundle:
    """The public keys of one device in one key epoch. A device signs one per number, ever.

    Attributes:
        identity_key: Ed25519 public key, as in the roster.
        key_epoch: From 1.
        roster_hash: Hash of the roster epoch that the key epoch belongs to.
        share_key: X25519 public key that seals shares; its secret is never shared.
        mask_root: Merkle root over the one-time mask keys.
        mask_key_count: How many there are; a power of two.
        prgs: Bit p - 1 says that the device runs PRG number p in constant time and quickly.
        nonce_commitment: To the device's part of the beacon; see `key_epoch.commit_nonce`.
        signature: By the identity key, over `signed_bytes`.
    """

    device: str
    identity_key: bytes
    key_epoch: int
    roster_hash: bytes
    share_key: bytes
    mask_root: bytes
    mask_key_count: int
    prgs: int
    nonce_commitment: bytes
    signature: bytes
    _digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_mask_key_count(self.mask_key_count)
        if not self.prgs & 1:
            raise WireError("E-BUNDLE-PRGS", "ChaCha20 among the PRGs", f"bits {self.prgs:b}")
        object.__setattr__(self, "_digest", wire.digest(self.to_list()))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the deterministic encoding, signature included."""
        return self._digest

    def declares(self, prg: int) -> bool:
        """Tell whether the device runs PRG number `prg` (1 ChaCha20, 2 AES-128-CTR)."""
        return prg > 0 and bool(self.prgs >> (prg - 1) & 1)

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [*self._signed_fields(), self.signature]

    @classmethod
    def from_value(cls, value: WireValue) -> "KeyBundle":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 10:
            raise WireError("E-WIRE-BUNDLE", "an array of 10", type(value).__name__)
        return cls(
            device=as_text(value[0], 64),
            identity_key=as_bytes(value[1], KEY_BYTES),
            key_epoch=as_int(value[2], 1, MAX_KEY_EPOCH),
            roster_hash=as_bytes(value[3], DIGEST_BYTES),
            share_key=as_bytes(value[4], KEY_BYTES),
            mask_root=as_bytes(value[5], DIGEST_BYTES),
            mask_key_count=as_int(value[6], 1, MAX_MASK_KEYS),
            prgs=as_int(value[7], 1, MAX_PRGS),
            nonce_commitment=as_bytes(value[8], DIGEST_BYTES),
            signature=as_bytes(value[9], SIGNATURE_BYTES),
        )

    def signed_by(self, fleet: str, key: SigningKey) -> "KeyBundle":
        """Return this bundle with its signature."""
        return replace(self, signature=key.sign(self.signed_bytes(fleet)))

    def signed_bytes(self, fleet: str) -> bytes:
        """Return what the identity key signs."""
        return wire.encode(["edgefl/1 bundle", fleet, *self._signed_fields()])

    def require_signed(self, fleet: str) -> None:
        """Check the signature, and that the share key can be used.

        Verified bundles are remembered: one costs a signature check once per process, not once per
        round and neighbour.

        Raises:
            RemoteProtocolError: E-BUNDLE-SIGNATURE, or E-PUBLIC-KEY for a key of small order.
        """
        _require_signed(self, fleet)

    def _signed_fields(self) -> list[WireValue]:
        return [
            self.device,
            self.identity_key,
            self.key_epoch,
            self.roster_hash,
            self.share_key,
            self.mask_root,
            self.mask_key_count,
            self.prgs,
            self.nonce_commitment,
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskKeyProof:
    """One one-time mask key with its place in its device's bundle.

    Attributes:
        index: Key index of the session.
        key: X25519 public key; its secret is Shamir-shared.
        path: Merkle path under the bundle's `mask_root`.
    """

    index: int
    key: bytes
    path: tuple[bytes, ...]

    def to_list(self) -> list[WireValue]:
        """Return the CBOR array."""
        return [self.index, self.key, list(self.path)]

    @classmethod
    def from_value(cls, value: WireValue) -> "MaskKeyProof":
        """Read the CBOR array."""
        if not isinstance(value, list) or len(value) != 3:
            raise WireError("E-WIRE-MASK-KEY", "an array of 3", type(value).__name__)
        return cls(
            index=as_int(value[0], 0, MAX_MASK_KEYS - 1),
            key=as_bytes(value[1], KEY_BYTES),
            path=read_path(value[2]),
        )

    def require_in(self, bundle: KeyBundle) -> None:
        """Check that the key stands at its index in the bundle, and can be used.

        Raises:
            RemoteProtocolError: E-MASK-KEY-PATH, or E-PUBLIC-KEY for a key of small order, with
                which the masks of every neighbour would be known.
        """
        leaf = mask_leaf(self.index, self.key)
        if not is_leaf(
            leaf, self.index, self.path, size=bundle.mask_key_count, root=bundle.mask_root
        ):
            raise RemoteProtocolError(
                "E-MASK-KEY-PATH",
                f"mask key {self.index} of the {bundle.mask_key_count} in the bundle",
                "another key or place",
            )
        require_usable_key(self.key)


def mask_leaf(index: int, public_key: bytes) -> bytes:
    """Return the leaf of a one-time mask key in its bundle's tree."""
    return wire.encode([index, public_key])


def share_secret_of(secret: Seed, *, fleet: str, device: str, key_epoch: int) -> AgreementKey:
    """Derive the key that seals shares in one key epoch."""
    info = wire.encode([fleet, device, key_epoch])
    return AgreementKey.from_seed(secret.derive(b"edgefl/1 share key", info))


def require_usable_key(public_key: bytes) -> None:
    """Check an X25519 public key.

    Raises:
        RemoteProtocolError: E-PUBLIC-KEY, it is of small order.
    """
    _PROBE_KEY.agree(public_key, b"", b"")


def require_mask_key_count(count: int) -> None:
    """Check the size of a batch.

    Raises:
        WireError: E-MASK-KEY-COUNT.
    """
    if not 1 <= count <= MAX_MASK_KEYS or count & (count - 1):
        raise WireError(
            "E-MASK-KEY-COUNT", f"a power of two from 1 to {MAX_MASK_KEYS}", str(count)[:40]
        )


@lru_cache(maxsize=_CACHED_BUNDLES)
def _require_signed(bundle: KeyBundle, fleet: str) -> None:
    if not verify(bundle.identity_key, bundle.signed_bytes(fleet), bundle.signature):
        raise RemoteProtocolError(
            "E-BUNDLE-SIGNATURE",
            f"a key bundle signed by {bundle.device} for this fleet",
            "another signature",
        )
    require_usable_key(bundle.share_key)
