"""Which chunks are still missing, as bytes: bit i % 8 of byte i // 8 stands for chunk i."""

from collections.abc import Iterable

from edgefl.errors import WireError


def pack_missing(missing: Iterable[int], chunk_count: int) -> bytes:
    """Return the bitmap in which the given chunk indices are set."""
    bitmap = bytearray((chunk_count + 7) // 8)
    for index in missing:
        bitmap[index // 8] |= 1 << (index % 8)
    return bytes(bitmap)


def unpack_missing(bitmap: bytes, chunk_count: int) -> frozenset[int]:
    """Return the chunk indices that a peer's bitmap marks.

    Raises:
        WireError: its length is wrong or it marks chunks that do not exist.
    """
    expected_bytes = (chunk_count + 7) // 8
    if len(bitmap) != expected_bytes:
        raise WireError(
            "E-TRANSFER-WIRE", f"a bitmap of {expected_bytes} bytes", f"{len(bitmap)} bytes"
        )
    unused_bits = 8 * expected_bytes - chunk_count
    if unused_bits and bitmap[-1] >> (8 - unused_bits):
        raise WireError("E-TRANSFER-WIRE", f"{chunk_count} chunks in a bitmap", "bits beyond them")
    return frozenset(index for index in range(chunk_count) if bitmap[index // 8] >> (index % 8) & 1)
