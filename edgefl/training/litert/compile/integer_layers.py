"""Finds layers that ONNX writes with rounding around them, and writes them on integers.

A layer between DequantizeLinear and QuantizeLinear with fixed scales computes on integers in
TFLite, as it does in onnxruntime. Where the pattern does not hold, the layer stays in float32
between QUANTIZE and DEQUANTIZE, which gives the same numbers more slowly.

Source: the public TFLite 8-bit quantization specification (int8 activations, weights symmetric and
per output channel, bias of the product of scales).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from edgefl.training.litert.compile.lowering import Lowering
from edgefl.training.litert.compile.rules.convolutions import (
    Windows,
    as_image,
    channels_last,
    conv_options,
    output_sizes,
    read_windows,
    set_from_image,
)
from edgefl.training.litert.compile.rules.shapes import surround
from edgefl.training.litert.compile.static_graph import StaticGraph, StoredIntegers
from edgefl.training.litert.format.kinds import TENSOR_TYPES, Builtin, TensorType
from edgefl.training.litert.format.model import Scales, Tensor
from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute

_INT8 = np.dtype(np.int8)
_VERSIONS = {Builtin.CONV_2D: 3, Builtin.DEPTHWISE_CONV_2D: 3}
_SCALE_TOLERANCE = 1e-4
_RELU, _RELU6 = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerLayer:
    """One layer to be computed on integers.

    Attributes:
        node: Conv, Gemm or MatMul.
        source: The integers that it reads.
        weight: The integers behind its weight.
        bias: The integers behind its bias, if it has one.
        result: The integers that it makes.
        activation: TFLite's number of the bound on its result; 0 for none.
        absorbed: Outputs of the nodes that need not be written apart.
    """

    node: onnx.NodeProto
    source: str
    weight: StoredIntegers
    bias: StoredIntegers | None
    result: str
    activation: int
    absorbed: frozenset[str]


def find_integer_layers(graph: StaticGraph) -> dict[str, IntegerLayer]:
    """Return the layers by the name of the integers that they make."""
    makers = {output: node for node in graph.nodes for output in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found: dict[str, IntegerLayer] = {}
    for node in graph.nodes:
        layer = _match(node, graph, makers, readers)
        if layer is not None:
            found[layer.result] = layer
    return found


def _match(
    node: onnx.NodeProto,
    graph: StaticGraph,
    makers: Mapping[str, onnx.NodeProto],
    readers: Mapping[str, Sequence[onnx.NodeProto]],
) -> IntegerLayer | None:
    if not _is_plain_layer(node):
        return None
    before, weight = makers.get(node.input[0]), graph.integers.get(node.input[1])
    if before is None or before.op_type != "DequantizeLinear" or weight is None:
        return None
    bias_name = node.input[2] if len(node.input) > 2 else ""
    bias = graph.integers.get(bias_name) if bias_name else None
    source_scale = _single_scale(before, graph)
    after, activation, absorbed = _follow(node, graph, readers)
    if source_scale is None or after is None or _single_scale(after, graph) is None:
        return None
    if (bias_name and bias is None) or not _are_usable(node, weight, bias, source_scale):
        return None
    return IntegerLayer(
        node=node,
        source=before.input[0],
        weight=weight,
        bias=bias,
        result=after.output[0],
        activation=activation,
        absorbed=frozenset(absorbed),
    )


def _is_plain_layer(node: onnx.NodeProto) -> bool:
    if node.op_type == "Conv":
        return True
    if node.op_type == "Gemm":
        scale = float_attribute(node, "alpha", 1.0), float_attribute(node, "beta", 1.0)
        return scale == (1.0, 1.0) and not int_attribute(node, "transA", 0)
    return node.op_type == "MatMul"


def _single_scale(node: onnx.NodeProto, graph: StaticGraph) -> float | None:
    """Return the scale of int8 rounding that never changes and is the same for all values."""
    scale = graph.constants.get(node.input[1])
    zero_point = graph.constants.get(node.input[2]) if len(node.input) > 2 else None
    if scale is None or scale.size != 1 or zero_point is None or zero_point.dtype != _INT8:
        return None
    return float(scale.reshape(-1)[0])


def _follow(
    node: onnx.NodeProto, graph: StaticGraph, readers: Mapping[str, Sequence[onnx.NodeProto]]
) -> tuple[onnx.NodeProto | None, int, list[str]]:
    """Return the rounding behind a layer, the bound between them, and what is absorbed."""
    activation, absorbed = 0, [node.output[0]]
    reader = _only_reader(node.output[0], graph, readers)
    bound = 0 if reader is None else _activation(reader, graph)
    if reader is not None and bound:
        activation = bound
        absorbed.append(reader.output[0])
        reader = _only_reader(reader.output[0], graph, readers)
    if reader is None or reader.op_type != "QuantizeLinear":
        return None, 0, []
    return reader, activation, absorbed


def _only_reader(
    value: str, graph: StaticGraph, readers: Mapping[str, Sequence[onnx.NodeProto]]
) -> onnx.NodeProto | None:
    found = readers.get(value, [])
    return found[0] if len(found) == 1 and value not in graph.outputs else None


def _activation(node: onnx.NodeProto, graph: StaticGraph) -> int:
    if node.op_type == "Relu":
        return _RELU
    if node.op_type != "Clip" or len(node.input) != 3:
        return 0
    bounds = [graph.constants.get(name) for name in node.input[1:]]
    values = [None if bound is None else float(bound.reshape(-1)[0]) for bound in bounds]
    return _RELU6 if values == [0.0, 6.0] else 0


def _are_usable(
    node: onnx.NodeProto, weight: StoredIntegers, bias: StoredIntegers | None, scale: float
) -> bool:
    """Tell whether weight and bias are as the specification wants them."""
    outputs_axis = _outputs_axis(node)
    rank = weight.integers.ndim
    is_symmetric = weight.integers.dtype == _INT8 and not np.any(weight.zero_points)
    is_per_output = weight.scales.size == 1 or weight.axis == outputs_axis
    has_fitting_rank = rank in {3, 4} if node.op_type == "Conv" else rank == 2
    group = int_attribute(node, "group", 1)
    if group > 1 and weight.integers.shape[1] != 1:
        # Grouped convolutions on integers came later than the oldest release.
        return False
    if not (is_symmetric and is_per_output and has_fitting_rank):
        return False
    if bias is None:
        return True
    wanted = scale * weight.scales.astype(np.float64)
    is_whole = bias.integers.dtype == np.int32 and not np.any(bias.zero_points)
    return is_whole and bool(np.allclose(bias.scales, wanted, rtol=_SCALE_TOLERANCE))


def _outputs_axis(node: onnx.NodeProto) -> int:
    if node.op_type == "Conv":
        return 0
    return 0 if node.op_type == "Gemm" and int_attribute(node, "transB", 0) else 1


def write_integer_layer(low: Lowering, layer: IntegerLayer, rounding: onnx.NodeProto) -> None:
    """Write a layer in place of the rounding node behind it."""
    node = layer.node
    if node.op_type == "Conv":
        shape, kernel = low.shape(node.input[0]), layer.weight.integers.shape
        windows = read_windows(node, shape[2:], kernel[2:])
        axes = windows.spatial_axes
        rows = surround(low, low.arranged(layer.source, channels_last(axes)), windows.border())
        set_from_image(low, layer.result, _image(low, layer, rounding, rows, windows))
        return
    # A product is a convolution over one position: there, scales per output are known of old.
    shape = low.shape(layer.source)
    rows = low.reshape(low.plain(layer.source), [int(np.prod(shape[:-1])), 1, shape[-1]])
    windows = Windows(kernel=[1], strides=[1], dilations=[1], pads_begin=[0], pads_end=[0])
    image = _image(low, layer, rounding, rows, windows)
    low.set(layer.result, low.reshape(image, low.shape(layer.result)))


def _image(
    low: Lowering, layer: IntegerLayer, rounding: onnx.NodeProto, rows: int, windows: Windows
) -> int:
    integers = _kernel(layer)
    outputs = integers.shape[0]
    image = as_image(low, rows)
    shape = low.tensor_shape(image)
    is_depthwise = integers.shape[-1] == 1 and shape[3] > 1
    if is_depthwise:
        integers = integers.transpose(3, 1, 2, 0)
    code = Builtin.DEPTHWISE_CONV_2D if is_depthwise else Builtin.CONV_2D
    options = conv_options(windows)
    if is_depthwise:
        options["depth_multiplier"] = outputs // shape[3]
    sizes = output_sizes(shape[1:3], integers.shape[1:3], windows)
    output = low.new_tensor([shape[0], *sizes, outputs], TensorType.INT8)
    low.subgraph.tensors[output].scales = _rounding_scales(low, rounding)
    scales = np.broadcast_to(layer.weight.scales, (outputs,))
    source_scale = _scale_of(low, rows)
    bias = np.zeros(outputs, np.int32) if layer.bias is None else layer.bias.integers
    low.append(
        code,
        [
            image,
            _constant(low, integers, scales, axis=3 if is_depthwise else 0),
            _constant(low, bias, scales * source_scale, axis=0),
        ],
        [output],
        version=_VERSIONS[code],
        activation=layer.activation,
        **options,
    )
    return output


def _kernel(layer: IntegerLayer) -> np.ndarray:
    """Return the weight as [outputs, height, width, inputs]."""
    integers = layer.weight.integers
    if layer.node.op_type != "Conv":
        rows = integers if _outputs_axis(layer.node) == 0 else integers.T
        return rows[:, np.newaxis, np.newaxis]
    last = np.moveaxis(integers, 1, -1)
    return last if last.ndim == 4 else last[:, np.newaxis]


def _constant(low: Lowering, values: np.ndarray, scales: np.ndarray, *, axis: int) -> int:
    content = np.ascontiguousarray(values)
    low.subgraph.tensors.append(
        Tensor(
            shape=content.shape,
            kind=TENSOR_TYPES[content.dtype],
            content=content.tobytes(),
            scales=Scales(
                scales=tuple(float(np.float32(scale)) for scale in scales),
                zero_points=(0,) * len(scales),
                axis=axis,
            ),
        )
    )
    return len(low.subgraph.tensors) - 1


def _scale_of(low: Lowering, tensor: int) -> float:
    scales = low.subgraph.tensors[tensor].scales
    return 1.0 if scales is None else scales.scales[0]


def _rounding_scales(low: Lowering, rounding: onnx.NodeProto) -> Scales:
    scale = float(low.constant(rounding.input[1]).reshape(-1)[0])
    return Scales(scales=(scale,), zero_points=(low.integers(rounding.input[2])[0],))
