"""Gradients of convolution over any spatial axes, with strides, dilations, pads and groups."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.conv_geometry import read_geometry
from edgefl.training.onnx.compile.rules.conv_input import choose_input_form, input_gradient
from edgefl.training.onnx.compile.rules.conv_weight import choose_weight_form, weight_gradient
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Conv")
def conv(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Differentiate with respect to input, weight and bias.

    Raises:
        TrainingError: E-MODEL-SHAPE for unknown sizes, E-MODEL-OP-FORM for an unknown auto_pad.
    """
    geometry = read_geometry(graph, node)
    gradients: Gradients = [None] * len(node.input)
    if wanted[0]:
        form = choose_input_form(geometry)
        gradients[0] = input_gradient(graph, dy, node.input[1], geometry, form)
    if wanted[1]:
        weight_form = choose_weight_form(geometry)
        gradients[1] = weight_gradient(graph, node.input[0], dy, geometry, weight_form)
    if len(node.input) > 2 and wanted[2]:
        gradients[2] = graph.reduce_sum(dy, [0, *range(2, 2 + geometry.spatial_axes)])
    return gradients
