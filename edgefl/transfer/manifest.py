"""What is transferred: a blob cut into chunks, each with its hash, and one hash over all of them.

Every byte is hashed once: the hash of the whole is taken over the list of chunk hashes.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgefl.errors import ConfigError, WireError

DEFAULT_CHUNK_BYTES = 65_536
MIN_CHUNK_BYTES = 4_096
MAX_CHUNK_BYTES = 122_880
"""120 KiB: below AWS IoT's limit of 128 KB for a message, header included."""
MAX_BLOB_BYTES = 64 * 1024 * 1024
HASH_BYTES = 32
TRANSFER_ID_BYTES = 8

_ROOT_LABEL = b"edgefl manifest 1"
_ID_LABEL = b"edgefl transfer 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Size and hashes of a blob.

    Attributes:
        size_bytes: Size of the whole; at least 1.
        chunk_bytes: Size of every chunk but the last.
        chunk_hashes: SHA-256 of each chunk, in order, joined.

    Raises:
        ConfigError: the values contradict each other or are out of range.
    """

    size_bytes: int
    chunk_bytes: int
    chunk_hashes: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Check the values against each other."""
        problem = _manifest_problem(self)
        if problem is not None:
            raise ConfigError("E-MANIFEST", "a consistent manifest", problem)

    @property
    def chunk_count(self) -> int:
        """How many chunks there are."""
        return len(self.chunk_hashes) // HASH_BYTES

    @property
    def root(self) -> bytes:
        """The hash of the whole (32 bytes)."""
        sizes = self.size_bytes.to_bytes(8, "big") + self.chunk_bytes.to_bytes(4, "big")
        return hashlib.sha256(_ROOT_LABEL + sizes + self.chunk_hashes).digest()

    def size_of_chunk(self, index: int) -> int:
        """Return the size in bytes of a chunk, 0 <= index < chunk_count."""
        return min(self.chunk_bytes, self.size_bytes - index * self.chunk_bytes)

    def transfer_id(self, context: bytes) -> bytes:
        """Return the id (8 bytes) of the transfer of this blob in a context.

        Both ends compute it from the offer: the same offer after a restart is the same transfer,
        and another content can never go on under the id of the first.

        Args:
            context: What the blob belongs to, as bytes of one meaning.
        """
        length = len(context).to_bytes(4, "big")
        whole = _ID_LABEL + length + context + self.root
        return hashlib.sha256(whole).digest()[:TRANSFER_ID_BYTES]


def describe(blob: bytes | memoryview, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> Manifest:
    """Return the manifest of a blob.

    Raises:
        ConfigError: the blob is empty or the chunk size is out of range.
    """
    require_chunk_bytes(chunk_bytes)
    return Manifest(
        size_bytes=len(blob),
        chunk_bytes=chunk_bytes,
        chunk_hashes=b"".join(
            hashlib.sha256(chunk).digest() for chunk in chunks_of(blob, chunk_bytes)
        ),
    )


def chunks_of(blob: bytes | memoryview, chunk_bytes: int) -> Iterator[memoryview]:
    """Yield a blob's chunks without copying them."""
    view = memoryview(blob)
    for start in range(0, len(blob), chunk_bytes):
        yield view[start : start + chunk_bytes]


def require_chunk_bytes(chunk_bytes: int) -> None:
    """Check the size of chunks.

    Raises:
        ConfigError: it is out of range.
    """
    if not MIN_CHUNK_BYTES <= chunk_bytes <= MAX_CHUNK_BYTES:
        expected = f"chunks of {MIN_CHUNK_BYTES} to {MAX_CHUNK_BYTES} bytes"
        raise ConfigError("E-CHUNK-SIZE", expected, f"{chunk_bytes}")


def read_manifest(size_bytes: int, chunk_bytes: int, chunk_hashes: bytes) -> Manifest:
    """Return the manifest that a peer describes. Its size is not judged here: that is policy.

    Raises:
        WireError: The values contradict each other.
    """
    try:
        return Manifest(size_bytes=size_bytes, chunk_bytes=chunk_bytes, chunk_hashes=chunk_hashes)
    except ConfigError as error:
        raise WireError(error.code, error.expected, error.found) from error


def _manifest_problem(manifest: Manifest) -> str | None:
    """Say what contradicts what, or None."""
    if not MIN_CHUNK_BYTES <= manifest.chunk_bytes <= MAX_CHUNK_BYTES:
        return f"chunks of {manifest.chunk_bytes} bytes"
    if manifest.size_bytes < 1:
        return f"a blob of {manifest.size_bytes} bytes"
    needed = -(-manifest.size_bytes // manifest.chunk_bytes)
    if len(manifest.chunk_hashes) != needed * HASH_BYTES:
        return f"{len(manifest.chunk_hashes)} bytes of hashes where {needed} hashes are needed"
    return None
