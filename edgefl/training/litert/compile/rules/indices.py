"""Reading and writing by index: embeddings, scattered gradients, places of maxima."""

import numpy as np
import onnx

from edgefl.training.litert.compile.lowering import Lowering, Unsupported
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.format.kinds import Builtin, TensorType
from edgefl.training.onnx.compile.attributes import int_attribute, text_attribute


@lowers("Gather")
def gather(low: Lowering, node: onnx.NodeProto) -> None:
    """Take whole slices by index."""
    data, indices = node.input
    shape = low.shape(data)
    axis = int_attribute(node, "axis", 0) % len(shape)
    result = node.output[0]
    if low.is_constant(indices):
        # Negative numbers count from the end in ONNX, and mean nothing in TFLite.
        counted = np.asarray(low.constant(indices), np.int64) % shape[axis]
        places = low.constant_tensor(counted.astype(np.int32).reshape(counted.shape or (1,)))
    else:
        places = as_int32(low, low.plain(indices))
    tensor = low.emit(
        Builtin.GATHER,
        [low.plain(data), places],
        low.shape(result) if low.shape(indices) else _with_one(low.shape(result), axis),
        low.kind(result),
        axis=axis,
    )
    low.set(result, low.reshape(tensor, low.shape(result) or (1,)))


def _with_one(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], 1, *shape[axis:])


@lowers("ArgMax")
def arg_max(low: Lowering, node: onnx.NodeProto) -> None:
    """Say where the first maximum along an axis lies."""
    if int_attribute(node, "select_last_index", 0):
        message = "the last maximum"
        raise Unsupported(message)
    shape = low.shape(node.input[0])
    axis = int_attribute(node, "axis", 0) % len(shape)
    operands = [low.plain(node.input[0]), low.constant_tensor(np.array(axis, np.int32))]
    kept = [size for place, size in enumerate(shape) if place != axis]
    tensor = low.emit(
        Builtin.ARG_MAX, operands, kept, TensorType.INT64, output_type=int(TensorType.INT64)
    )
    low.set(node.output[0], low.reshape(tensor, low.shape(node.output[0]) or (1,)))


@lowers("ScatterElements")
def scatter_elements(low: Lowering, node: onnx.NodeProto) -> None:
    """Add values at their places to a flat tensor."""
    data, places, updates = node.input
    _require_sum(node)
    if len(low.shape(data)) != 1:
        message = "places within more than one axis"
        raise Unsupported(message)
    _set_scattered(low, node.output[0], updates, places)
    _add_base(low, node.output[0], data)


@lowers("ScatterND")
def scatter_nd(low: Lowering, node: onnx.NodeProto) -> None:
    """Add slices at their places."""
    data, places, updates = node.input
    _require_sum(node)
    shape = low.shape(data)
    tensor = low.emit(
        Builtin.SCATTER_ND,
        [as_int32(low, low.plain(places)), low.plain(updates), low.int32s(shape)],
        shape,
        low.kind(updates),
    )
    low.set(node.output[0], tensor)
    _add_base(low, node.output[0], data)


def as_int32(low: Lowering, tensor: int) -> int:
    """Return whole numbers as TFLite's operators take them."""
    kind = low.subgraph.tensors[tensor].kind
    if kind is TensorType.INT32:
        return tensor
    return low.emit(
        Builtin.CAST,
        [tensor],
        low.tensor_shape(tensor),
        TensorType.INT32,
        from_type=int(kind),
        to_type=int(TensorType.INT32),
    )


def _require_sum(node: onnx.NodeProto) -> None:
    if text_attribute(node, "reduction", "none") != "add":
        message = "values that replace others instead of being added"
        raise Unsupported(message)


def _set_scattered(low: Lowering, result: str, updates: str, places: str) -> None:
    """Add up values whose places count over the whole result."""
    view = low.view(places)
    values = low.arranged(updates, view.axes)
    count = int(np.prod(low.shape(places)))
    size = int(np.prod(low.shape(result)))
    rows = low.reshape(as_int32(low, view.tensor), [count, 1])
    tensor = low.emit(
        Builtin.SCATTER_ND, [rows, low.reshape(values, [count]), low.int32s([size])], [size]
    )
    low.set(result, low.reshape(tensor, low.shape(result)))


def _add_base(low: Lowering, result: str, base: str) -> None:
    if low.is_constant(base) and not np.any(low.constant(base)):
        return
    scattered = low.view(result).tensor
    shape = low.tensor_shape(scattered)
    tensor = low.emit(Builtin.ADD, [scattered, low.plain(base)], shape, low.kind(result))
    low.set(result, tensor)
