"""The two messages of a transfer, chunk and receipt, and their maps with integer keys."""

from dataclasses import dataclass, field

from edgefl.errors import WireError
from edgefl.transfer.manifest import MAX_CHUNK_BYTES, require_bytes, require_int, require_map

_INDEX, _DATA = 1, 2
_MISSING, _DONE = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk on its way.

    Attributes:
        index: Position in the blob, from 0.
        data: The bytes; not in the repr.
    """

    index: int
    data: bytes = field(repr=False)

    def to_wire(self) -> dict[int, object]:
        """Return the map with integer keys."""
        return {_INDEX: self.index, _DATA: self.data}

    @classmethod
    def from_wire(cls, data: object) -> "Chunk":
        """Read a map from a peer; unknown keys are ignored.

        Raises:
            WireError: it is no chunk, or larger than any may be.
        """
        fields = require_map(data)
        chunk = cls(index=require_int(fields, _INDEX), data=require_bytes(fields, _DATA))
        if not 1 <= len(chunk.data) <= MAX_CHUNK_BYTES:
            expected = f"a chunk of 1 to {MAX_CHUNK_BYTES} bytes"
            raise WireError("E-TRANSFER-WIRE", expected, f"{len(chunk.data)} bytes")
        return chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the receiver has, said by itself: a broker's PUBACK says nothing of the kind.

    Attributes:
        missing: Bitmap of the chunks still missing.
        is_done: True only when the whole is verified and stored; the sender may forget it then.
    """

    missing: bytes
    is_done: bool

    def to_wire(self) -> dict[int, object]:
        """Return the map with integer keys."""
        return {_MISSING: self.missing, _DONE: self.is_done}

    @classmethod
    def from_wire(cls, data: object) -> "Receipt":
        """Read a map from a peer; unknown keys are ignored.

        Raises:
            WireError: it is no receipt.
        """
        fields = require_map(data)
        is_done = fields.get(_DONE)
        if not isinstance(is_done, bool):
            raise WireError("E-TRANSFER-WIRE", f"true or false at key {_DONE}", "something else")
        return cls(missing=require_bytes(fields, _MISSING), is_done=is_done)
