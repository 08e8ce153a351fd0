"""Sizes of a convolution, read from a node and its shapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import (
    describe,
    int_attribute,
    ints_attribute,
    text_attribute,
)
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape


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
    def taps(self) -> int:
        """Return the number of positions of the kernel."""
        return prod(self.kernel)

    @property
    def outputs(self) -> int:
        """Return the number of positions of one output channel."""
        return prod(self.output_sizes)

    @property
    def group_inputs(self) -> int:
        """Return the input channels that one output channel reads."""
        return self.input_channels // self.group

    @property
    def group_outputs(self) -> int:
        """Return the output channels of one group."""
        return self.output_channels // self.group

    @property
    def weight_shape(self) -> Shape:
        """Return the shape of the weight: [output channels, inputs of a group, kernel]."""
        return (self.output_channels, self.group_inputs, *self.kernel)

    @property
    def pads(self) -> list[int]:
        """Return the pads in ONNX order: all begins, then all ends."""
        return [*self.pads_begin, *self.pads_end]

    @property
    def reach(self) -> list[int]:
        """Return, per axis, how many samples one window spans."""
        return [
            (taps - 1) * step + 1 for taps, step in zip(self.kernel, self.dilations, strict=True)
        ]

    @property
    def unread_tail(self) -> list[int]:
        """Return, per axis, how many padded samples at the end no window reaches.

        Negative where the windows reach further than the pads that are known so far.
        """
        return [
            size + begin + end - reach - (output - 1) * stride
            for size, begin, end, reach, output, stride in zip(
                self.input_sizes,
                self.pads_begin,
                self.pads_end,
                self.reach,
                self.output_sizes,
                self.strides,
                strict=True,
            )
        ]


def read_geometry(graph: GraphEmitter, node: onnx.NodeProto) -> ConvGeometry:
    """Return the sizes of a Conv node.

    Raises:
        TrainingError: E-MODEL-SHAPE for unknown or impossible sizes.
    """
    weight_shape = static_sizes(graph.shape_of(node.input[1], node), node)
    kernel = weight_shape[2:]
    channels, *input_sizes = static_sizes(graph.shape_of(node.input[0], node)[1:], node)
    ones = [1] * len(kernel)
    strides = ints_attribute(node, "strides") or ones
    dilations = ints_attribute(node, "dilations") or ones
    begin, end = read_pads(node, input_sizes, kernel, strides, dilations)
    output_sizes = static_sizes(graph.shape_of(node.output[0], node)[2:], node)
    group = int_attribute(node, "group", 1)
    _require_possible(node, output_sizes, group, channels, weight_shape)
    return ConvGeometry(
        input_sizes=input_sizes,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads_begin=begin,
        pads_end=end,
        output_sizes=output_sizes,
        group=group,
        input_channels=channels,
        output_channels=weight_shape[0],
    )


def _require_possible(
    node: onnx.NodeProto,
    output_sizes: Sequence[int],
    group: int,
    channels: int,
    weight_shape: Sequence[int],
) -> None:
    """Refuse what onnx's shape inference lets pass."""
    fits = group > 0 and channels == group * weight_shape[1] and weight_shape[0] % group == 0
    if not fits or min(output_sizes, default=1) < 1:
        raise TrainingError(
            "E-MODEL-SHAPE",
            "a window no larger than the padded input, and channels that the groups divide",
            f"output sizes {list(output_sizes)} of {channels} channels in {group} groups with a "
            f"weight of shape {list(weight_shape)} at {describe(node)}",
            "export the model again with an input it was made for",
        )


def read_pads(
    node: onnx.NodeProto,
    input_sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Return the zeros before and after each spatial axis, from `pads` or `auto_pad`.

    Raises:
        TrainingError: E-MODEL-OP-FORM for an unknown auto_pad.
    """
    mode = text_attribute(node, "auto_pad", "NOTSET")
    axes = len(kernel)
    if mode == "NOTSET":
        pads = ints_attribute(node, "pads") or [0] * (2 * axes)
        return pads[:axes], pads[axes:]
    if mode == "VALID":
        return [0] * axes, [0] * axes
    if mode not in {"SAME_UPPER", "SAME_LOWER"}:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "an auto_pad that ONNX knows",
            f"{mode} at {describe(node)}",
            "export the model again with fixed pads",
        )
    begin, end = [], []
    for size, taps, stride, dilation in zip(input_sizes, kernel, strides, dilations, strict=True):
        output = -(-size // stride)
        total = max((output - 1) * stride + (taps - 1) * dilation + 1 - size, 0)
        smaller = total // 2
        begin.append(smaller if mode == "SAME_UPPER" else total - smaller)
        end.append(total - begin[-1])
    return begin, end


def static_sizes(shape: Shape, node: onnx.NodeProto) -> list[int]:
    """Return a shape whose sizes are all known.

    Raises:
        TrainingError: E-MODEL-SHAPE naming the node.
    """
    sizes = [size for size in shape if size is not None]
    if len(sizes) != len(shape):
        raise TrainingError(
            "E-MODEL-SHAPE",
            "fixed channels and spatial sizes",
            f"an unknown size at {describe(node)}",
            "export the model with fixed sizes; only the batch axis may vary",
        )
    return sizes
