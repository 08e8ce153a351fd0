"""Opens a model that is quantized already (QDQ form): its integers become trainable floats."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from edgefl.training.int8_values import Floats, to_floats
from edgefl.training.onnx.compile.attributes import int_attribute
from edgefl.training.onnx.compile.quantize.plan import BiasPlan, RoundingPlan, WeightPlan

_WEIGHT_TYPES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
_ENDINGS = ("_quantized", ".quantized", "_q")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A QDQ model with float weights.

    Attributes:
        model: The model; rounding between layers is still in it.
        plan: What turns its floats back into the integers that they were.
    """

    model: onnx.ModelProto
    plan: RoundingPlan


def is_quantized(model: onnx.ModelProto) -> bool:
    """Tell whether a model is in QDQ form."""
    return any(node.op_type == "DequantizeLinear" for node in model.graph.node)


def open_quantized(model: onnx.ModelProto) -> OpenedModel:
    """Replace integer weights and biases by the floats that they stand for.

    Args:
        model: Normalized QDQ model; it is not changed.

    Returns:
        A model whose layers read float32 initializers, so that any of them can be trained.
    """
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    graph = opened.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    taken = set(tensors)
    taken.update(
        value for node in graph.node if not _is_held(node, tensors) for value in node.output
    )
    weights: list[WeightPlan] = []
    biases: list[BiasPlan] = []
    floats: list[onnx.TensorProto] = []
    kept: list[onnx.NodeProto] = []
    renamed: dict[str, str] = {}
    for node in graph.node:
        if not _is_held(node, tensors):
            kept.append(node)
            continue
        name = _float_name(node.input[0], taken)
        taken.add(name)
        renamed[node.output[0]] = name
        readers = tuple(n.output[0] for n in graph.node if node.output[0] in n.input)
        held = _read(node, tensors)
        floats.append(numpy_helper.from_array(held.values, name))
        if held.zero_point.dtype == np.int32:
            biases += [BiasPlan(name=name, scale=held.scale, reader=one) for one in readers]
        else:
            weights += [
                WeightPlan(
                    name=name,
                    axis=held.axis,
                    scale=held.scale,
                    zero_point=held.zero_point,
                    reader=one,
                )
                for one in readers
            ]
    _rewrite(graph, kept, renamed, floats)
    plan = RoundingPlan(activations={}, weights=tuple(weights), biases=tuple(biases))
    return OpenedModel(model=opened, plan=plan)


@dataclass(frozen=True, slots=True)
class _Held:
    values: Floats
    scale: Floats
    zero_point: np.ndarray[tuple[int, ...], np.dtype[np.generic]]
    axis: int | None


def _is_held(node: onnx.NodeProto, tensors: dict[str, onnx.TensorProto]) -> bool:
    if node.op_type != "DequantizeLinear" or not all(value in tensors for value in node.input):
        return False
    kind = tensors[node.input[0]].data_type
    return kind in _WEIGHT_TYPES or kind == onnx.TensorProto.INT32


def _read(node: onnx.NodeProto, tensors: dict[str, onnx.TensorProto]) -> _Held:
    integers = numpy_helper.to_array(tensors[node.input[0]])
    scale = numpy_helper.to_array(tensors[node.input[1]]).astype(np.float32)
    has_zero_point = len(node.input) > 2 and node.input[2] != ""
    zero_point = (
        numpy_helper.to_array(tensors[node.input[2]])
        if has_zero_point
        else np.zeros(scale.shape, integers.dtype)
    )
    axis = int_attribute(node, "axis", 1) if scale.size > 1 else None
    if axis is None:
        scale, zero_point = scale.reshape(()), zero_point.reshape(())
    values = to_floats(integers, scale, axis, zero_point=zero_point)
    return _Held(values, scale, zero_point, axis)


def _float_name(integers_name: str, taken: set[str]) -> str:
    """Return the name that the tensor had before it was quantized, if that can be told."""
    name = integers_name
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    while name in taken:
        name += "_float"
    return name


def _rewrite(
    graph: onnx.GraphProto,
    kept: Sequence[onnx.NodeProto],
    renamed: dict[str, str],
    floats: Sequence[onnx.TensorProto],
) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    for node in copies:
        for index, value in enumerate(node.input):
            node.input[index] = renamed.get(value, value)
    del graph.node[:]
    graph.node.extend(copies)
    read = {value for node in copies for value in node.input}
    still = [t for t in graph.initializer if t.name in read]
    tensors = [onnx.TensorProto.FromString(t.SerializeToString()) for t in still]
    del graph.initializer[:]
    graph.initializer.extend([*tensors, *floats])
    values = [value for value in graph.value_info if value.name not in renamed]
    infos = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in values]
    del graph.value_info[:]
    graph.value_info.extend(infos)
