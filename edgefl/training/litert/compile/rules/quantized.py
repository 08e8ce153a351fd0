"""Rounding to integers and back."""

from collections.abc import Sequence

import numpy as np
import onnx

from edgefl.training.litert.compile.lowering import Lowering, Unsupported
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.litert.format.model import Scales
from edgefl.training.onnx.compile.attributes import int_attribute

_RANGES = {TensorType.INT8: (-128, 127), TensorType.UINT8: (0, 255)}


@lowers("QuantizeLinear")
def quantize(low: Lowering, node: onnx.NodeProto) -> None:
    """Round to integers.

    With scales that training computes anew, the integers are held as float32: TFLite's own
    operator only knows scales that never change.
    """
    value, result = node.input[0], node.output[0]
    view = low.view(value)
    shape = low.tensor_shape(view.tensor)
    scales = fixed_scales(low, node)
    if scales is not None:
        tensor = low.emit(Builtin.QUANTIZE, [view.tensor], shape, low.kind(result))
        low.subgraph.tensors[tensor].scales = scales
        low.set(result, tensor, view.axes)
        return
    least, most = _RANGES[low.kind(result)]
    steps = low.emit(Builtin.DIV, [view.tensor, _along(low, node, node.input[1])], shape)
    whole = low.emit(Builtin.ROUND, [steps], shape)
    if len(node.input) > 2 and node.input[2] and np.any(low.constant(node.input[2])):
        message = "a zero point beside computed scales"
        raise Unsupported(message)
    above = low.emit(Builtin.MAXIMUM, [whole, low.float32(least)], shape)
    low.set(result, low.emit(Builtin.MINIMUM, [above, low.float32(most)], shape), view.axes)


@lowers("DequantizeLinear")
def dequantize(low: Lowering, node: onnx.NodeProto) -> None:
    """Turn integers into numbers again."""
    view = low.view(node.input[0])
    shape = low.tensor_shape(view.tensor)
    if low.subgraph.tensors[view.tensor].kind is TensorType.FLOAT32:
        scale = _along(low, node, node.input[1])
        tensor = low.emit(Builtin.MUL, [view.tensor, scale], shape)
    elif low.subgraph.tensors[view.tensor].scales is not None:
        tensor = low.emit(Builtin.DEQUANTIZE, [view.tensor], shape)
    else:
        scales = fixed_scales(low, node)
        if scales is None:
            message = "integers with computed scales"
            raise Unsupported(message)
        low.subgraph.tensors[view.tensor].scales = scales
        tensor = low.emit(Builtin.DEQUANTIZE, [view.tensor], shape)
    low.set(node.output[0], tensor, view.axes)


def fixed_scales(low: Lowering, node: onnx.NodeProto) -> Scales | None:
    """Return one constant scale for a whole tensor, or None where it is otherwise."""
    if not low.is_constant(node.input[1]) or low.constant(node.input[1]).size != 1:
        return None
    scale = float(low.constant(node.input[1]).reshape(-1)[0])
    zero_point = 0
    if len(node.input) > 2 and node.input[2]:
        zero_point = low.integers(node.input[2])[0]
    return Scales(scales=(scale,), zero_points=(zero_point,))


def _along(low: Lowering, node: onnx.NodeProto, scale: str) -> int:
    """Return scales that broadcast along the node's axis."""
    view = low.view(node.input[0])
    if int(np.prod(low.shape(scale))) == 1:
        return low.arranged(scale, [-1])
    axis = int_attribute(node, "axis", 1) % len(view.axes)
    sizes: Sequence[int] = [
        low.shape(node.input[0])[axis] if place == axis else 1 for place in view.axes
    ]
    return low.reshape(low.plain(scale), sizes)
