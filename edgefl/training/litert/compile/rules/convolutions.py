"""Convolutions and their transposes, over one or two spatial axes."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from edgefl.training.litert.compile.lowering import Lowering, Unsupported
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.compile.rules.shapes import surround, take
from edgefl.training.litert.format.kinds import VALID_PADDING, Builtin, TensorType
from edgefl.training.onnx.compile.attributes import (
    int_attribute,
    ints_attribute,
    text_attribute,
)

_MOST_SPATIAL_AXES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How windows lie over a value; lists have one entry per spatial axis.

    Attributes:
        kernel: Sizes of a window.
        strides: Steps between windows.
        dilations: Steps within a window.
        pads_begin: Border before the value.
        pads_end: Border after the value.
    """

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads_begin: list[int]
    pads_end: list[int]

    @property
    def spatial_axes(self) -> int:
        """Return the number of axes that windows move along."""
        return len(self.kernel)

    def border(self) -> dict[int, tuple[int, int]]:
        """Return the border by axis of a tensor whose channels come last."""
        pairs = zip(self.pads_begin, self.pads_end, strict=True)
        return {1 + index: pair for index, pair in enumerate(pairs)}


def read_windows(node: onnx.NodeProto, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Read strides, dilations and pads.

    Args:
        node: A convolution or a pool.
        sizes: Spatial sizes of its input.
        kernel: Spatial sizes of a window.

    Returns:
        The windows.

    Raises:
        Unsupported: More than two spatial axes.
    """
    axes = len(kernel)
    if axes > _MOST_SPATIAL_AXES:
        message = f"windows over {axes} axes"
        raise Unsupported(message)
    strides = ints_attribute(node, "strides") or [1] * axes
    dilations = ints_attribute(node, "dilations") or [1] * axes
    pads = ints_attribute(node, "pads") or [0] * (2 * axes)
    mode = text_attribute(node, "auto_pad", "NOTSET")
    begin, end = pads[:axes], pads[axes:]
    if mode == "VALID":
        begin, end = [0] * axes, [0] * axes
    elif mode != "NOTSET":
        totals = [
            max((-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
            for size, taps, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
        ]
        smaller = [total // 2 for total in totals]
        larger = [total - half for total, half in zip(totals, smaller, strict=True)]
        begin, end = (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)
    return Windows(
        kernel=list(kernel), strides=strides, dilations=dilations, pads_begin=begin, pads_end=end
    )


def channels_last(axes: int) -> tuple[int, ...]:
    """Return the order [rows, positions, channels] of a value [rows, channels, positions]."""
    return (0, *range(2, 2 + axes), 1)


def as_image(low: Lowering, tensor: int) -> int:
    """Give a tensor [rows, positions, channels] a height of 1."""
    shape = low.tensor_shape(tensor)
    return tensor if len(shape) == 4 else low.reshape(tensor, [shape[0], 1, *shape[1:]])


def set_from_image(low: Lowering, value: str, tensor: int) -> None:
    """Say that a value [rows, channels, positions] lies in an image, channels last."""
    shape = low.shape(value)
    axes = channels_last(len(shape) - 2)
    low.set(value, low.reshape(tensor, [shape[axis] for axis in axes]), axes)


@lowers("Conv")
def conv(low: Lowering, node: onnx.NodeProto) -> None:
    """Write a convolution; its kernel may be computed."""
    low.require_float32(*node.input)
    x, weight = node.input[:2]
    shape, kernel_shape = low.shape(x), low.shape(weight)
    windows = read_windows(node, shape[2:], kernel_shape[2:])
    group = int_attribute(node, "group", 1)
    last = channels_last(windows.spatial_axes)
    rows = surround(low, low.arranged(x, last), windows.border())
    bias = low.plain(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if group > 1 and kernel_shape[1] == 1:
        kernel = low.arranged(weight, (1, *range(2, 2 + windows.spatial_axes), 0))
        image = depthwise(low, rows, kernel, bias, windows)
    else:
        image = convolve(low, rows, low.arranged(weight, last), bias, windows)
    set_from_image(low, node.output[0], image)


def convolve(low: Lowering, rows: int, kernel: int, bias: int | None, windows: Windows) -> int:
    """Return the image of a convolution.

    Args:
        low: Where to write.
        rows: Bordered input, channels last.
        kernel: [outputs, positions, inputs].
        bias: [outputs], or None.
        windows: Strides and dilations.

    Returns:
        [rows, height, width, outputs].
    """
    image, taps = as_image(low, rows), as_image(low, kernel)
    shape, kernel_shape = low.tensor_shape(image), low.tensor_shape(taps)
    sizes = output_sizes(shape[1:3], kernel_shape[1:3], windows)
    return low.emit(
        Builtin.CONV_2D,
        [image, taps, _bias_or_zeros(low, bias, kernel_shape[0])],
        [shape[0], *sizes, kernel_shape[0]],
        TensorType.FLOAT32,
        **conv_options(windows),
    )


def depthwise(low: Lowering, rows: int, kernel: int, bias: int | None, windows: Windows) -> int:
    """Return the image of a convolution of each channel on its own; kernel [1, positions, out]."""
    image, taps = as_image(low, rows), as_image(low, kernel)
    shape, kernel_shape = low.tensor_shape(image), low.tensor_shape(taps)
    sizes = output_sizes(shape[1:3], kernel_shape[1:3], windows)
    return low.emit(
        Builtin.DEPTHWISE_CONV_2D,
        [image, taps, _bias_or_zeros(low, bias, kernel_shape[3])],
        [shape[0], *sizes, kernel_shape[3]],
        TensorType.FLOAT32,
        depth_multiplier=kernel_shape[3] // shape[3],
        **conv_options(windows),
    )


def _bias_or_zeros(low: Lowering, bias: int | None, outputs: int) -> int:
    return low.zeros(outputs) if bias is None else bias


def conv_options(windows: Windows) -> dict[str, int]:
    """Return the options of a convolution whose border is written apart."""
    stride_h, stride_w = _of_image(windows.strides)
    dilation_h, dilation_w = _of_image(windows.dilations)
    return {
        "padding": VALID_PADDING,
        "stride_w": stride_w,
        "stride_h": stride_h,
        "dilation_w": dilation_w,
        "dilation_h": dilation_h,
    }


def _of_image(per_axis: Sequence[int]) -> tuple[int, int]:
    return (1, per_axis[0]) if len(per_axis) == 1 else (per_axis[0], per_axis[1])


def output_sizes(sizes: Sequence[int], kernel: Sequence[int], windows: Windows) -> list[int]:
    """Return height and width of a convolution's result."""
    return [
        (size - (taps - 1) * dilation - 1) // stride + 1
        for size, taps, stride, dilation in zip(
            sizes, kernel, _of_image(windows.strides), _of_image(windows.dilations), strict=True
        )
    ]


@lowers("ConvTranspose")
def conv_transpose(low: Lowering, node: onnx.NodeProto) -> None:
    """Write a transposed convolution, as the gradient of a convolution's input needs it."""
    low.require_float32(*node.input)
    x, weight, result = node.input[0], node.input[1], node.output[0]
    windows = read_windows(node, low.shape(x)[2:], low.shape(weight)[2:])
    group = int_attribute(node, "group", 1)
    image = (
        _spread_directly(low, x, weight, result, windows)
        if group == 1 and all(step == 1 for step in windows.dilations)
        else _spread_by_zeros(low, node, windows, group)
    )
    if len(node.input) > 2 and node.input[2]:
        shape = low.tensor_shape(image)
        image = low.emit(Builtin.ADD, [image, low.plain(node.input[2])], shape)
    set_from_image(low, result, image)


def _spread_directly(low: Lowering, x: str, weight: str, result: str, windows: Windows) -> int:
    axes = windows.spatial_axes
    image = as_image(low, low.arranged(x, channels_last(axes)))
    taps = as_image(low, low.arranged(weight, (1, *range(2, 2 + axes), 0)))
    shape = low.shape(result)
    full = [
        size + begin + end
        for size, begin, end in zip(shape[2:], windows.pads_begin, windows.pads_end, strict=True)
    ]
    sizes = [shape[0], *_of_image(full), shape[1]]
    stride_h, stride_w = _of_image(windows.strides)
    spread = low.emit(
        Builtin.TRANSPOSE_CONV,
        [low.int32s(sizes), taps, image],
        sizes,
        padding=VALID_PADDING,
        stride_w=stride_w,
        stride_h=stride_h,
    )
    begins = (0, *windows.pads_begin)[-2:]
    kept = _of_image(shape[2:])
    return take(low, spread, {1: (begins[0], kept[0], 1), 2: (begins[1], kept[1], 1)})


def _spread_by_zeros(low: Lowering, node: onnx.NodeProto, windows: Windows, group: int) -> int:
    """Put zeros between the values and convolve with the mirrored kernel.

    Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning",
    arXiv:1603.07285, section 4.
    """
    x, weight, result = node.input[0], node.input[1], node.output[0]
    axes = windows.spatial_axes
    rows = low.arranged(x, channels_last(axes))
    for axis, stride in enumerate(windows.strides):
        rows = _with_gaps(low, rows, 1 + axis, stride)
    border = {}
    for axis in range(axes):
        reach = (windows.kernel[axis] - 1) * windows.dilations[axis]
        begin = reach - windows.pads_begin[axis]
        size = low.tensor_shape(rows)[1 + axis]
        border[1 + axis] = (begin, low.shape(result)[2 + axis] + reach - size - begin)
    rows = surround(low, rows, border)
    plain = Windows(
        kernel=windows.kernel,
        strides=[1] * axes,
        dilations=windows.dilations,
        pads_begin=[0] * axes,
        pads_end=[0] * axes,
    )
    inputs, outputs = low.shape(weight)[0] // group, low.shape(weight)[1]
    if inputs == outputs == 1 and group > 1:
        kernel = low.arranged(weight, (1, *range(2, 2 + axes), 0))
        return depthwise(low, rows, _mirrored(low, kernel, axes), None, plain)
    parts = low.reshape(low.plain(weight), [group, inputs, outputs, *windows.kernel])
    swapped = low.transpose(parts, [0, 2, *range(3, 3 + axes), 1])
    kernel = low.reshape(swapped, [group * outputs, *windows.kernel, inputs])
    return convolve(low, rows, _mirrored(low, kernel, axes), None, plain)


def _with_gaps(low: Lowering, tensor: int, axis: int, stride: int) -> int:
    if stride == 1:
        return tensor
    shape = list(low.tensor_shape(tensor))
    apart = low.reshape(tensor, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    padded = surround(low, apart, {axis + 1: (0, stride - 1)})
    joined = low.reshape(padded, [*shape[:axis], shape[axis] * stride, *shape[axis + 1 :]])
    return take(low, joined, {axis: (0, (shape[axis] - 1) * stride + 1, 1)})


def _mirrored(low: Lowering, kernel: int, axes: int) -> int:
    shape = low.tensor_shape(kernel)
    for axis in range(1, 1 + axes):
        if shape[axis] > 1:
            kernel = low.emit(Builtin.REVERSE_V2, [kernel, low.int32s([axis])], shape)
    return kernel
