"""Cuts trainable tensors out of a serialized model, so that others can be put in without onnx.

A model file is a protocol buffer. This walks it by tag and length down to
ModelProto.graph.initializer.raw_data and notes where each payload lies; nothing else is understood
or changed.

Source: Protocol Buffers encoding guide (wire types); field numbers from onnx.proto.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_NAME = 8
_TENSOR_RAW_DATA = 9
_FIXED_SIZE_BYTES = {1: 8, 5: 4}
_VARINT = 0
_LENGTH_DELIMITED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTemplate:
    """A model file with holes.

    Attributes:
        template: The bytes around the holes.
        splice_offsets: Position in `template` of each trainable tensor's hole.
        kept_offsets: Position in `template` of the values of each tensor that is changed in place.
    """

    template: bytes
    splice_offsets: dict[str, int]
    kept_offsets: dict[str, int] = field(default_factory=dict)


def make_template(
    model: onnx.ModelProto, trainable: Sequence[str], *, kept: Sequence[str] = ()
) -> ExportTemplate:
    """Serialize a model and cut out the values of its trainable tensors.

    Args:
        model: Normalized model; the tensors named here are rewritten as little-endian raw data.
        trainable: Names of the trainable tensors, in the model's own order.
        kept: Names of tensors whose values stay and whose position is wanted.

    Returns:
        The template.

    Raises:
        ValueError: A tensor was not found in the bytes.
    """
    wanted = {*trainable, *kept}
    for tensor in model.graph.initializer:
        if tensor.name in wanted:
            values = numpy_helper.to_array(tensor).astype("<f4", copy=False)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return cut_values(model.SerializeToString(deterministic=True), trainable, kept=kept)


def cut_values(
    serialized: bytes, wanted: Collection[str], *, kept: Collection[str] = ()
) -> ExportTemplate:
    """Cut the raw data of some initializers out of a serialized model.

    Args:
        serialized: Bytes of a model.
        wanted: Names of initializers that hold raw data.
        kept: Names of others whose values stay and whose position is wanted.

    Raises:
        ValueError: One of them was not found in the bytes.
    """
    pieces: list[bytes] = []
    holes: dict[str, int] = {}
    in_place: dict[str, int] = {}
    position = length = 0
    for name, start, end in _raw_payloads(serialized):
        if name not in wanted and name not in kept:
            continue
        pieces.append(serialized[position:start])
        length += start - position
        if name in wanted:
            holes[name], position = length, end
        else:
            in_place[name], position = length, start
    pieces.append(serialized[position:])
    missing = sorted({*wanted, *kept} - {*holes, *in_place})
    if missing:
        message = f"no raw data found for {missing}"
        raise ValueError(message)
    return ExportTemplate(template=b"".join(pieces), splice_offsets=holes, kept_offsets=in_place)


def float_values(
    model: onnx.ModelProto, trainable: Sequence[str]
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the values of the trainable tensors as one flat float32 vector, in the given order."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    parts = [
        numpy_helper.to_array(tensors[name]).astype(np.float32, copy=False).reshape(-1)
        for name in trainable
    ]
    return np.concatenate([np.zeros(0, np.float32), *parts])


def _raw_payloads(serialized: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and end of each initializer's raw data."""
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
