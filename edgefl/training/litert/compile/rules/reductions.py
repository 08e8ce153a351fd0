"""Sums, means and extremes over axes."""

import onnx

from edgefl.training.litert.compile.lowering import Lowering
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.format.kinds import Builtin
from edgefl.training.onnx.compile.attributes import int_attribute, ints_attribute

_REDUCTIONS = {
    "ReduceSum": Builtin.SUM,
    "ReduceMean": Builtin.MEAN,
    "ReduceMax": Builtin.REDUCE_MAX,
    "ReduceMin": Builtin.REDUCE_MIN,
    "ReduceProd": Builtin.REDUCE_PROD,
}


@lowers(*_REDUCTIONS)
def reduce(low: Lowering, node: onnx.NodeProto) -> None:
    """Reduce over axes, given as an attribute or a constant input."""
    value, result = node.input[0], node.output[0]
    rank = len(low.shape(value))
    reduced = reduced_axes(low, node)
    view = low.view(value)
    if not reduced:
        low.set(result, view.tensor, view.axes)
        return
    places = sorted(view.axes.index(axis) for axis in reduced)
    shape = low.tensor_shape(view.tensor)
    kept_axes = [axis for axis in view.axes if axis not in reduced]
    kept = [shape[place] for place in range(rank) if place not in places]
    tensor = low.emit(
        _REDUCTIONS[node.op_type],
        [view.tensor, low.int32s(places)],
        kept or [1] * rank,
        low.kind(result),
        # A result without axes is held as one of shape [1].
        keep_dims=not kept,
    )
    if int_attribute(node, "keepdims", 1):
        shape = tuple(1 if place in places else size for place, size in enumerate(shape))
        low.set(result, low.reshape(tensor, shape), view.axes)
    elif not kept:
        low.set(result, low.reshape(tensor, [1]), ())
    else:
        renumbered = [axis - sum(other < axis for other in reduced) for axis in kept_axes]
        low.set(result, tensor, renumbered)


def reduced_axes(low: Lowering, node: onnx.NodeProto) -> list[int]:
    """Return the axes of a reduction, counted from the front."""
    rank = len(low.shape(node.input[0]))
    axes = ints_attribute(node, "axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        axes = low.integers(node.input[1])
    if not axes:
        is_kept = bool(int_attribute(node, "noop_with_empty_axes", 0))
        return [] if is_kept else list(range(rank))
    return sorted(axis % rank for axis in axes)
