"""Writes FlatBuffers: tables and their children, parents first.

Offsets in FlatBuffers only point forward, so writing parents before children needs no second pass:
the place of each offset is kept until its child has one.

Source: FlatBuffers internals document (tables, vtables, vectors, strings).
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgefl.training.litert.format.kinds import FieldKind

_CONSTANT_ALIGNMENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Number:
    """A number within a table."""

    kind: FieldKind
    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """Text, as UTF-8."""

    value: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """A list of numbers; `letter` is struct's letter for one."""

    letter: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of a constant, placed where an interpreter can read them without copying."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Node:
    """A table: its fields by place; a field that is left out has its default."""

    fields: "Mapping[int, Part]"


@dataclass(frozen=True, slots=True)
class Nodes:
    """A list of tables."""

    items: Sequence[Node]


Part = Number | Text | Numbers | Content | Node | Nodes
_NUMBER_BYTES = {
    kind: struct.calcsize("<" + kind.value) for kind in FieldKind if len(kind.value) == 1
}


def write_file(root: Node, identifier: bytes) -> bytes:
    """Return the bytes of a file.

    Args:
        root: Its outermost table.
        identifier: Four bytes that name its format.

    Returns:
        The file; equal parts give equal bytes.
    """
    writer = _Writer(identifier)
    writer.place_child(0, root)
    return bytes(writer.content)


class _Writer:
    def __init__(self, identifier: bytes) -> None:
        self.content = bytearray(4) + identifier
        self._vtables: dict[bytes, int] = {}

    def place_child(self, hole: int, part: Part) -> None:
        """Write a part behind everything else and let the offset at `hole` point to it."""
        if isinstance(part, Node):
            self._write_table(hole, part)
        elif isinstance(part, Nodes):
            start = self._begin(hole, len(part.items), item_bytes=4)
            self.content += bytes(4 * len(part.items))
            for index, item in enumerate(part.items):
                self.place_child(start + 4 * index, item)
        elif isinstance(part, Text):
            encoded = part.value.encode()
            self._begin(hole, len(encoded), item_bytes=1)
            self.content += encoded + b"\0"
        elif isinstance(part, Content):
            self._begin(hole, len(part.value), item_bytes=_CONSTANT_ALIGNMENT_BYTES)
            self.content += part.value
        elif isinstance(part, Numbers):
            self._begin(hole, len(part.values), item_bytes=struct.calcsize(part.letter))
            self.content += struct.pack(f"<{len(part.values)}{part.letter}", *part.values)

    def _begin(self, hole: int, length: int, *, item_bytes: int) -> int:
        """Write the length of a list so that its first item lies on a multiple of its size."""
        self._align(item_bytes, ahead=4)
        self._point(hole)
        self.content += struct.pack("<I", length)
        return len(self.content)

    def _write_table(self, hole: int, node: Node) -> None:
        # Larger fields first: then each lies on a multiple of its size without gaps between.
        places = sorted(node.fields, key=lambda place: (-_size(node.fields[place]), place))
        offsets, end = {}, 4
        for place in places:
            size_bytes = _size(node.fields[place])
            end += -end % size_bytes
            offsets[place] = end
            end += size_bytes
        vtable = self._place_vtable(offsets, end)
        self._align(8 if any(_size(part) == 8 for part in node.fields.values()) else 4)
        self._point(hole)
        start = len(self.content)
        self.content += struct.pack("<i", start - vtable) + bytes(end - 4)
        for place in places:
            part = node.fields[place]
            if isinstance(part, Number):
                struct.pack_into(
                    "<" + part.kind.value, self.content, start + offsets[place], part.value
                )
        for place in sorted(node.fields):
            if not isinstance(node.fields[place], Number):
                self.place_child(start + offsets[place], node.fields[place])

    def _place_vtable(self, offsets: Mapping[int, int], table_bytes: int) -> int:
        slots = max(offsets, default=-1) + 1
        vtable = struct.pack(
            f"<{2 + slots}H", 4 + 2 * slots, table_bytes, *(offsets.get(i, 0) for i in range(slots))
        )
        if vtable not in self._vtables:
            self._align(2)
            self._vtables[vtable] = len(self.content)
            self.content += vtable
        return self._vtables[vtable]

    def _align(self, multiple: int, *, ahead: int = 0) -> None:
        # Lengths are four bytes wide, so nothing is ever aligned to less once they are written.
        step = max(multiple, 4 if ahead else 1)
        self.content += bytes(-(len(self.content) + ahead) % step)

    def _point(self, hole: int) -> None:
        struct.pack_into("<I", self.content, hole, len(self.content) - hole)


def _size(part: Part) -> int:
    return _NUMBER_BYTES[part.kind] if isinstance(part, Number) else 4
