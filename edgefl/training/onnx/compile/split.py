"""Splits off the frozen front part of a model, whose results can be computed once per round.

What comes before the first trained tensor gives the same values in every epoch. As a graph of its
own it also stays as onnxruntime likes it best: an int8 model keeps its fused integer kernels, which
a backward pass in the same graph would break up.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from edgefl.training.kinds import ElementType
from edgefl.training.manifest import TensorSpec
from edgefl.training.onnx.compile.graph import Shape, values_read_by

_HEAVY = frozenset(
    {"Conv", "ConvInteger", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul"}
    | {"MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN"}
)
_FEATURE_TYPES = frozenset({"float32", "int8", "uint8", "int32", "int64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPart:
    """A frozen front part.

    Attributes:
        nodes: Its operators.
        features: What the rest of the model reads of it; sizes without the batch axis.
    """

    nodes: tuple[onnx.NodeProto, ...]
    features: tuple[TensorSpec, ...]


def find_front(
    nodes: Sequence[onnx.NodeProto],
    path: Collection[str],
    input_name: str,
    shapes: Mapping[str, Shape],
    types: Mapping[str, int],
) -> FrontPart | None:
    """Find the front part that is worth a graph of its own.

    Args:
        nodes: Forward nodes in execution order.
        path: Values that depend on trained tensors.
        input_name: The model's input.
        shapes: Shape of each value; None stands for the batch axis.
        types: `TensorProto.DataType` of each value.

    Returns:
        The front part; None if it holds no heavy operator, or the rest reads the input as well.
    """
    frozen = _frozen_producers(nodes, path, input_name)
    crossing = _crossing(nodes, path, frozen, input_name, shapes, types)
    if crossing is None or not crossing:
        return None
    front = ancestors(nodes, *crossing)
    if not any(node.op_type in _HEAVY for node in front if node.output[0] in frozen):
        return None
    features = tuple(
        TensorSpec(
            name=name,
            shape=tuple(size or 0 for size in shapes[name][1:]),
            element_type=ElementType(_type_name(types[name])),
        )
        for name in crossing
    )
    return FrontPart(nodes=tuple(front), features=features)


def ancestors(
    nodes: Sequence[onnx.NodeProto], *values: str, given: Collection[str] = ()
) -> list[onnx.NodeProto]:
    """Return the nodes that values depend on, in execution order.

    Args:
        nodes: In execution order.
        *values: What is computed.
        given: Values that are fed, so that what makes them is not needed.
    """
    needed = set(values) - set(given)
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if any(output in needed for output in node.output):
            kept.append(node)
            needed.update(values_read_by(node) - set(given))
    return kept[::-1]


def _frozen_producers(
    nodes: Sequence[onnx.NodeProto], path: Collection[str], input_name: str
) -> dict[str, onnx.NodeProto]:
    """Return the producer of each value that depends on the input but on nothing trained."""
    frozen: dict[str, onnx.NodeProto] = {}
    for node in nodes:
        read = values_read_by(node)
        if any(value in frozen or value == input_name for value in read):
            frozen |= {value: node for value in node.output if value and value not in path}
    return frozen


def _crossing(
    nodes: Sequence[onnx.NodeProto],
    path: Collection[str],
    frozen: Mapping[str, onnx.NodeProto],
    input_name: str,
    shapes: Mapping[str, Shape],
    types: Mapping[str, int],
) -> list[str] | None:
    """Return the frozen values that the rest reads, in the order of their producers.

    A value that cannot be stored row by row, or that is int8 before its DequantizeLinear, is made
    by the rest itself from what lies before it. None: the rest reads the model's input.
    """
    pending = [
        value
        for node in nodes
        if any(output in path for output in node.output)
        for value in sorted(values_read_by(node))
    ]
    found: set[str] = set()
    seen: set[str] = set()
    while pending:
        value = pending.pop()
        if value == input_name:
            return None
        if value in seen or value not in frozen:
            continue
        seen.add(value)
        node = frozen[value]
        if node.op_type != "DequantizeLinear" and _is_storable(value, shapes, types):
            found.add(value)
        else:
            pending += sorted(values_read_by(node))
    return [value for value in frozen if value in found]


def _is_storable(value: str, shapes: Mapping[str, Shape], types: Mapping[str, int]) -> bool:
    shape = shapes.get(value)
    if not shape or shape[0] is not None or not all(shape[1:]):
        return False
    return _type_name(types.get(value, 0)) in _FEATURE_TYPES


def _type_name(data_type: int) -> str:
    if data_type == onnx.TensorProto.UNDEFINED:
        return "undefined"
    return str(helper.tensor_dtype_to_np_dtype(data_type).name)
