"""Gradients of transposed convolution: a convolution whose input and output change places."""

from collections.abc import Sequence
from dataclasses import replace

import onnx

from edgefl.training.onnx.compile.attributes import (
    int_attribute,
    ints_attribute,
    text_attribute,
)
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry, static_sizes
from edgefl.training.onnx.compile.rules.conv_weight import choose_weight_form, weight_gradient
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("ConvTranspose")
def conv_transpose(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Differentiate with respect to input, weight and bias.

    The operator is the input gradient of a convolution with the same weight; so its own input
    gradient is that convolution, and its weight gradient is that convolution's with x and dy in
    each other's place.

    Raises:
        TrainingError: E-MODEL-SHAPE for unknown sizes.
    """
    x, weight = node.input[:2]
    geometry = _geometry_of_convolution(graph, node)
    gradients: Gradients = [None] * len(node.input)
    if wanted[0]:
        gradients[0] = _convolve(graph, dy, weight, geometry)
    if wanted[1]:
        form = choose_weight_form(geometry)
        gradients[1] = weight_gradient(graph, dy, x, geometry, form)
    if len(node.input) > 2 and wanted[2]:
        gradients[2] = graph.reduce_sum(dy, [0, *range(2, 2 + geometry.spatial_axes)])
    return gradients


def _convolve(graph: GraphEmitter, dy: str, weight: str, geometry: ConvGeometry) -> str:
    return graph.emit(
        "Conv",
        dy,
        weight,
        strides=geometry.strides,
        dilations=geometry.dilations,
        group=geometry.group,
        pads=geometry.pads,
        kernel_shape=geometry.kernel,
    )


def _geometry_of_convolution(graph: GraphEmitter, node: onnx.NodeProto) -> ConvGeometry:
    """Return the sizes of the convolution that leads from the node's output to its input."""
    weight_shape = static_sizes(graph.shape_of(node.input[1], node), node)
    kernel = weight_shape[2:]
    axes = len(kernel)
    ones = [1] * axes
    channels, *large = static_sizes(graph.shape_of(node.output[0], node)[1:], node)
    geometry = ConvGeometry(
        input_sizes=large,
        kernel=kernel,
        strides=ints_attribute(node, "strides") or ones,
        dilations=ints_attribute(node, "dilations") or ones,
        pads_begin=[0] * axes,
        pads_end=[0] * axes,
        output_sizes=static_sizes(graph.shape_of(node.input[0], node)[2:], node),
        group=int_attribute(node, "group", 1),
        input_channels=channels,
        output_channels=weight_shape[0],
    )
    begin, end = _pads(node, geometry)
    return replace(geometry, pads_begin=begin, pads_end=end)


def _pads(node: onnx.NodeProto, unpadded: ConvGeometry) -> tuple[list[int], list[int]]:
    """Return what is cut off each end of the output; with an odd total, more at the begin.

    SAME_UPPER alone cuts more off the end.

    Source: ONNX operator specification, ConvTranspose (output_shape and auto_pad).
    """
    axes = unpadded.spatial_axes
    mode = text_attribute(node, "auto_pad", "NOTSET")
    if mode == "VALID" or (mode == "NOTSET" and not ints_attribute(node, "output_shape")):
        pads = ints_attribute(node, "pads") or [0] * (2 * axes)
        return pads[:axes], pads[axes:]
    extra = ints_attribute(node, "output_padding") or [0] * axes
    begin, end = [], []
    # The tail that no window reads is negative by what has to be cut off.
    for tail, more in zip(unpadded.unread_tail, extra, strict=True):
        total = max(more - tail, 0)
        smaller = total // 2
        begin.append(smaller if mode == "SAME_UPPER" else total - smaller)
        end.append(total - begin[-1])
    return begin, end
