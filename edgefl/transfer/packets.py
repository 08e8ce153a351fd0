"""Chunk packets: raw and unsigned, for each chunk's hash stands in a signed manifest.

Up, on a topic that names the transfer: 0x01, index (4 bytes, big-endian), data.
Down, on the device's one topic: 0x02, transfer id (8 bytes), and then the same.
No signed message begins so: an envelope begins with 0x88.
"""

from dataclasses import dataclass, field

from edgefl.transfer.manifest import TRANSFER_ID_BYTES

UP_MARK = 0x01
DOWN_MARK = 0x02
UP_HEAD_BYTES = 5
PACKET_BYTES = 1024
"""More than MQTT and these heads add to a chunk: fixed header, topic, properties."""
DOWN_HEAD_BYTES = 1 + TRANSFER_ID_BYTES + UP_HEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class DownPacket:
    """A chunk packet to a device, with the transfer that it says it belongs to.

    Attributes:
        transfer_id: 8 bytes.
        packet: The rest, as it would travel up.
    """

    transfer_id: bytes
    packet: memoryview = field(repr=False)


def pack_chunk(index: int, data: bytes | memoryview) -> bytes:
    """Return the packet of a chunk on its way up."""
    return b"".join((bytes((UP_MARK,)), index.to_bytes(4, "big"), data))


def pack_chunk_down(transfer_id: bytes, index: int, data: bytes | memoryview) -> bytes:
    """Return the packet of a chunk on its way down."""
    head = bytes((DOWN_MARK,)) + transfer_id + bytes((UP_MARK,))
    return b"".join((head, index.to_bytes(4, "big"), data))


def read_down(payload: bytes) -> DownPacket | None:
    """Return what a payload from the gateway carries if it is a chunk packet, else None."""
    if len(payload) < DOWN_HEAD_BYTES or payload[0] != DOWN_MARK:
        return None
    end = 1 + TRANSFER_ID_BYTES
    return DownPacket(transfer_id=payload[1:end], packet=memoryview(payload)[end:])
