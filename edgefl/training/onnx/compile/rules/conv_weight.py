"""Gradient of a convolution with respect to its weight, in any of several equal forms."""

from enum import Enum

import numpy as np

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry

# From here on a node per tap costs more than it saves.
_MANY_TAPS = 64
# A batch of products over so few positions is slower than one product over all of them.
_FEW_POSITIONS = 32
# With so many channels the products fill the processor without the taps being joined first.
_MANY_CHANNELS = 32


class WeightForm(Enum):
    """How the gradient is computed; all forms give the same values."""

    CORRELATION = "one Conv of the input with the output's gradient as kernel"
    COLUMNS = "taps joined to a matrix, one product per example and group, then a sum"
    TAPS = "one product per tap, example and group, then sums"
    ROWS = "channels moved last, one product over all positions per tap; without groups"
    PRODUCTS = "one value-wise product per tap, then sums; for depthwise convolution"


def choose_weight_form(geometry: ConvGeometry) -> WeightForm:
    """Return the fastest form.

    Measured with onnxruntime 1.32 on x86-64, one thread, batch 32, as a multiple of the fastest
    form (CORRELATION, COLUMNS, TAPS, ROWS, PRODUCTS; - where it does not apply or was not run):
    1-D 9 to 32, 5 taps, 128 positions: 2.2, 1, -, 1.9, -; 1-D 32 to 64, 5 taps, 64: 1.9, 1.0, 1,
    1.2, -; 1-D 64 to 64, 3 taps, 32: 3.1, 1.2, 1.2, 1, -; 2-D 3 to 16, 3x3, 32x32: 1.4, 1, 1.4,
    2.1, -; 2-D 32 to 64, 3x3, 16x16: 1.6, 1.5, 1, 1.2, -; 2-D depthwise 16, 3x3, 16x16: 1.8, 2.2,
    -, -, 1; 1-D depthwise 64, 5 taps, 64: 2.6, 2.9, -, -, 1.
    """
    if geometry.taps > _MANY_TAPS:
        return WeightForm.CORRELATION
    if geometry.group_inputs == geometry.group_outputs == 1:
        return WeightForm.PRODUCTS
    if geometry.group == 1 and geometry.outputs <= _FEW_POSITIONS:
        return WeightForm.ROWS
    return WeightForm.TAPS if geometry.group_inputs >= _MANY_CHANNELS else WeightForm.COLUMNS


def weight_gradient(
    graph: GraphEmitter, x: str, dy: str, geometry: ConvGeometry, form: WeightForm
) -> str:
    """Emit the gradient of the weight: the correlation of the input with the output's gradient.

    Args:
        graph: Where to emit.
        x: The input, [N, input channels, inputs].
        dy: Gradient of the output, [N, output channels, outputs].
        geometry: Sizes of the convolution.
        form: How to compute it.

    Returns:
        The gradient, of the weight's shape.

    Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for
    document processing", 2006, section 3.1 (taps as columns of a matrix); for CORRELATION,
    Dumoulin and Visin, arXiv:1603.07285: strides and dilations change places.
    """
    match form:
        case WeightForm.CORRELATION:
            return _correlation(graph, x, dy, geometry)
        case WeightForm.COLUMNS:
            return _columns(graph, x, dy, geometry)
        case WeightForm.TAPS:
            return _taps(graph, x, dy, geometry)
        case WeightForm.ROWS:
            return _rows(graph, x, dy, geometry)
        case WeightForm.PRODUCTS:
            return _products(graph, x, dy, geometry)


def input_taps(
    graph: GraphEmitter, x: str, geometry: ConvGeometry, *, first_spatial_axis: int = 2
) -> list[str]:
    """Emit, for each tap of the kernel in row-major order, what it reads for every output.

    Args:
        graph: Where to emit.
        x: A value of four axes for two spatial ones, and so on.
        geometry: Sizes of the convolution.
        first_spatial_axis: 2 for [N, channels, ...], 1 for [N, ..., channels].

    Returns:
        Values like x whose spatial sizes are those of the output.
    """
    count = geometry.spatial_axes
    axes = range(first_spatial_axis, first_spatial_axis + count)
    if any(geometry.pads):
        pads = [0] * (2 * (count + 2))
        for axis, begin, end in zip(axes, geometry.pads_begin, geometry.pads_end, strict=True):
            pads[axis], pads[count + 2 + axis] = begin, end
        x = graph.emit("Pad", x, graph.int64s(pads))
    if geometry.taps == 1 and set(geometry.strides) == {1}:
        return [x]
    taps: list[str] = []
    for place in np.ndindex(*geometry.kernel):
        starts = [int(step) * at for step, at in zip(geometry.dilations, place, strict=True)]
        stops = [
            start + (size - 1) * stride + 1
            for start, size, stride in zip(
                starts, geometry.output_sizes, geometry.strides, strict=True
            )
        ]
        bounds = [graph.int64s(starts), graph.int64s(stops), graph.int64s(axes)]
        taps.append(graph.emit("Slice", x, *bounds, graph.int64s(geometry.strides)))
    return taps


def _correlation(graph: GraphEmitter, x: str, dy: str, geometry: ConvGeometry) -> str:
    """Let the batch play the part of the input channels.

    x becomes [channels/g, g*N, ...] and dy [M, N, ...]; with `group=g` each group of outputs meets
    its own inputs only.
    """
    axes = geometry.spatial_axes
    swap = [1, 0, *range(2, 2 + axes)]
    if geometry.group == 1:
        samples = graph.emit("Transpose", x, perm=swap)
    else:
        inputs, sizes = geometry.group_inputs, geometry.input_sizes
        grouped = graph.reshape(x, (None, geometry.group, inputs, *sizes))
        moved = graph.emit("Transpose", grouped, perm=[2, 1, 0, *range(3, 3 + axes)])
        samples = graph.reshape(moved, (inputs, None, *sizes))
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


def _columns(graph: GraphEmitter, x: str, dy: str, geometry: ConvGeometry) -> str:
    taps = [_flat(graph, tap, geometry, outputs=False) for tap in input_taps(graph, x, geometry)]
    grouped = int(geometry.group > 1)
    columns = taps[0] if len(taps) == 1 else graph.emit("Concat", *taps, axis=grouped + 1)
    rows = _flat(graph, dy, geometry, outputs=True)
    # Columns first: with dy first the same product was slower by a tenth.
    summed = _product(graph, columns, rows, geometry)
    sizes = (geometry.taps, geometry.group_inputs, geometry.group_outputs)
    if not grouped:
        return graph.reshape(
            graph.emit("Transpose", graph.reshape(summed, sizes), perm=[2, 1, 0]),
            geometry.weight_shape,
        )
    apart = graph.reshape(summed, (geometry.group, *sizes))
    ordered = graph.emit("Transpose", apart, perm=[0, 3, 2, 1])
    return graph.reshape(ordered, geometry.weight_shape)


def _taps(graph: GraphEmitter, x: str, dy: str, geometry: ConvGeometry) -> str:
    rows = _flat(graph, dy, geometry, outputs=True)
    parts = [
        _product(graph, rows, _flat(graph, tap, geometry, outputs=False), geometry)
        for tap in input_taps(graph, x, geometry)
    ]
    return _joined(graph, parts, geometry)


def _flat(graph: GraphEmitter, value: str, geometry: ConvGeometry, *, outputs: bool) -> str:
    """Give a value one axis of positions, and its groups an axis of their own if there are any."""
    channels = geometry.group_outputs if outputs else geometry.group_inputs
    lead = (geometry.group,) if geometry.group > 1 else ()
    return graph.reshape(value, (None, *lead, channels, geometry.outputs))


def _product(graph: GraphEmitter, first: str, second: str, geometry: ConvGeometry) -> str:
    """Emit the first times the transposed second per example and group, summed over the batch."""
    order = [0, 1, 3, 2] if geometry.group > 1 else [0, 2, 1]
    turned = graph.emit("Transpose", second, perm=order)
    return graph.reduce_sum(graph.emit("MatMul", first, turned), [0])


def _rows(graph: GraphEmitter, x: str, dy: str, geometry: ConvGeometry) -> str:
    last = [0, *range(2, 2 + geometry.spatial_axes), 1]
    taps = input_taps(graph, graph.emit("Transpose", x, perm=last), geometry, first_spatial_axis=1)
    rows = graph.reshape(graph.emit("Transpose", dy, perm=last), (None, geometry.output_channels))
    parts = [
        graph.emit("Gemm", rows, graph.reshape(tap, (None, geometry.input_channels)), transA=1)
        for tap in taps
    ]
    return _joined(graph, parts, geometry)


def _products(graph: GraphEmitter, x: str, dy: str, geometry: ConvGeometry) -> str:
    summed = [0, *range(2, 2 + geometry.spatial_axes)]
    parts = [
        graph.reduce_sum(graph.emit("Mul", tap, dy), summed)
        for tap in input_taps(graph, x, geometry)
    ]
    return _joined(graph, parts, geometry)


def _joined(graph: GraphEmitter, parts: list[str], geometry: ConvGeometry) -> str:
    """Join one [output channels, inputs of a group] matrix per tap to the weight's shape."""
    if len(parts) == 1:
        return graph.reshape(parts[0], geometry.weight_shape)
    column = (geometry.output_channels, geometry.group_inputs, 1)
    joined = graph.emit("Concat", *[graph.reshape(part, column) for part in parts], axis=2)
    return graph.reshape(joined, geometry.weight_shape)
