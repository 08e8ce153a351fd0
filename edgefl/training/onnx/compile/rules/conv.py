"""Gradients of convolution over any spatial axes, with strides, dilations, pads and groups."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import (
    describe,
    int_attribute,
    ints_attribute,
    text_attribute,
)
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvGeometry:
    """Sizes of one convolution; lists have one entry per spatial axis.

    Attributes:
        input_sizes: Spatial sizes of the input.
        kernel: Spatial sizes of the weight.
        strides: Steps between outputs.
        dilations: Steps between taps.
        pads_begin: Zeros before the input.
        pads_end: Zeros after the input.
        output_sizes: Spatial sizes of the output.
        group: Number of channel groups.
        input_channels: Channels of the input.
        output_channels: Channels of the output.
    """

    input_sizes: list[int]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads_begin: list[int]
    pads_end: list[int]
    output_sizes: list[int]
    group: int
    input_channels: int
    output_channels: int

    @property
    def spatial_axes(self) -> int:
        """Return the number of spatial axes."""
        return len(self.kernel)

    @property
    def pads(self) -> list[int]:
        """Return the pads in ONNX order: all begins, then all ends."""
        return [*self.pads_begin, *self.pads_end]

    @property
    def unread_tail(self) -> list[int]:
        """Return, per axis, how many padded samples at the end no window reaches."""
        return [
            size + begin + end - ((kernel - 1) * dilation + 1) - (output - 1) * stride
            for size, begin, end, kernel, dilation, output, stride in zip(
                self.input_sizes,
                self.pads_begin,
                self.pads_end,
                self.kernel,
                self.dilations,
                self.output_sizes,
                self.strides,
                strict=True,
            )
        ]


@gradient_of("Conv")
def conv(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Differentiate with respect to input, weight and bias.

    Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning",
    arXiv:1603.07285, section 4 (input); the weight's gradient is itself a convolution, of the
    input with the output's gradient as kernel, in which strides and dilations change places.
    """
    geometry = read_geometry(graph, node)
    gradients: Gradients = [None] * len(node.input)
    if wanted[0]:
        gradients[0] = _input_gradient(graph, node, dy, geometry)
    if wanted[1]:
        gradients[1] = _weight_gradient(graph, node.input[0], dy, geometry)
    if len(node.input) > 2 and wanted[2]:
        gradients[2] = graph.reduce_sum(dy, [0, *range(2, 2 + geometry.spatial_axes)])
    return gradients


def read_geometry(graph: GraphEmitter, node: onnx.NodeProto) -> ConvGeometry:
    """Return the sizes of a Conv node.

    Raises:
        TrainingError: E-MODEL-SHAPE for unknown sizes.
    """
    input_shape = _static(graph.shape_of(node.input[0], node)[1:], node)
    weight_shape = _static(graph.shape_of(node.input[1], node), node)
    output_shape = _static(graph.shape_of(node.output[0], node)[1:], node)
    kernel, input_sizes = weight_shape[2:], input_shape[1:]
    ones = [1] * len(kernel)
    strides = ints_attribute(node, "strides") or ones
    dilations = ints_attribute(node, "dilations") or ones
    begin, end = _pads(node, input_sizes, kernel, strides, dilations)
    return ConvGeometry(
        input_sizes=input_sizes,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads_begin=begin,
        pads_end=end,
        output_sizes=output_shape[1:],
        group=int_attribute(node, "group", 1),
        input_channels=input_shape[0],
        output_channels=weight_shape[0],
    )


def _pads(
    node: onnx.NodeProto,
    input_sizes: list[int],
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
) -> tuple[list[int], list[int]]:
    mode = text_attribute(node, "auto_pad", "NOTSET")
    axes = len(kernel)
    if mode == "NOTSET":
        pads = ints_attribute(node, "pads") or [0] * (2 * axes)
        return pads[:axes], pads[axes:]
    if mode == "VALID":
        return [0] * axes, [0] * axes
    if mode not in {"SAME_UPPER", "SAME_LOWER"}:
        raise TrainingError("E-MODEL-OP-FORM", "a known auto_pad", mode, f"see {describe(node)}")
    begin, end = [], []
    for size, taps, stride, dilation in zip(input_sizes, kernel, strides, dilations, strict=True):
        output = -(-size // stride)
        total = max((output - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
        smaller = total // 2
        begin.append(smaller if mode == "SAME_UPPER" else total - smaller)
        end.append(total - begin[-1])
    return begin, end


def _input_gradient(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, geometry: ConvGeometry
) -> str:
    """Spread each output's gradient over its window: a transposed convolution, same weight."""
    return graph.emit(
        "ConvTranspose",
        dy,
        node.input[1],
        strides=geometry.strides,
        dilations=geometry.dilations,
        group=geometry.group,
        pads=geometry.pads,
        output_padding=geometry.unread_tail,
        kernel_shape=geometry.kernel,
    )


def _weight_gradient(graph: GraphEmitter, x: str, dy: str, geometry: ConvGeometry) -> str:
    """Slide the output's gradient over the input.

    The batch plays the part of the input channels: x becomes [channels/g, g*N, ...] and dy [M, N,
    ...]; with `group=g` each group of outputs meets its own inputs only.
    """
    axes = geometry.spatial_axes
    group_channels = geometry.input_channels // geometry.group
    swap = [1, 0, *range(2, 2 + axes)]
    if geometry.group == 1:
        samples = graph.emit("Transpose", x, perm=swap)
    else:
        grouped = graph.reshape(x, (None, geometry.group, group_channels, *geometry.input_sizes))
        moved = graph.emit("Transpose", grouped, perm=[2, 1, 0, *range(3, 3 + axes)])
        samples = graph.reshape(moved, (group_channels, None, *geometry.input_sizes))
    correlated = graph.emit(
        "Conv",
        samples,
        graph.emit("Transpose", dy, perm=swap),
        strides=geometry.dilations,
        dilations=geometry.strides,
        pads=geometry.pads,
        group=geometry.group,
    )
    if any(geometry.unread_tail):
        # Samples that no window reached make the correlation longer than the kernel.
        correlated = graph.emit(
            "Slice",
            correlated,
            graph.int64s([0] * axes),
            graph.int64s(geometry.kernel),
            graph.int64s(range(2, 2 + axes)),
        )
    return graph.emit("Transpose", correlated, perm=swap)


def _static(shape: Shape, node: onnx.NodeProto) -> list[int]:
    sizes = [size for size in shape if size is not None]
    if len(sizes) != len(shape):
        raise TrainingError(
            "E-MODEL-SHAPE",
            "fixed channels and spatial sizes",
            f"an unknown size at {describe(node)}",
            "export the model with fixed sizes; only the batch axis may vary",
        )
    return sizes
