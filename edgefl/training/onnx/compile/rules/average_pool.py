"""Gradient of averages over windows."""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefl.training.onnx.compile.attributes import int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry, read_pads
from edgefl.training.onnx.compile.rules.conv_input import InputForm, input_gradient
from edgefl.training.onnx.compile.rules.pool_geometry import read_windows
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("AveragePool")
def average_pool(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Share each mean's gradient equally among the samples that it was taken of.

    An average is a depthwise convolution with equal weights, so its gradient is a transposed one.

    Raises:
        TrainingError: E-MODEL-SHAPE for unknown sizes.
    """
    del wanted
    windows = read_windows(graph, node)
    counts = _counts(node, windows)
    share = 1.0
    if np.all(counts == counts.flat[0]):
        share = 1.0 / float(counts.flat[0])
    else:
        shares = (1.0 / counts).astype(np.float32)
        dy = graph.emit("Mul", dy, graph.constant(shares[np.newaxis, np.newaxis]))
    weight = np.full((windows.input_channels, 1, *windows.kernel), share, np.float32)
    return [input_gradient(graph, dy, graph.constant(weight), windows, InputForm.TRANSPOSED)]


def _counts(node: onnx.NodeProto, windows: ConvGeometry) -> NDArray[np.float64]:
    """Return by how many samples each window's sum is divided, float64 [output sizes].

    Padding counts with `count_include_pad`, but what lies beyond it, where sizes are rounded up,
    never does.
    """
    sizes = windows.input_sizes
    begins, ends = [0] * len(sizes), [0] * len(sizes)
    if int_attribute(node, "count_include_pad", 0):
        begins, ends = read_pads(node, sizes, windows.kernel, windows.strides, windows.dilations)
    counts = np.ones(())
    for axis, size in enumerate(sizes):
        starts = np.arange(windows.output_sizes[axis]) * windows.strides[axis]
        taps = np.arange(windows.kernel[axis]) * windows.dilations[axis]
        places = starts[:, np.newaxis] + taps - windows.pads_begin[axis]
        inside = (places >= -begins[axis]) & (places < size + ends[axis])
        counts = np.multiply.outer(counts, np.maximum(inside.sum(axis=1), 1))
    return np.asarray(counts, np.float64)
