"""Gradient of maxima over windows."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.attributes import text_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import ConvGeometry
from edgefl.training.onnx.compile.rules.max_pool_phases import (
    max_pool_by_phases,
    phases_pay,
)
from edgefl.training.onnx.compile.rules.pool_geometry import read_windows
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("MaxPool")
def max_pool(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Give each maximum's gradient to the first sample of its window that has the value.

    Raises:
        TrainingError: E-MODEL-SHAPE for unknown sizes.
    """
    del wanted
    windows = read_windows(graph, node)
    if phases_pay(windows):
        return [max_pool_by_phases(graph, node, dy, windows)]
    return [max_pool_by_places(graph, node, dy, windows)]


def max_pool_by_places(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, windows: ConvGeometry
) -> str:
    """Pool once more, this time asking where the maxima lie: the forward node does not say.

    The places count over the whole tensor, batch and channels included.
    """
    x = node.input[0]
    kept = {
        attribute.name: text_attribute(node, attribute.name, "")
        or list(attribute.ints)
        or attribute.i
        for attribute in node.attribute
        if attribute.name != "storage_order"
    }
    _, places = graph.emit_outputs("MaxPool", [x], 2, **kept)
    overlap = any(
        reach > stride for reach, stride in zip(windows.reach, windows.strides, strict=True)
    )
    if not overlap:
        # The kernel only serves onnxruntime to compute a least size; the places say all.
        ones = [1] * windows.spatial_axes
        size = graph.emit("Shape", x)
        return graph.emit("MaxUnpool", dy, places, size, kernel_shape=ones)
    size = graph.emit("Reshape", graph.emit("Size", x), graph.int64s([1]))
    summed = graph.emit(
        "ScatterElements",
        graph.emit("Expand", graph.float32(0.0), size),
        graph.reshape(places, (None,)),
        graph.reshape(dy, (None,)),
        axis=0,
        reduction="add",
    )
    return graph.reshape(summed, (None, windows.input_channels, *windows.input_sizes))
