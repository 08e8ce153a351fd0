"""What is transferred: a blob cut into chunks, each with its hash, and its wire form."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edgefl.errors import ConfigError, WireError

DEFAULT_CHUNK_BYTES = 65_536
MIN_CHUNK_BYTES = 4_096
MAX_CHUNK_BYTES = 122_880
"""120 KiB: below AWS IoT's limit of 128 KB for a message, header included."""
HASH_BYTES = 32

_SHA256, _SIZE, _CHUNK, _CHUNK_HASHES = range(1, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Size and hashes of a blob.

    Attributes:
        sha256: SHA-256 of the whole (32 bytes).
        size_bytes: Size of the whole; at least 1.
        chunk_bytes: Size of every chunk but the last.
        chunk_sha256s: SHA-256 of each chunk, in order.

    Raises:
        ConfigError: the values contradict each other or are out of range.
    """

    sha256: bytes
    size_bytes: int
    chunk_bytes: int
    chunk_sha256s: tuple[bytes, ...]

    def __post_init__(self) -> None:
        """Check the values against each other."""
        problem = _manifest_problem(self)
        if problem is not None:
            raise ConfigError("E-MANIFEST", "a consistent manifest", problem)

    @property
    def chunk_count(self) -> int:
        """How many chunks there are."""
        return len(self.chunk_sha256s)

    def size_of_chunk(self, index: int) -> int:
        """Return the size in bytes of a chunk, 0 <= index < chunk_count."""
        return min(self.chunk_bytes, self.size_bytes - index * self.chunk_bytes)

    def to_wire(self) -> dict[int, object]:
        """Return the map with integer keys; chunk hashes are joined to one byte string."""
        return {
            _SHA256: self.sha256,
            _SIZE: self.size_bytes,
            _CHUNK: self.chunk_bytes,
            _CHUNK_HASHES: b"".join(self.chunk_sha256s),
        }

    @classmethod
    def from_wire(cls, data: object, *, max_blob_bytes: int) -> "Manifest":
        """Read a map from a peer; unknown keys are ignored.

        Args:
            data: Decoded CBOR.
            max_blob_bytes: Largest blob that this side takes.

        Raises:
            WireError: it is not a consistent manifest, or the blob is too large.
        """
        fields = require_map(data)
        size_bytes = require_int(fields, _SIZE)
        if size_bytes > max_blob_bytes:
            raise WireError(
                "E-BLOB-TOO-LARGE", f"a blob of at most {max_blob_bytes} bytes", f"{size_bytes}"
            )
        joined = require_bytes(fields, _CHUNK_HASHES)
        hashes = tuple(
            joined[start : start + HASH_BYTES] for start in range(0, len(joined), HASH_BYTES)
        )
        try:
            return cls(
                sha256=require_bytes(fields, _SHA256),
                size_bytes=size_bytes,
                chunk_bytes=require_int(fields, _CHUNK),
                chunk_sha256s=hashes,
            )
        except ConfigError as error:
            raise WireError(error.code, error.expected, error.found) from error


def describe(blob: bytes, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> Manifest:
    """Return the manifest of a blob.

    Raises:
        ConfigError: the blob is empty or the chunk size is out of range.
    """
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES:
        expected = f"chunks of {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES} bytes"
        raise ConfigError("E-CHUNK-SIZE", expected, f"{chunk_bytes}")
    return Manifest(
        sha256=hashlib.sha256(blob).digest(),
        size_bytes=len(blob),
        chunk_bytes=chunk_bytes,
        chunk_sha256s=tuple(
            hashlib.sha256(chunk).digest() for chunk in chunks_of(blob, chunk_bytes)
        ),
    )


def chunks_of(blob: bytes, chunk_bytes: int) -> Iterator[memoryview]:
    """Yield a blob's chunks without copying them."""
    view = memoryview(blob)
    for start in range(0, len(blob), chunk_bytes):
        yield view[start : start + chunk_bytes]


def split(blob: bytes, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> tuple[Manifest, list[bytes]]:
    """Return a blob's manifest and its chunks.

    Raises:
        ConfigError: the blob is empty or the chunk size is out of range.
    """
    manifest = describe(blob, chunk_bytes)
    return manifest, [bytes(chunk) for chunk in chunks_of(blob, chunk_bytes)]


def require_map(data: object) -> Mapping[object, object]:
    """Return a decoded map.

    Raises:
        WireError: it is something else.
    """
    if not isinstance(data, Mapping):
        raise WireError("E-TRANSFER-WIRE", "a map", type(data).__name__)
    return data


def require_int(fields: Mapping[object, object], key: int) -> int:
    """Return a field that is an integer of at least 0 and below 2^63.

    Raises:
        WireError: it is absent or something else.
    """
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise WireError("E-TRANSFER-WIRE", f"a size or index at key {key}", _shown(value))
    return value


def require_bytes(fields: Mapping[object, object], key: int) -> bytes:
    """Return a field that is a byte string.

    Raises:
        WireError: it is absent or something else.
    """
    value = fields.get(key)
    if not isinstance(value, bytes):
        raise WireError("E-TRANSFER-WIRE", f"a byte string at key {key}", _shown(value))
    return value


def _shown(value: object) -> str:
    """Name a foreign value without showing its content."""
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _manifest_problem(manifest: Manifest) -> str | None:
    """Say what contradicts what, or None."""
    if not MIN_CHUNK_BYTES <= manifest.chunk_bytes <= MAX_CHUNK_BYTES:
        return f"chunks of {manifest.chunk_bytes} bytes"
    if manifest.size_bytes < 1:
        return f"a blob of {manifest.size_bytes} bytes"
    if any(len(value) != HASH_BYTES for value in (manifest.sha256, *manifest.chunk_sha256s)):
        return f"a hash that is not {HASH_BYTES} bytes long"
    needed = -(-manifest.size_bytes // manifest.chunk_bytes)
    if len(manifest.chunk_sha256s) != needed:
        return f"{len(manifest.chunk_sha256s)} chunk hashes where {needed} are needed"
    return None
