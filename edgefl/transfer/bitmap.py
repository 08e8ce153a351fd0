"""Which chunks are still missing, as bytes: bit i % 8 of byte i // 8 stands for chunk i."""

from collections.abc import Iterable


def pack_missing(missing: Iterable[int], chunk_count: int) -> bytes:
    """Return the bitmap in which the given chunk indices are set."""
    bitmap = bytearray((chunk_count + 7) // 8)
    for index in missing:
        bitmap[index // 8] |= 1 << (index % 8)
    return bytes(bitmap)


def unpack_missing(bitmap: bytes, chunk_count: int) -> frozenset[int] | None:
    """Return the chunk indices that a peer's bitmap marks; None if it is not one for so many."""
    if len(bitmap) != (chunk_count + 7) // 8:
        return None
    unused_bits = 8 * len(bitmap) - chunk_count
    if unused_bits and bitmap[-1] >> (8 - unused_bits):
        return None
    return frozenset(index for index in range(chunk_count) if bitmap[index // 8] >> (index % 8) & 1)
