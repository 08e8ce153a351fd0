"""Sizes of a pooling operator, as those of a depthwise convolution."""

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, ints_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import (
    ConvGeometry,
    read_pads,
    static_sizes,
)


def read_windows(graph: GraphEmitter, node: onnx.NodeProto) -> ConvGeometry:
    """Return the sizes of a pooling node.

    Where sizes are rounded up, the last window may hang over the padding; `pads_end` is then
    lengthened to its end, so that every window lies within the padded input.

    Raises:
        TrainingError: E-MODEL-SHAPE for unknown sizes, E-MODEL-OP-FORM without
            kernel_shape or where the last window starts behind the input.
    """
    kernel = ints_attribute(node, "kernel_shape")
    if not kernel:
        raise TrainingError(
            "E-MODEL-OP-FORM", "a kernel_shape", f"none at {describe(node)}", "export it again"
        )
    channels, *sizes = static_sizes(graph.shape_of(node.input[0], node)[1:], node)
    outputs = static_sizes(graph.shape_of(node.output[0], node)[2:], node)
    ones = [1] * len(kernel)
    strides = ints_attribute(node, "strides") or ones
    dilations = ints_attribute(node, "dilations") or ones
    begins, ends = read_pads(node, sizes, kernel, strides, dilations)
    needed = [
        (output - 1) * stride + (taps - 1) * dilation + 1 - size - begin
        for output, stride, taps, dilation, size, begin in zip(
            outputs, strides, kernel, dilations, sizes, begins, strict=True
        )
    ]
    starts = [(output - 1) * stride for output, stride in zip(outputs, strides, strict=True)]
    if any(start >= size + begin for start, size, begin in zip(starts, sizes, begins, strict=True)):
        # onnx and onnxruntime disagree whether such a window counts.
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "windows that start within the input",
            f"a last one behind it at {describe(node)}",
            "export the model without ceil_mode",
        )
    return ConvGeometry(
        input_sizes=sizes,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads_begin=begins,
        pads_end=[max(end, need) for end, need in zip(ends, needed, strict=True)],
        output_sizes=outputs,
        group=channels,
        input_channels=channels,
        output_channels=channels,
    )
