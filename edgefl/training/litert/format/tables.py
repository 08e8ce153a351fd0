"""Reads FlatBuffers tables from bytes that nobody has checked yet.

Every position is checked against the length, and all reads together are bounded, so that a small
file whose offsets all point at one large table cannot keep the reader busy.

Source: FlatBuffers internals document (tables, vtables, vectors, strings).
"""

import struct

from edgefl.training.litert.format.kinds import FieldKind

LARGEST_READ_ITEMS = 200_000
_UINT32 = struct.Struct("<I")
_SCALARS: dict[FieldKind, struct.Struct] = {
    kind: struct.Struct("<" + kind.value)
    for kind in FieldKind
    if kind not in {FieldKind.INT32S, FieldKind.TEXT}
}


class FileBytes:
    """The bytes of a file, read at checked positions.

    All methods raise ValueError where the bytes do not hold what is asked for.
    """

    def __init__(self, content: bytes) -> None:
        """Keep the bytes; nothing is read yet."""
        self._content = content
        self._view = memoryview(content)
        self._items_left = LARGEST_READ_ITEMS

    def root(self, identifier: bytes) -> "Table":
        """Return the root table of a file that begins with an identifier."""
        if len(self._content) < 8 or self._content[4:8] != identifier:
            message = f"no {identifier.decode()} file"
            raise ValueError(message)
        return Table(self, self.follow(0))

    def scalar(self, position: int, kind: FieldKind) -> int | float | bool:
        """Return a number."""
        unpacker = _SCALARS[kind]
        value: int | float | bool = unpacker.unpack(self.bytes_at(position, unpacker.size))[0]
        return value

    def uint32(self, position: int) -> int:
        """Return an unsigned number of four bytes."""
        value: int = _UINT32.unpack(self.bytes_at(position, 4))[0]
        return value

    def follow(self, position: int) -> int:
        """Return where the offset at a position points to; offsets only point forward."""
        return position + self.uint32(position)

    def bytes_at(self, position: int, size_bytes: int) -> memoryview:
        """Return bytes, without copying them."""
        if position < 0 or size_bytes < 0 or position + size_bytes > len(self._content):
            message = f"an offset past the end, at byte {position}"
            raise ValueError(message)
        return self._view[position : position + size_bytes]

    def count(self, items: int) -> None:
        """Take note of parts that are about to be read: tables, or 64 bytes of numbers or text."""
        self._items_left -= items
        if self._items_left < 0:
            message = f"more than {LARGEST_READ_ITEMS} parts"
            raise ValueError(message)


class Table:
    """One table; fields are known by their place."""

    def __init__(self, content: FileBytes, position: int) -> None:
        """Find the table's list of fields."""
        content.count(1)
        self._content = content
        self._position = position
        vtable = position - int(content.scalar(position, FieldKind.INT32))
        vtable_bytes = int.from_bytes(content.bytes_at(vtable, 2), "little")
        if vtable_bytes < 4 or vtable_bytes % 2:
            message = f"a damaged table at byte {position}"
            raise ValueError(message)
        self._vtable = content.bytes_at(vtable, vtable_bytes)

    def _field(self, place: int) -> int | None:
        """Return the field's position, or None if it is missing."""
        start = 4 + 2 * place
        if start + 2 > len(self._vtable):
            return None
        offset = int.from_bytes(self._vtable[start : start + 2], "little")
        return self._position + offset if offset else None

    def number(self, place: int, kind: FieldKind, default: float = 0) -> int | float | bool:
        """Return a number field."""
        position = self._field(place)
        return default if position is None else self._content.scalar(position, kind)

    def integer(self, place: int, kind: FieldKind, default: int = 0) -> int:
        """Return a whole-number field."""
        return int(self.number(place, kind, default))

    def table(self, place: int) -> "Table | None":
        """Return a table field."""
        position = self._field(place)
        return None if position is None else Table(self._content, self._content.follow(position))

    def tables(self, place: int) -> list["Table"]:
        """Return a field that is a list of tables."""
        start, length = self._vector(place, 4)
        return [
            Table(self._content, self._content.follow(start + 4 * index)) for index in range(length)
        ]

    def raw(self, place: int, item_bytes: int = 1) -> memoryview:
        """Return the bytes of a field that is a list of numbers."""
        start, length = self._vector(place, item_bytes)
        return self._content.bytes_at(start, length * item_bytes)

    def int32s(self, place: int) -> tuple[int, ...]:
        """Return a field that is a list of whole numbers."""
        content = self.raw(place, 4)
        self._content.count(len(content) // 64)
        return struct.unpack(f"<{len(content) // 4}i", content)

    def int64s(self, place: int) -> tuple[int, ...]:
        """Return a field that is a list of long whole numbers."""
        content = self.raw(place, 8)
        self._content.count(len(content) // 64)
        return struct.unpack(f"<{len(content) // 8}q", content)

    def float32s(self, place: int) -> tuple[float, ...]:
        """Return a field that is a list of numbers."""
        content = self.raw(place, 4)
        self._content.count(len(content) // 64)
        return struct.unpack(f"<{len(content) // 4}f", content)

    def text(self, place: int) -> str:
        """Return a text field; empty if it is missing."""
        content = self.raw(place)
        self._content.count(len(content) // 64)
        return bytes(content).decode("utf-8")

    def _vector(self, place: int, item_bytes: int) -> tuple[int, int]:
        position = self._field(place)
        if position is None:
            return 0, 0
        start = self._content.follow(position)
        length = self._content.uint32(start)
        # Checks the end before anything is made of that length.
        self._content.bytes_at(start + 4, length * item_bytes)
        return start + 4, length
