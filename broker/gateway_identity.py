"""The gateway's identity: made once, in its state; its public part also in a file for commands."""

from pathlib import Path
from typing import Final

from edgefl._native import Seed, SigningKey
from edgefl.errors import ConfigError, StorageError
from edgefl.protocol.limits import KEY_BYTES
from edgefl.storage.base import KeyValueStore
from edgefl.storage.files import read_file, replace_file

PUBLIC_KEY_FILE: Final = "gateway.pub"
_IDENTITY: Final = "identity-seed"
_SEED_BYTES: Final = 32
_MAX_FILE_BYTES: Final = 200


def load_gateway_identity(store: KeyValueStore) -> SigningKey:
    """Read the identity, or make it at the first start.

    Raises:
        StorageError: E-IDENTITY, the stored one is damaged.
    """
    stored = store.get(_IDENTITY)
    if stored is None:
        seed = Seed.generate()
        store.put(_IDENTITY, seed.export_bytes())
        return SigningKey.from_seed(seed)
    if len(stored) != _SEED_BYTES:
        raise StorageError("E-IDENTITY", "an identity of 32 bytes", f"{len(stored)} bytes")
    return SigningKey.from_seed(Seed.from_bytes(stored))


def write_public_key(state_dir: Path, key: bytes) -> None:
    """Write the public key where commands find it while the state belongs to a running gateway.

    Raises:
        StorageError: E-GATEWAY-PUB.
    """
    path = state_dir / PUBLIC_KEY_FILE
    content = key.hex().encode() + b"\n"
    try:
        if not path.exists() or path.read_bytes() != content:
            replace_file(path, content, mode=0o644)
    except OSError as error:
        raise StorageError(
            "E-GATEWAY-PUB", f"{path}, which can be written", error.strerror or str(error)
        ) from error


def read_public_key(state_dir: Path) -> bytes:
    """Read the public key.

    Raises:
        ConfigError: E-GATEWAY-PUB, there is none.
    """
    path = state_dir / PUBLIC_KEY_FILE
    try:
        key = bytes.fromhex(read_file(path, _MAX_FILE_BYTES).decode("ascii").strip())
    except (OSError, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            "E-GATEWAY-PUB",
            f"the gateway's public key in {path}",
            "none",
            "'edgefl gateway init' writes it, and each start of the gateway",
        )
    return key
