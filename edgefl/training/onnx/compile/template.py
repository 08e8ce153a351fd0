"""Cuts trainable tensors out of a serialized model, so that others can be put in without onnx.

It cuts where `raw_payloads` says that the values lie; nothing else of the file is understood or
changed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from edgefl.training.onnx.payloads import raw_payloads


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
    for name, start, end in raw_payloads(serialized):
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
