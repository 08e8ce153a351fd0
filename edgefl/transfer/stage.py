"""What a receiver keeps partly arrived blobs in; `edgefl._native.UploadStage` is one."""

from enum import Enum
from typing import Protocol

from edgefl._native import StagedBlob


class ChunkVerdict(Enum):
    """What became of a chunk packet; the values are those of the stage in Rust."""

    STORED = "stored"
    DUPLICATE = "duplicate"  # it was there; its hash was right again
    WHOLE = "whole"  # stored, and it was the last one
    WRONG_HASH = "wrong-hash"
    WRONG_SIZE = "wrong-size"
    NO_SUCH_CHUNK = "no-such-chunk"
    MALFORMED = "malformed"
    NO_SUCH_TRANSFER = "no-such-transfer"

    @property
    def is_taken(self) -> bool:
        """Tell whether the chunk is in the stage now."""
        return self in (ChunkVerdict.STORED, ChunkVerdict.DUPLICATE, ChunkVerdict.WHOLE)


class Stage(Protocol):
    """A bounded store of blobs by key, filled chunk by chunk."""

    def open(self, key: str, size_bytes: int, chunk_bytes: int, chunk_hashes: bytes) -> None:
        """Make room for a blob; the same manifest again keeps what has arrived.

        Raises:
            ConfigError: E-STAGE-FULL, there is no room; E-STAGE-KEY, another blob has that key.
        """

    def accept(self, key: str, packet: bytes) -> str:
        """Take a chunk packet; return the value of a `ChunkVerdict`."""

    def missing(self, key: str) -> bytes:
        """Return the bitmap of the chunks not there yet."""

    def missing_count(self, key: str) -> int:
        """Return how many chunks are not there yet."""

    def take(self, key: str) -> bytes:
        """Return a whole blob and forget it."""

    def take_out(self, key: str) -> StagedBlob:
        """Return a whole blob without a copy, and forget it."""

    def discard(self, key: str) -> bool:
        """Forget a blob, whole or not; tell whether it was open."""

    @property
    def held_bytes(self) -> int:
        """Bytes that the open blobs may take."""
