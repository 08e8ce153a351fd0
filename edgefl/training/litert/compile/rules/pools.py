"""Maxima and averages over windows."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefl.training.litert.compile.lowering import Lowering, Unsupported
from edgefl.training.litert.compile.rules.convolutions import (
    Windows,
    as_image,
    channels_last,
    read_windows,
    set_from_image,
)
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.compile.rules.shapes import surround, take
from edgefl.training.litert.format.kinds import VALID_PADDING, Builtin, TensorType
from edgefl.training.onnx.compile.attributes import int_attribute, ints_attribute

_LOWEST = float(np.finfo(np.float32).min)


@lowers("MaxPool")
def max_pool(low: Lowering, node: onnx.NodeProto) -> None:
    """Write the maxima, and where they lie if that is read."""
    low.require_float32(node.input[0])
    windows = _windows(low, node)
    axes = windows.spatial_axes
    rows = low.arranged(node.input[0], channels_last(axes))
    bordered = surround(low, rows, windows.border(), _LOWEST)
    places = node.output[1] if len(node.output) > 1 else ""
    if any(step != 1 for step in windows.dilations) or places:
        taps = [_tap(low, bordered, tap, windows, node.output[0]) for tap in _taps(windows)]
        if places:
            _set_places(low, node, taps, windows)
        maxima = taps[0]
        for tap in taps[1:]:
            maxima = low.emit(Builtin.MAXIMUM, [maxima, tap], low.tensor_shape(tap))
        set_from_image(low, node.output[0], maxima)
        return
    set_from_image(low, node.output[0], _pool(low, Builtin.MAX_POOL_2D, bordered, windows))


@lowers("AveragePool")
def average_pool(low: Lowering, node: onnx.NodeProto) -> None:
    """Write the averages; where windows reach over the border, by a factor for each position."""
    low.require_float32(node.input[0])
    windows = _windows(low, node)
    axes = windows.spatial_axes
    if any(step != 1 for step in windows.dilations):
        message = "averages over windows with gaps"
        raise Unsupported(message)
    rows = low.arranged(node.input[0], channels_last(axes))
    image = _pool(low, Builtin.AVERAGE_POOL_2D, surround(low, rows, windows.border()), windows)
    factors = _factors(low, node, windows)
    if not np.all(factors == 1.0):
        constant = low.constant_tensor(factors.reshape(1, *low.tensor_shape(image)[1:3], 1))
        image = low.emit(Builtin.MUL, [image, constant], low.tensor_shape(image))
    set_from_image(low, node.output[0], image)


@lowers("GlobalMaxPool")
def global_max_pool(low: Lowering, node: onnx.NodeProto) -> None:
    """Write one maximum for each channel."""
    view = low.view(node.input[0])
    places = [place for place, axis in enumerate(view.axes) if axis > 1]
    shape = [
        1 if place in places else size for place, size in enumerate(low.tensor_shape(view.tensor))
    ]
    operands = [view.tensor, low.int32s(places)]
    low.set(
        node.output[0], low.emit(Builtin.REDUCE_MAX, operands, shape, keep_dims=True), view.axes
    )


def _windows(low: Lowering, node: onnx.NodeProto) -> Windows:
    """Return the windows, with as much border as the rounding up of sizes asks for."""
    sizes, results = low.shape(node.input[0])[2:], low.shape(node.output[0])[2:]
    windows = read_windows(node, sizes, ints_attribute(node, "kernel_shape") or [])
    ends = []
    for axis, size in enumerate(sizes):
        reach = (windows.kernel[axis] - 1) * windows.dilations[axis] + 1
        needed = (results[axis] - 1) * windows.strides[axis] + reach
        ends.append(max(windows.pads_end[axis], needed - size - windows.pads_begin[axis]))
    return replace(windows, pads_end=ends)


def _pool(low: Lowering, code: Builtin, rows: int, windows: Windows) -> int:
    image = as_image(low, rows)
    height, width = (1, *windows.kernel)[-2:]
    stride_h, stride_w = (1, *windows.strides)[-2:]
    shape = low.tensor_shape(image)
    sizes = [(shape[1] - height) // stride_h + 1, (shape[2] - width) // stride_w + 1]
    return low.emit(
        code,
        [image],
        [shape[0], *sizes, shape[3]],
        padding=VALID_PADDING,
        stride_w=stride_w,
        stride_h=stride_h,
        filter_width=width,
        filter_height=height,
    )


def _taps(windows: Windows) -> list[tuple[int, ...]]:
    """Return the places within a window, in ONNX's order."""
    return list(itertools.product(*(range(size) for size in windows.kernel)))


def _tap(low: Lowering, rows: int, tap: Sequence[int], windows: Windows, result: str) -> int:
    """Return one place of all windows, channels last."""
    sizes = low.shape(result)[2:]
    return take(
        low,
        rows,
        {
            1 + axis: (place * windows.dilations[axis], sizes[axis], windows.strides[axis])
            for axis, place in enumerate(tap)
        },
    )


def _set_places(low: Lowering, node: onnx.NodeProto, taps: Sequence[int], windows: Windows) -> None:
    """Say where maxima lie, counted over the whole input as ONNX stores it.

    The number of a maximum within its window comes from the runtime; all else is the same for
    every call: the window's first place, and the distance of each place from it.
    """
    if int_attribute(node, "storage_order", 0):
        message = "places counted by columns"
        raise Unsupported(message)
    shape, result = low.shape(node.input[0]), node.output[1]
    last = channels_last(windows.spatial_axes)
    tap_shape = low.tensor_shape(taps[0])
    stacked = low.emit(Builtin.PACK, taps, [len(taps), *tap_shape], values=len(taps), axis=0)
    first_axis = low.constant_tensor(np.array(0, np.int32))
    number = low.emit(
        Builtin.ARG_MAX,
        [stacked, first_axis],
        tap_shape,
        TensorType.INT32,
        output_type=int(TensorType.INT32),
    )
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    distances = [
        sum(
            place * dilation * step
            for place, dilation, step in zip(tap, windows.dilations, steps[2:], strict=True)
        )
        for tap in _taps(windows)
    ]
    place = low.emit(Builtin.GATHER, [low.int32s(distances), number], tap_shape, TensorType.INT32)
    for axes in ([0, 1], list(range(2, len(shape)))):
        origin = _origins(low.shape(result), axes, steps, windows).transpose(last)
        operands = [place, low.constant_tensor(np.ascontiguousarray(origin))]
        place = low.emit(Builtin.ADD, operands, tap_shape, TensorType.INT32)
    low.set(result, place, last)


def _origins(
    shape: Sequence[int], axes: Sequence[int], steps: Sequence[int], windows: Windows
) -> NDArray[np.int32]:
    """Return what some axes add to the place of each window's first sample."""
    total = np.zeros([1] * len(shape), np.int64)
    for axis in axes:
        index = np.arange(shape[axis])
        if axis > 1:
            index = index * windows.strides[axis - 2] - windows.pads_begin[axis - 2]
        total = total + (index * steps[axis]).reshape(
            [-1 if other == axis else 1 for other in range(len(shape))]
        )
    return total.astype(np.int32)


def _factors(low: Lowering, node: onnx.NodeProto, windows: Windows) -> NDArray[np.float32]:
    """Return window size / samples that count, by position."""
    sizes, results = low.shape(node.input[0])[2:], low.shape(node.output[0])[2:]
    counts_border = bool(int_attribute(node, "count_include_pad", 0))
    given = ints_attribute(node, "pads") or [0] * (2 * len(sizes))
    factors = np.ones((), np.float64)
    for axis, size in enumerate(sizes):
        # Border that only the rounding up of sizes asks for never counts.
        begin = windows.pads_begin[axis] if counts_border else 0
        end = given[len(sizes) + axis] if counts_border else 0
        starts = np.arange(results[axis]) * windows.strides[axis] - windows.pads_begin[axis]
        places = starts[:, np.newaxis] + np.arange(windows.kernel[axis])
        counted = ((places >= -begin) & (places < size + end)).sum(axis=1)
        factors = np.multiply.outer(factors, windows.kernel[axis] / np.maximum(counted, 1))
    return factors.astype(np.float32)
