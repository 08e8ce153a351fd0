"""Gradient of a convolution with respect to its input, in either of two equal forms."""

from enum import Enum

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry


class InputForm(Enum):
    """How the gradient is computed; all forms give the same values."""

    TRANSPOSED = "one ConvTranspose with the same weight"
    FLIPPED = "one Conv with the weight turned round; for strides of 1"


def choose_input_form(geometry: ConvGeometry) -> InputForm:
    """Return the faster form.

    Measured with onnxruntime 1.32 on x86-64, one thread, batch 32, time of FLIPPED / TRANSPOSED:
    1-D depthwise 64 channels, 5 taps: 0.53; 1x1, 16 to 32 channels: 0.80; 1-D 64 to 64, 3 taps:
    0.85; 1-D 32 to 64, 5 taps: 1.03; 2-D depthwise 3x3, 16 channels: 1.25; 2-D 32 to 64, 3x3:
    1.43; 2-D 3 to 16, 3x3: 2.8.
    """
    if not can_flip(geometry):
        return InputForm.TRANSPOSED
    grouped_in_one_axis = geometry.spatial_axes == 1 and geometry.group > 1
    return InputForm.FLIPPED if geometry.taps == 1 or grouped_in_one_axis else InputForm.TRANSPOSED


def can_flip(geometry: ConvGeometry) -> bool:
    """Tell whether the flipped form applies."""
    return set(geometry.strides) == {1} and all(
        reach > pad for reach, pad in zip(geometry.reach * 2, geometry.pads, strict=True)
    )


def input_gradient(
    graph: GraphEmitter, dy: str, weight: str, geometry: ConvGeometry, form: InputForm
) -> str:
    """Emit the gradient of the input.

    Args:
        graph: Where to emit.
        dy: Gradient of the output, [N, output channels, outputs].
        weight: The weight.
        geometry: Sizes of the convolution.
        form: How to compute it.

    Returns:
        The gradient, [N, input channels, inputs].

    Source: Dumoulin and Visin, "A guide to convolution arithmetic for deep learning",
    arXiv:1603.07285, section 4.
    """
    if form is InputForm.FLIPPED:
        return _flipped(graph, dy, weight, geometry)
    return graph.emit(
        "ConvTranspose",
        dy,
        weight,
        strides=geometry.strides,
        dilations=geometry.dilations,
        group=geometry.group,
        pads=geometry.pads,
        output_padding=geometry.unread_tail,
        kernel_shape=geometry.kernel,
    )


def _flipped(graph: GraphEmitter, dy: str, weight: str, geometry: ConvGeometry) -> str:
    reach = geometry.reach
    begins = [span - 1 - pad for span, pad in zip(reach, geometry.pads_begin, strict=True)]
    ends = [span - 1 - pad for span, pad in zip(reach, geometry.pads_end, strict=True)]
    return graph.emit(
        "Conv",
        dy,
        _turned_weight(graph, weight, geometry),
        dilations=geometry.dilations,
        group=geometry.group,
        pads=[*begins, *ends],
        kernel_shape=geometry.kernel,
    )


def _turned_weight(graph: GraphEmitter, weight: str, geometry: ConvGeometry) -> str:
    """Reverse every spatial axis and let inputs and outputs change places within each group."""
    count = geometry.spatial_axes
    spatial = list(range(2, 2 + count))
    if geometry.taps > 1:
        weight = graph.emit(
            "Slice",
            weight,
            graph.int64s([-1] * count),
            graph.int64s([-(2**31)] * count),
            graph.int64s(spatial),
            graph.int64s([-1] * count),
        )
    inputs, outputs, kernel = geometry.group_inputs, geometry.group_outputs, geometry.kernel
    if inputs == outputs == 1:
        return weight
    if geometry.group == 1:
        return graph.emit("Transpose", weight, perm=[1, 0, *spatial])
    grouped = graph.reshape(weight, (geometry.group, outputs, inputs, *kernel))
    swapped = graph.emit("Transpose", grouped, perm=[0, 2, 1, *(axis + 1 for axis in spatial)])
    return graph.reshape(swapped, (geometry.input_channels, outputs, *kernel))
