"""Operators that move values about: reshape, transpose, slice, pad, join, repeat."""

from collections.abc import Sequence

import numpy as np
import onnx

from edgefl.training.litert.compile.lowering import Lowering, Unsupported
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.onnx.compile.attributes import int_attribute, ints_attribute, text_attribute


@lowers("Transpose")
def transpose(low: Lowering, node: onnx.NodeProto) -> None:
    """Rename the axes; nothing is moved here."""
    view = low.view(node.input[0])
    order = ints_attribute(node, "perm") or list(range(len(view.axes)))[::-1]
    low.set(node.output[0], view.tensor, [order.index(axis) for axis in view.axes])


@lowers("Reshape", "Flatten", "Unsqueeze", "Squeeze")
def reshape(low: Lowering, node: onnx.NodeProto) -> None:
    """Give a value another shape; if only axes of size 1 come and go, the order of axes stays."""
    value, result = node.input[0], node.output[0]
    old, new = low.shape(value), low.shape(result)
    old_axes = [axis for axis, size in enumerate(old) if size != 1]
    new_axes = [axis for axis, size in enumerate(new) if size != 1]
    if [old[axis] for axis in old_axes] != [new[axis] for axis in new_axes]:
        low.set(result, low.reshape(low.plain(value), new or (1,)))
        return
    view = low.view(value)
    renamed = dict(zip(old_axes, new_axes, strict=True))
    moved = iter([renamed[axis] for axis in view.axes if axis in renamed])
    # Axes of size 1 stay where they are in the new shape; the others fill the rest in their order.
    axes = [axis if new[axis] == 1 else next(moved) for axis in range(len(new))]
    low.set(result, low.reshape(view.tensor, [new[axis] for axis in axes] or [1]), axes)


@lowers("Concat")
def concat(low: Lowering, node: onnx.NodeProto) -> None:
    """Join values along an axis."""
    result = node.output[0]
    rank = len(low.shape(result))
    axis = int_attribute(node, "axis", 0) % rank
    axes = low.common_axes(node.input, rank)
    parts = [low.arranged(value, axes) for value in node.input if 0 not in low.shape(value)]
    shape = [low.shape(result)[place] for place in axes]
    tensor = low.emit(Builtin.CONCATENATION, parts, shape, low.kind(result), axis=axes.index(axis))
    low.set(result, tensor, axes)


@lowers("Split")
def split(low: Lowering, node: onnx.NodeProto) -> None:
    """Cut a value into pieces along an axis."""
    view = low.view(node.input[0])
    axis = int_attribute(node, "axis", 0) % len(view.axes)
    place = view.axes.index(axis)
    begin = 0
    for output in node.output:
        size = low.shape(output)[axis]
        if output:
            low.set(output, take(low, view.tensor, {place: (begin, size, 1)}), view.axes)
        begin += size


@lowers("Slice")
def cut(low: Lowering, node: onnx.NodeProto) -> None:
    """Take a range of indices along some axes."""
    value, result = node.input[0], node.output[0]
    starts = low.integers(node.input[1])
    given = len(node.input)
    axes = low.integers(node.input[3]) if given > 3 and node.input[3] else range(len(starts))
    steps = low.integers(node.input[4]) if given > 4 and node.input[4] else [1] * len(starts)
    view, shape = low.view(value), low.shape(value)
    ranges: dict[int, tuple[int, int, int]] = {}
    for start, named_axis, step in zip(starts, axes, steps, strict=True):
        axis = named_axis % len(shape)
        length = low.shape(result)[axis]
        first = _first_index(start, shape[axis], step)
        ranges[view.axes.index(axis)] = (first, length, step)
    low.set(result, take(low, view.tensor, ranges), view.axes)


def _first_index(start: int, size: int, step: int) -> int:
    counted = start + size if start < 0 else start
    return min(max(counted, 0), size - 1 if step < 0 else size)


def take(low: Lowering, tensor: int, ranges: dict[int, tuple[int, int, int]]) -> int:
    """Return a part of a tensor.

    Args:
        low: Where to write.
        tensor: The whole.
        ranges: For some axes of the tensor: first index, number of indices, step.

    Returns:
        Index of the part's tensor; the whole itself if nothing is left out.
    """
    shape = low.tensor_shape(tensor)
    begins = [ranges.get(place, (0, size, 1))[0] for place, size in enumerate(shape)]
    sizes = [ranges.get(place, (0, size, 1))[1] for place, size in enumerate(shape)]
    steps = [ranges.get(place, (0, size, 1))[2] for place, size in enumerate(shape)]
    kind = low.subgraph.tensors[tensor].kind
    if all(step == 1 for step in steps):
        if tuple(sizes) == shape:
            return tensor
        return low.emit(Builtin.SLICE, [tensor, low.int32s(begins), low.int32s(sizes)], sizes, kind)
    ends = [begin + size * step for begin, size, step in zip(begins, sizes, steps, strict=True)]
    # Going backwards past the first index is written as a mask: -1 would mean the last index.
    mask = sum(1 << place for place, end in enumerate(ends) if end < 0)
    return low.emit(
        Builtin.STRIDED_SLICE,
        [
            tensor,
            low.int32s(begins),
            low.int32s([max(end, 0) for end in ends]),
            low.int32s(steps),
        ],
        sizes,
        kind,
        end_mask=mask,
    )


@lowers("Pad")
def pad(low: Lowering, node: onnx.NodeProto) -> None:
    """Surround a value with a constant; negative pads cut."""
    if text_attribute(node, "mode", "constant") != "constant":
        message = "pads other than a constant"
        raise Unsupported(message)
    view = low.view(node.input[0])
    rank = len(view.axes)
    pads = low.integers(node.input[1])
    given = len(node.input)
    named = low.integers(node.input[3]) if given > 3 and node.input[3] else range(rank)
    filler = 0.0
    if given > 2 and node.input[2]:
        filler = float(low.constant(node.input[2]).reshape(-1)[0])
    amounts = {}
    for index, axis in enumerate(named):
        amounts[view.axes.index(axis % rank)] = (pads[index], pads[index + len(named)])
    low.set(node.output[0], surround(low, view.tensor, amounts, filler), view.axes)


def surround(
    low: Lowering, tensor: int, amounts: dict[int, tuple[int, int]], filler: float = 0.0
) -> int:
    """Return a tensor with a border.

    Args:
        low: Where to write.
        tensor: The inner part.
        amounts: For some axes: how much before and after; negative amounts cut.
        filler: Value of the border.

    Returns:
        Index of the tensor; the inner part itself if there is no border.
    """
    cuts = {
        place: (
            max(-begin, 0),
            low.tensor_shape(tensor)[place] - max(-begin, 0) - max(-end, 0),
            1,
        )
        for place, (begin, end) in amounts.items()
    }
    inner = take(low, tensor, cuts)
    shape = low.tensor_shape(inner)
    border = [
        [max(amount, 0) for amount in amounts.get(place, (0, 0))] for place in range(len(shape))
    ]
    if not np.any(border):
        return inner
    sizes = [size + sum(pair) for size, pair in zip(shape, border, strict=True)]
    kind = low.subgraph.tensors[inner].kind
    operands = [inner, low.constant_tensor(np.array(border, np.int32))]
    if filler == 0.0:
        # On integers with scales, the operator fills in what stands for 0.
        return low.rearrange(Builtin.PAD, operands, sizes)
    if kind is not TensorType.FLOAT32:
        message = "pads of integers with other than 0"
        raise Unsupported(message)
    return low.emit(Builtin.PADV2, [*operands, low.float32(filler)], sizes, kind)


@lowers("Expand")
def expand(low: Lowering, node: onnx.NodeProto) -> None:
    """Repeat along axes of size 1."""
    result = node.output[0]
    shape = low.shape(result)
    operand = low.broadcast(node.input[0], range(len(shape)))
    _set_repeated(low, result, operand, shape)


def _set_repeated(low: Lowering, result: str, operand: int, shape: Sequence[int]) -> None:
    if low.tensor_shape(operand) == tuple(shape):
        low.set(result, operand)
        return
    sizes = list(shape) or [1]
    operands = [operand, low.int32s(sizes)]
    tensor = low.emit(Builtin.BROADCAST_TO, operands, sizes, low.kind(result), version=2)
    low.set(result, tensor)


@lowers("Tile")
def tile(low: Lowering, node: onnx.NodeProto) -> None:
    """Repeat the whole value along axes."""
    view = low.view(node.input[0])
    counts = low.integers(node.input[1])
    shape = [low.shape(node.output[0])[axis] for axis in view.axes]
    repeats = low.int32s([counts[axis] for axis in view.axes])
    tensor = low.emit(Builtin.TILE, [view.tensor, repeats], shape, low.kind(node.output[0]))
    low.set(node.output[0], tensor, view.axes)


@lowers("CumSum")
def cumulative_sum(low: Lowering, node: onnx.NodeProto) -> None:
    """Add up along an axis."""
    view = low.view(node.input[0])
    axis = low.integers(node.input[1])[0] % len(view.axes)
    place = low.constant_tensor(np.array(view.axes.index(axis), np.int32))
    tensor = low.emit(
        Builtin.CUMSUM,
        [view.tensor, place],
        low.tensor_shape(view.tensor),
        low.kind(node.output[0]),
        exclusive=bool(int_attribute(node, "exclusive", 0)),
        reverse=bool(int_attribute(node, "reverse", 0)),
    )
    low.set(node.output[0], tensor, view.axes)
