"""Turns an ONNX graph into one of fixed shapes: batch set, constants folded, dead parts out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.errors import TrainingError
from edgefl.training.litert.compile.decompose import decompose
from edgefl.training.onnx.compile.attributes import describe, int_attribute
from edgefl.training.onnx.compile.graph import values_read_by

Shape = tuple[int, ...]
# Each pass may make constants of what the pass before it gave a shape.
_MOST_PASSES = 8
# What depends on shapes alone, even where the values are not known.
_SHAPE_ALONE = frozenset({"Shape", "Size"})
_NEVER_FOLDED = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "Multinomial"})
# A constant that grows beyond this is better computed than stored.
_LARGEST_FOLDED_VALUES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIntegers:
    """Integers behind a float constant: values = (integers - zero points) * scales.

    Attributes:
        integers: int8, uint8 or int32, of the constant's shape.
        scales: float32 [1], or one for each index of `axis`.
        zero_points: int64, as many.
        axis: Axis of the constant along which the scales change.
    """

    integers: NDArray[np.generic]
    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    axis: int

    def values(self) -> NDArray[np.float32]:
        """Return the constant: float32."""
        sizes = [1] * self.integers.ndim
        if self.scales.size > 1:
            sizes[self.axis] = -1
        shifted = self.integers.astype(np.int64) - self.zero_points.reshape(sizes)
        return (shifted.astype(np.float32) * self.scales.reshape(sizes)).astype(np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticGraph:
    """A graph whose shapes are all known.

    Attributes:
        nodes: In execution order; only those that the outputs need.
        constants: Values by name.
        inputs: Names, in the model's order.
        outputs: Names, in the model's order.
        integers: By name of a constant that was made from integers, how.
        shapes: Shape of each value that is not a constant.
        types: `TensorProto.DataType` of each value that is not a constant.
    """

    nodes: Sequence[onnx.NodeProto]
    constants: Mapping[str, NDArray[np.generic]]
    integers: Mapping[str, "StoredIntegers"]
    inputs: Sequence[str]
    outputs: Sequence[str]
    shapes: Mapping[str, Shape]
    types: Mapping[str, int]


def make_static(model: onnx.ModelProto, *, batch_rows: int) -> StaticGraph:
    """Fix the batch and simplify.

    Args:
        model: Standard operators; every size but the batch known.
        batch_rows: Size that takes the place of every size that only has a name.

    Returns:
        The graph.

    Raises:
        TrainingError: E-LITERT-SHAPE where a size stays unknown.
    """
    graph = decompose(onnx.shape_inference.infer_shapes(model).graph)
    constants = {
        tensor.name: np.asarray(numpy_helper.to_array(tensor)) for tensor in graph.initializer
    }
    nodes = list(graph.node)
    inputs = [_fixed(value, batch_rows) for value in graph.input if value.name not in constants]
    outputs = [value.name for value in graph.output]
    opset = [item for item in model.opset_import if item.domain in {"", "ai.onnx"}]
    integers = _stored_integers(nodes, constants)
    constants |= {name: stored.values() for name, stored in integers.items()}
    nodes = [node for node in nodes if node.output[0] not in integers]
    shapes: dict[str, Shape] = {}
    types: dict[str, int] = {}
    for _ in range(_MOST_PASSES):
        nodes = _needed(nodes, outputs)
        shapes, types = _infer(nodes, inputs, outputs, constants, graph.output, opset)
        folded = _fold(nodes, constants, shapes, opset)
        if len(folded) == len(nodes):
            break
        nodes = folded
    _require_shapes(nodes, shapes)
    return StaticGraph(
        nodes=nodes,
        constants=constants,
        integers=integers,
        inputs=[value.name for value in inputs],
        outputs=outputs,
        shapes=shapes,
        types=types,
    )


def _fixed(value: onnx.ValueInfoProto, batch_rows: int) -> onnx.ValueInfoProto:
    tensor = value.type.tensor_type
    sizes = [dim.dim_value if dim.HasField("dim_value") else batch_rows for dim in tensor.shape.dim]
    return helper.make_tensor_value_info(value.name, tensor.elem_type, sizes)


def _stored_integers(
    nodes: Sequence[onnx.NodeProto], constants: Mapping[str, NDArray[np.generic]]
) -> dict[str, StoredIntegers]:
    """Return what DequantizeLinear makes of constants, by the name of its output."""
    found: dict[str, StoredIntegers] = {}
    for node in nodes:
        is_constant = all(not name or name in constants for name in node.input)
        if node.op_type != "DequantizeLinear" or not is_constant:
            continue
        integers = constants[node.input[0]]
        scales = constants[node.input[1]].astype(np.float32).reshape(-1)
        zero_points = np.zeros(scales.size, np.int64)
        if len(node.input) > 2 and node.input[2]:
            zero_points = constants[node.input[2]].astype(np.int64).reshape(-1)
        found[node.output[0]] = StoredIntegers(
            integers=integers,
            scales=scales,
            zero_points=zero_points,
            axis=int_attribute(node, "axis", 1) % max(integers.ndim, 1),
        )
    return found


def _needed(nodes: list[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    needed = set(outputs)
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if any(output in needed for output in node.output):
            kept.append(node)
            needed.update(values_read_by(node))
    return kept[::-1]


def _infer(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    constants: Mapping[str, NDArray[np.generic]],
    declared: Sequence[onnx.ValueInfoProto],
    opset: Sequence[onnx.OperatorSetIdProto],
) -> tuple[dict[str, Shape], dict[str, int]]:
    element_types = {value.name: value.type.tensor_type.elem_type for value in declared}
    read = {value for node in nodes for value in values_read_by(node)}
    graph = helper.make_graph(
        nodes,
        "static",
        inputs,
        [helper.make_tensor_value_info(name, element_types[name], None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in read],
    )
    inferred = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opset), data_prop=True
    ).graph
    shapes: dict[str, Shape] = {}
    types: dict[str, int] = {}
    for value in [*inferred.input, *inferred.value_info, *inferred.output]:
        tensor = value.type.tensor_type
        types[value.name] = tensor.elem_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    return shapes, types


def _fold(
    nodes: list[onnx.NodeProto],
    constants: dict[str, NDArray[np.generic]],
    shapes: Mapping[str, Shape],
    opset: Sequence[onnx.OperatorSetIdProto],
) -> list[onnx.NodeProto]:
    """Compute what needs no input; its values join the constants."""
    left: list[onnx.NodeProto] = []
    for node in nodes:
        values = _constant_outputs(node, constants, shapes, opset)
        if values is None:
            left.append(node)
        else:
            constants.update(zip(node.output, values, strict=False))
    return left


def _constant_outputs(
    node: onnx.NodeProto,
    constants: Mapping[str, NDArray[np.generic]],
    shapes: Mapping[str, Shape],
    opset: Sequence[onnx.OperatorSetIdProto],
) -> list[NDArray[np.generic]] | None:
    if node.op_type in _SHAPE_ALONE and node.input[0] in shapes:
        # The values do not matter, only how many there are.
        feed: dict[str, NDArray[np.generic]] = {
            node.input[0]: np.broadcast_to(np.float32(0), shapes[node.input[0]])
        }
    elif node.op_type in _NEVER_FOLDED or any(i and i not in constants for i in node.input):
        return None
    else:
        feed = {name: constants[name] for name in node.input if name}
    sizes = [int(np.prod(shapes[name])) for name in node.output if name in shapes]
    if max(sizes, default=0) > _LARGEST_FOLDED_VALUES:
        return None
    typed = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), list(value.shape)
        )
        for name, value in feed.items()
    ]
    # Names of outputs that are left out are empty; a graph cannot list those.
    results = [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name]
    graph = helper.make_graph([node], "constant", typed, results)
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=opset))
    found = dict(zip([value.name for value in results], evaluator.run(None, feed), strict=True))
    return [np.asarray(found[name]) if name else np.zeros(0) for name in node.output]


def _require_shapes(nodes: Sequence[onnx.NodeProto], shapes: Mapping[str, Shape]) -> None:
    unknown = [
        f"'{name}' of {describe(node)}"
        for node in nodes
        for name in node.output
        if name and name not in shapes
    ]
    if unknown:
        raise TrainingError(
            "E-LITERT-SHAPE",
            "sizes that are known once the batch is fixed",
            f"none for {', '.join(unknown[:10])}",
            "export the model with fixed sizes; only the batch axis may vary",
        )
