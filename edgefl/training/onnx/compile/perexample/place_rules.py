"""Place rules of the operators that keep examples apart."""

from typing import Final

from edgefl.training.onnx.compile.attributes import int_attribute, ints_attribute
from edgefl.training.onnx.compile.perexample.places import Place, Visit, place_of, reshaped

_VALUE_WISE: Final = (
    *("Abs", "Add", "And", "Atan", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh"),
    *(
        "DequantizeLinear",
        "Div",
        "Dropout",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Floor",
        "Greater",
        "GreaterOrEqual",
    ),
    *("HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less"),
    *("LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu"),
    *("Pow", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin"),
    "Sinh",
    *("Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu", "Where"),
    "Xor",
)
_FIRST_AXIS: Final = (
    *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace"),
    *("GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "LpPool", "MaxPool"),
    *("QLinearConv", "SpaceToDepth"),
)
_REDUCTIONS: Final = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


@place_of(*_VALUE_WISE, "Expand")
def value_wise(visit: Visit) -> Place:
    """Keep the axis, counted from the last as broadcasting does; all operands must agree."""
    rank = len(visit.shape(visit.node.output[0]))
    moved = {
        place.at(place.axis + rank - len(visit.shape(value)))
        for value, place in zip(visit.node.input, visit.inputs, strict=True)
        if place is not None
    }
    if len(moved) > 1:
        raise visit.mixed()
    return moved.pop()


@place_of(*_FIRST_AXIS)
def first_axis(visit: Visit) -> Place:
    """Examples come first, and only the first input depends on them."""
    place = visit.only(0)
    if int_attribute(visit.node, "training_mode", 0):
        raise visit.mixing()
    if place.axis != 0:
        raise visit.mixed()
    return place


@place_of("Gemm")
def gemm(visit: Visit) -> Place:
    """Examples are rows of the first operand."""
    place = visit.only(0)
    if place.axis != int_attribute(visit.node, "transA", 0):
        raise visit.mixing()
    return place.at(0)


@place_of("MatMul")
def matmul(visit: Visit) -> Place:
    """Examples are on any axis over which the product does not sum."""
    from_last = set()
    for index, place in enumerate(visit.inputs):
        if place is None:
            continue
        rank = len(visit.shape(visit.node.input[index]))
        if rank < 2:
            raise visit.mixed()
        is_paired = None not in visit.inputs and place.axis >= rank - 2
        if is_paired or place.axis == rank - 1 - index:
            raise visit.mixing()
        from_last.add(place.at(place.axis - rank))
    if len(from_last) > 1:
        raise visit.mixed()
    place = from_last.pop()
    return place.at(place.axis + len(visit.shape(visit.node.output[0])))


@place_of("Softmax", "LogSoftmax", "LpNormalization", "CumSum")
def along_one_axis(visit: Visit) -> Place:
    """The axis must be another one."""
    place = visit.only(0)
    rank = len(visit.shape(visit.node.input[0]))
    fixed = visit.constants(1) if visit.node.op_type == "CumSum" else None
    if visit.node.op_type == "CumSum" and fixed is None:
        raise visit.mixed()
    axis = fixed[0] if fixed else int_attribute(visit.node, "axis", -1)
    if axis % rank == place.axis:
        raise visit.mixing()
    return place


@place_of("LayerNormalization")
def layer_normalization(visit: Visit) -> Place:
    """All axes from the given one on are normalised together."""
    place = visit.only(0)
    rank = len(visit.shape(visit.node.input[0]))
    if place.axis >= int_attribute(visit.node, "axis", -1) % rank:
        raise visit.mixing()
    return place


@place_of(*_REDUCTIONS)
def reduction(visit: Visit) -> Place:
    """The batch axis must stay, and moves up when axes before it are dropped."""
    place = visit.only(0)
    rank = len(visit.shape(visit.node.input[0]))
    axes = visit.constants(1) or ints_attribute(visit.node, "axes")
    if not axes and len(visit.node.input) > 1:
        # Computed axes, or none, which may stand for all or for no axis.
        raise visit.mixed()
    return _after_removal(visit, place, rank, axes)


@place_of("ArgMax", "ArgMin")
def arg_reduction(visit: Visit) -> Place:
    """As a reduction over one axis."""
    place = visit.only(0)
    rank = len(visit.shape(visit.node.input[0]))
    return _after_removal(visit, place, rank, [int_attribute(visit.node, "axis", 0)])


def _after_removal(visit: Visit, place: Place, rank: int, axes: list[int] | None) -> Place:
    reduced = {axis % rank for axis in axes or range(rank)}
    if place.axis in reduced:
        raise visit.mixing()
    if int_attribute(visit.node, "keepdims", 1):
        return place
    return place.at(place.axis - sum(axis < place.axis for axis in reduced))


@place_of("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(visit: Visit) -> Place:
    """Follow the examples through the row-major order."""
    place = visit.only(0)
    before, after = visit.shape(visit.node.input[0]), visit.shape(visit.node.output[0])
    return reshaped(visit, before, place, after)


@place_of("Transpose")
def transpose(visit: Visit) -> Place:
    """Move the axis."""
    place = visit.only(0)
    rank = len(visit.shape(visit.node.input[0]))
    order = ints_attribute(visit.node, "perm") or list(reversed(range(rank)))
    if place.axis not in order:
        raise visit.mixed()
    return place.at(order.index(place.axis))


@place_of("Concat", "Split", "GatherElements")
def along_another_axis(visit: Visit) -> Place:
    """Examples stay where they are when values along another axis are joined or taken apart."""
    places = set(visit.inputs[:1] if visit.node.op_type == "Split" else visit.inputs)
    place = places.pop()
    rank = len(visit.shape(visit.node.input[0]))
    axis = int_attribute(visit.node, "axis", 0) % rank
    if places or place is None or axis == place.axis:
        raise visit.mixed()
    return place


@place_of("Slice", "Pad", "Tile")
def cut_or_grown(visit: Visit) -> Place:
    """The batch axis must be left as it is."""
    place = visit.only(0)
    rank = len(visit.shape(visit.node.input[0]))
    changed = {"Slice": _sliced_axes, "Pad": _padded_axes, "Tile": _tiled_axes}
    axes = changed[visit.node.op_type](visit)
    if axes is None or place.axis in {axis % rank for axis in axes}:
        raise visit.mixed()
    return place


def _sliced_axes(visit: Visit) -> list[int] | None:
    starts = visit.constants(1)
    if len(visit.node.input) > 3 and visit.node.input[3]:
        return visit.constants(3)
    return None if starts is None else list(range(len(starts)))


def _padded_axes(visit: Visit) -> list[int] | None:
    pads = visit.constants(1)
    if pads is None:
        return None
    rank = len(pads) // 2
    return [axis for axis in range(rank) if pads[axis] or pads[axis + rank]]


def _tiled_axes(visit: Visit) -> list[int] | None:
    repeats = visit.constants(1)
    return None if repeats is None else [axis for axis, times in enumerate(repeats) if times != 1]


@place_of("Resize")
def resize(visit: Visit) -> Place:
    """Fixed scales that leave the batch axis as it is."""
    place = visit.only(0)
    scales = visit.graph.constant_value(visit.node.input[2]) if len(visit.node.input) > 2 else None
    if scales is None or scales.size <= place.axis or scales[place.axis] != 1:
        raise visit.mixed()
    return place


@place_of("Gather")
def gather(visit: Visit) -> Place:
    """Either the indices are the examples' own, or each example is read at the same indices."""
    data, indices = visit.inputs[:2]
    rank = len(visit.shape(visit.node.input[0]))
    axis = int_attribute(visit.node, "axis", 0) % rank
    if data is None and indices is not None:
        return indices.at(axis + indices.axis)
    if data is None or indices is not None or data.axis == axis:
        raise visit.mixed()
    index_rank = len(visit.shape(visit.node.input[1]))
    return data.at(data.axis + index_rank - 1) if data.axis > axis else data


@place_of("OneHot")
def one_hot(visit: Visit) -> Place:
    """A new axis of classes."""
    place = visit.only(0)
    rank = len(visit.shape(visit.node.input[0])) + 1
    axis = int_attribute(visit.node, "axis", -1) % rank
    return place.at(place.axis + (axis <= place.axis))


@place_of("LSTM", "GRU", "RNN")
def recurrent(visit: Visit) -> Place:
    """The batch is the second axis of the sequence [T, N, I] and of states [directions, N, H]."""
    own = {place for index, place in enumerate(visit.inputs) if index in {0, 5, 6}}
    others = [place for index, place in enumerate(visit.inputs) if index not in {0, 5, 6}]
    if any(others) or visit.inputs[0] is None or own - {None} != {Place(axis=1)}:
        raise visit.mixed()
    if int_attribute(visit.node, "layout", 0):
        raise visit.mixed()
    return Place(axis=2)
