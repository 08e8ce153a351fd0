"""Finds the values of a serialized ONNX model's initializers, without the onnx package.

A model file is a protocol buffer. This walks it by tag and length down to
ModelProto.graph.initializer.raw_data and notes where each payload lies.

Source: Protocol Buffers encoding guide (wire types); field numbers from onnx.proto.
"""

from collections.abc import Iterator

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_NAME = 8
_TENSOR_RAW_DATA = 9
_FIXED_SIZE_BYTES = {1: 8, 5: 4}
_VARINT = 0
_LENGTH_DELIMITED = 2


def raw_payloads(serialized: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and end of each initializer's raw data.

    Args:
        serialized: A whole model, as an ONNX writer made it; not for bytes that nobody vouches for.
    """
    for graph_field, graph_start, graph_end in _fields(serialized, 0, len(serialized)):
        if graph_field != _MODEL_GRAPH:
            continue
        for number, start, end in _fields(serialized, graph_start, graph_end):
            if number != _GRAPH_INITIALIZER:
                continue
            parts = {part: (a, b) for part, a, b in _fields(serialized, start, end)}
            if _TENSOR_NAME in parts and _TENSOR_RAW_DATA in parts:
                name_start, name_end = parts[_TENSOR_NAME]
                yield serialized[name_start:name_end].decode(), *parts[_TENSOR_RAW_DATA]


def _fields(message: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the content of each field of one message."""
    position = start
    while position < end:
        tag, position = _varint(message, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            content = position
            _, position = _varint(message, position)
        elif wire_type == _LENGTH_DELIMITED:
            size_bytes, content = _varint(message, position)
            position = content + size_bytes
        else:
            content = position
            position += _FIXED_SIZE_BYTES[wire_type]
        yield tag >> 3, content, position


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
