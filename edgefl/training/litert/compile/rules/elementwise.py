"""Operators that work value by value, with broadcasting."""

import math
from collections.abc import Sequence

import numpy as np
import onnx

from edgefl.training.litert.compile.lowering import Lowering, Unsupported, onnx_kind
from edgefl.training.litert.compile.rules.registry import lowers
from edgefl.training.litert.format.kinds import Builtin
from edgefl.training.onnx.compile.attributes import float_attribute, int_attribute

_ONE_TO_ONE = {
    "Abs": Builtin.ABS,
    "Ceil": Builtin.CEIL,
    "Cos": Builtin.COS,
    "Elu": Builtin.ELU,
    "Exp": Builtin.EXP,
    "Floor": Builtin.FLOOR,
    "HardSwish": Builtin.HARD_SWISH,
    "Log": Builtin.LOG,
    "Neg": Builtin.NEG,
    "Not": Builtin.LOGICAL_NOT,
    "Relu": Builtin.RELU,
    "Round": Builtin.ROUND,
    "Sigmoid": Builtin.LOGISTIC,
    "Sign": Builtin.SIGN,
    "Sin": Builtin.SIN,
    "Sqrt": Builtin.SQRT,
    "Tanh": Builtin.TANH,
}
_PAIRS = {
    "Add": Builtin.ADD,
    "And": Builtin.LOGICAL_AND,
    "Div": Builtin.DIV,
    "Max": Builtin.MAXIMUM,
    "Min": Builtin.MINIMUM,
    "Mod": Builtin.FLOOR_MOD,
    "Mul": Builtin.MUL,
    "Or": Builtin.LOGICAL_OR,
    "Pow": Builtin.POW,
    "Sub": Builtin.SUB,
    "Sum": Builtin.ADD,
}
_COMPARISONS = {
    "Equal": Builtin.EQUAL,
    "Greater": Builtin.GREATER,
    "GreaterOrEqual": Builtin.GREATER_EQUAL,
    "Less": Builtin.LESS,
    "LessOrEqual": Builtin.LESS_EQUAL,
}


# By constant bounds of a Clip, what interpreters can join with the operator before it.
_RECTIFIERS: dict[tuple[float | None, float | None], Builtin] = {
    (0.0, None): Builtin.RELU,
    (0.0, 6.0): Builtin.RELU6,
}


@lowers(*_ONE_TO_ONE)
def one_to_one(low: Lowering, node: onnx.NodeProto) -> None:
    """Write an operator of one operand."""
    view = low.view(node.input[0])
    _keep(low, node, _ONE_TO_ONE[node.op_type], view.tensor)


@lowers("LeakyRelu")
def leaky_relu(low: Lowering, node: onnx.NodeProto) -> None:
    """Write x where it is positive, else a share of it."""
    slope = float_attribute(node, "alpha", 0.01)
    view = low.view(node.input[0])
    tensor = low.emit(Builtin.LEAKY_RELU, [view.tensor], low.tensor_shape(view.tensor), alpha=slope)
    low.set(node.output[0], tensor, view.axes)


def _keep(low: Lowering, node: onnx.NodeProto, code: Builtin, *operands: int) -> None:
    view = low.view(node.input[0])
    tensor = low.emit(code, operands, low.tensor_shape(view.tensor), low.kind(node.output[0]))
    low.set(node.output[0], tensor, view.axes)


@lowers("Identity", "Dropout")
def same(low: Lowering, node: onnx.NodeProto) -> None:
    """Let the output be the input; dropout is off in the graphs that are trained."""
    view = low.view(node.input[0])
    low.set(node.output[0], view.tensor, view.axes)


@lowers(*_PAIRS, *_COMPARISONS)
def pairs(low: Lowering, node: onnx.NodeProto) -> None:
    """Write an operator of two operands, or of several taken two at a time."""
    code = (_PAIRS | _COMPARISONS)[node.op_type]
    if node.op_type == "Mod" and int_attribute(node, "fmod", 0):
        message = "a remainder with the sign of the first operand"
        raise Unsupported(message)
    if len(node.input) == 1:
        same(low, node)
        return
    shape = low.shape(node.output[0])
    axes = low.common_axes(node.input, len(shape))
    operands = [low.broadcast(value, axes) for value in node.input]
    kind = low.kind(node.output[0])
    total, total_shape = operands[0], low.tensor_shape(operands[0])
    for operand in operands[1:]:
        total_shape = np.broadcast_shapes(total_shape, low.tensor_shape(operand))
        total = low.emit(code, [total, operand], total_shape, kind)
    low.set(node.output[0], low.reshape(total, _in_order(shape, axes)), axes)


@lowers("Where")
def where(low: Lowering, node: onnx.NodeProto) -> None:
    """Choose between two values."""
    shape = low.shape(node.output[0])
    axes = low.common_axes(node.input[1:], len(shape))
    operands = [low.broadcast(value, axes) for value in node.input]
    tensor = low.emit(Builtin.SELECT_V2, operands, _in_order(shape, axes), low.kind(node.output[0]))
    low.set(node.output[0], tensor, axes)


@lowers("Clip")
def clip(low: Lowering, node: onnx.NodeProto) -> None:
    """Bound from below and above; bounds that are left out do not bind."""
    view = low.view(node.input[0])
    tensor = view.tensor
    code = _RECTIFIERS.get(_bounds(low, node))
    if code is not None:
        _keep(low, node, code, tensor)
        return
    for place, bound_code in ((1, Builtin.MAXIMUM), (2, Builtin.MINIMUM)):
        if len(node.input) > place and node.input[place]:
            bound = low.arranged(node.input[place], [-1])
            shape, kind = low.tensor_shape(tensor), low.kind(node.input[0])
            tensor = low.emit(bound_code, [tensor, bound], shape, kind)
    low.set(node.output[0], tensor, view.axes)


def _bounds(low: Lowering, node: onnx.NodeProto) -> tuple[float | None, float | None]:
    """Return constant bounds; None for those that are left out or computed."""
    given = [*node.input[1:], "", ""][:2]
    least, most = (
        float(low.constant(name).reshape(-1)[0]) if name and low.is_constant(name) else None
        for name in given
    )
    is_bounded = bool(given[1])
    return least, math.nan if is_bounded and most is None else most


@lowers("Cast")
def cast(low: Lowering, node: onnx.NodeProto) -> None:
    """Change the type."""
    view = low.view(node.input[0])
    source = low.kind(node.input[0])
    target = onnx_kind(int_attribute(node, "to", 0))
    if source is target:
        same(low, node)
        return
    tensor = low.emit(
        Builtin.CAST,
        [view.tensor],
        low.tensor_shape(view.tensor),
        target,
        from_type=int(source),
        to_type=int(target),
    )
    low.set(node.output[0], tensor, view.axes)


@lowers("Softmax", "LogSoftmax")
def softmax(low: Lowering, node: onnx.NodeProto) -> None:
    """Write a softmax; the operator knows only the last axis."""
    low.require_float32(node.input[0])
    rank = len(low.shape(node.input[0]))
    axis = int_attribute(node, "axis", -1) % rank
    axes = [*(other for other in range(rank) if other != axis), axis]
    operand = low.arranged(node.input[0], axes)
    shape = low.tensor_shape(operand)
    if node.op_type == "Softmax":
        tensor = low.emit(Builtin.SOFTMAX, [operand], shape, beta=1.0)
    else:
        tensor = low.emit(Builtin.LOG_SOFTMAX, [operand], shape)
    low.set(node.output[0], tensor, axes)


@lowers("OneHot")
def one_hot(low: Lowering, node: onnx.NodeProto) -> None:
    """Write rows that are on at one class."""
    rank = len(low.shape(node.output[0]))
    axis = int_attribute(node, "axis", -1) % rank
    off, on = low.constant(node.input[2]).reshape(-1)
    classes = low.constant_tensor(np.array(low.integers(node.input[1])[0], np.int32))
    kind = low.kind(node.output[0])
    tensor = low.emit(
        Builtin.ONE_HOT,
        [
            low.plain(node.input[0]),
            classes,
            low.constant_tensor(np.array(on)),
            low.constant_tensor(np.array(off)),
        ],
        low.shape(node.output[0]),
        kind,
        axis=-1 if axis == rank - 1 else axis,
    )
    low.set(node.output[0], tensor)


def _in_order(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [shape[axis] for axis in axes] or [1]
