"""The receiving end of a transfer: chunks in any order, any number of times, wrong ones refused."""

import hashlib
from enum import Enum

from edgefl.errors import LocalProtocolError, RemoteProtocolError
from edgefl.transfer.bitmap import pack_missing
from edgefl.transfer.manifest import Manifest
from edgefl.transfer.messages import Chunk, Receipt


class ChunkVerdict(Enum):
    """What became of a chunk."""

    STORED = "stored"
    DUPLICATE = "duplicate"  # it was there; its hash was right again
    WRONG_HASH = "wrong-hash"
    WRONG_SIZE = "wrong-size"
    NO_SUCH_CHUNK = "no-such-chunk"


class Receiver:
    """Collects the chunks of one blob in memory.

    Args:
        manifest: What is to come; its size was bounded when it was read.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Begin with nothing."""
        self._manifest = manifest
        # Memory follows what arrived, not what the manifest announces.
        self._chunks: dict[int, bytes] = {}
        self._missing = set(range(manifest.chunk_count))
        self._is_stored = False
        self.refused_count = 0

    @property
    def manifest(self) -> Manifest:
        """What is being received."""
        return self._manifest

    @property
    def is_whole(self) -> bool:
        """Tell whether every chunk is there."""
        return not self._missing

    @property
    def missing_count(self) -> int:
        """How many chunks are not there yet."""
        return len(self._missing)

    def accept(self, chunk: Chunk) -> ChunkVerdict:
        """Take a chunk from the peer; a wrong one changes nothing but the count of refusals."""
        verdict = self._judge(chunk)
        if verdict is ChunkVerdict.STORED:
            self._chunks[chunk.index] = chunk.data
            self._missing.discard(chunk.index)
        elif verdict is not ChunkVerdict.DUPLICATE:
            self.refused_count += 1
        return verdict

    def missing(self) -> bytes:
        """Return the bitmap of the chunks not there yet."""
        return pack_missing(self._missing, self._manifest.chunk_count)

    def blob(self) -> bytes:
        """Return the whole.

        Raises:
            LocalProtocolError: chunks are missing.
            RemoteProtocolError: every chunk has its hash but the whole has not: the manifest
                contradicts itself.
        """
        if self._missing:
            raise LocalProtocolError(
                "E-BLOB-INCOMPLETE", "every chunk", f"{len(self._missing)} missing"
            )
        whole = b"".join(self._chunks[index] for index in range(self._manifest.chunk_count))
        if hashlib.sha256(whole).digest() != self._manifest.sha256:
            raise RemoteProtocolError(
                "E-BLOB-HASH", "a blob with the manifest's SHA-256", "another one"
            )
        return whole

    def note_stored(self) -> None:
        """Note that the caller has verified the whole and made it durable.

        Raises:
            LocalProtocolError: chunks are missing.
        """
        if self._missing:
            raise LocalProtocolError(
                "E-BLOB-INCOMPLETE", "every chunk", f"{len(self._missing)} missing"
            )
        self._is_stored = True

    def receipt(self) -> Receipt:
        """Return what to tell the sender; `is_done` only after `note_stored`."""
        return Receipt(missing=self.missing(), is_done=self._is_stored)

    def _judge(self, chunk: Chunk) -> ChunkVerdict:
        """Compare a chunk with the manifest."""
        manifest = self._manifest
        if not 0 <= chunk.index < manifest.chunk_count:
            return ChunkVerdict.NO_SUCH_CHUNK
        if len(chunk.data) != manifest.size_of_chunk(chunk.index):
            return ChunkVerdict.WRONG_SIZE
        if hashlib.sha256(chunk.data).digest() != manifest.chunk_sha256s[chunk.index]:
            return ChunkVerdict.WRONG_HASH
        if chunk.index not in self._missing:
            return ChunkVerdict.DUPLICATE
        return ChunkVerdict.STORED
