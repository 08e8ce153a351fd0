"""Writes operators of newer operator sets in the words of opset 17, or refuses them by name."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import onnx
from onnx import defs, helper

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import (
    describe,
    float_attribute,
    int_attribute,
    ints_attribute,
    text_attribute,
)
from edgefl.training.onnx.compile.graph import AttributeValue
from edgefl.training.onnx.compile.graph_edit import GraphEdit
from edgefl.training.onnx.compile.sizes import set_resize_scales

Nodes = list[onnx.NodeProto]
Adapter = Callable[[GraphEdit, onnx.NodeProto], Nodes]
_STANDARD: Final = frozenset({"", "ai.onnx"})
_REDUCTIONS: Final = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
)


def lower_opset(edit: GraphEdit, target: int) -> None:
    """Bring every node from a newer operator set to the target.

    Most operators of a newer set only allow more element types; a node stays as it is when all that
    it says could be said before. Whether the result computes the same is for the caller to check.

    Args:
        edit: Graph with shapes inferred; its opset becomes the target.
        target: 17.

    Raises:
        TrainingError: E-MODEL-OPSET with every node that the target has no words for.
    """
    source = edit.opset
    lowered: Nodes = []
    obstacles: list[str] = []
    for node in edit.graph.node:
        try:
            lowered += _lowered(edit, node, source, target)
        except _NotExpressibleError as error:
            obstacles.append(f"{describe(node)} ({error})")
    if obstacles:
        raise TrainingError(
            "E-MODEL-OPSET",
            f"operators that opset {target} can express",
            f"opset {source}: {', '.join(obstacles)}",
            f"export the model with opset {target}",
        )
    edit.replace_nodes(lowered)
    edit.opset = target
    edit.rewrites += 1


class _NotExpressibleError(Exception):
    """One node has no equal in the target."""


def _lowered(edit: GraphEdit, node: onnx.NodeProto, source: int, target: int) -> Nodes:
    if node.domain not in _STANDARD or not defs.has(node.op_type):
        return [node]
    schema = defs.get_schema(node.op_type, source)
    if schema.since_version <= target:
        return [node]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            raise _NotExpressibleError("a subgraph of a newer opset")
    adapter = _ADAPTERS.get(node.op_type)
    if adapter is not None:
        return adapter(edit, node)
    return [_said_before(node, schema, target)]


def _said_before(node: onnx.NodeProto, schema: defs.OpSchema, target: int) -> onnx.NodeProto:
    """Return the node without attributes that state a new default; it must need no other."""
    try:
        older = defs.get_schema(node.op_type, target)
    except defs.SchemaError as error:
        raise _NotExpressibleError("an operator of a newer opset") from error
    if len(node.input) > older.max_input or len(node.output) > older.max_output:
        raise _NotExpressibleError("an input or output of a newer opset")
    unknown = [a for a in node.attribute if a.name not in older.attributes]
    for attribute in unknown:
        default = schema.attributes[attribute.name].default_value
        if helper.get_attribute_value(attribute) != helper.get_attribute_value(default):
            raise _NotExpressibleError(f"its attribute '{attribute.name}'")
        node.attribute.remove(attribute)
    return node


def _without(node: onnx.NodeProto, *names: str) -> None:
    for attribute in [a for a in node.attribute if a.name in names]:
        node.attribute.remove(attribute)


def _constant_ints(
    edit: GraphEdit, node: onnx.NodeProto, index: int, what: str
) -> list[int] | None:
    """Return the whole numbers of an optional constant input."""
    if len(node.input) <= index or not node.input[index]:
        return None
    values = edit.constant(node.input[index])
    if values is None:
        raise _NotExpressibleError(f"computed {what}")
    return [int(value) for value in values.reshape(-1)]


def _rank(edit: GraphEdit, node: onnx.NodeProto) -> int:
    sizes = edit.sizes(node.input[0])
    if sizes is None:
        raise _NotExpressibleError("an input of unknown rank")
    return len(sizes)


def _reduction(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Opset 18 made the axes an input."""
    axes = _constant_ints(edit, node, 1, "axes")
    is_noop = bool(int_attribute(node, "noop_with_empty_axes", 0))
    _without(node, "noop_with_empty_axes")
    if not axes and is_noop:
        return [helper.make_node("Identity", [node.input[0]], list(node.output), name=node.name)]
    del node.input[1:]
    if axes:
        node.attribute.append(helper.make_attribute("axes", axes))
    return [node]


def _split(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Opset 18 made `num_outputs` say that the last part may be smaller."""
    _without(node, "num_outputs")
    if len(node.input) > 1 and node.input[1]:
        return [node]
    sizes, axis = edit.sizes(node.input[0]), int_attribute(node, "axis", 0)
    size = None if sizes is None else sizes[axis]
    if size is None:
        raise _NotExpressibleError("a split of an axis of unknown size")
    parts = len(node.output)
    largest = -(-size // parts)
    lengths = [*[largest] * (parts - 1), size - largest * (parts - 1)]
    del node.input[1:]
    node.input.append(edit.new_constant(f"{node.output[0]}/split", np.array(lengths, np.int64)))
    return [node]


def _pad(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Opset 18 gave Pad axes."""
    if text_attribute(node, "mode", "constant") == "wrap":
        raise _NotExpressibleError("its mode 'wrap'")
    axes = _constant_ints(edit, node, 3, "axes")
    if axes is None:
        return [node]
    pads = _constant_ints(edit, node, 1, "pads")
    if pads is None:
        raise _NotExpressibleError("no pads")
    rank = _rank(edit, node)
    full = np.zeros((2, rank), np.int64)
    full[:, [axis % rank for axis in axes]] = np.reshape(pads, (2, len(axes)))
    node.input[1] = edit.new_constant(f"{node.output[0]}/pads", full.reshape(-1))
    del node.input[3:]
    return [node]


def _resize(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Opset 18 gave Resize axes, antialiasing and a policy for the aspect ratio."""
    if int_attribute(node, "antialias", 0):
        raise _NotExpressibleError("its attribute 'antialias'")
    if text_attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise _NotExpressibleError("its attribute 'keep_aspect_ratio_policy'")
    if text_attribute(node, "coordinate_transformation_mode", "") == "half_pixel_symmetric":
        raise _NotExpressibleError("its mode 'half_pixel_symmetric'")
    axes = ints_attribute(node, "axes")
    _without(node, "antialias", "keep_aspect_ratio_policy", "axes")
    if axes is not None:
        _widen_resize(edit, node, axes)
    return [node]


def _widen_resize(edit: GraphEdit, node: onnx.NodeProto, axes: Sequence[int]) -> None:
    rank = _rank(edit, node)
    places = [axis % rank for axis in axes]
    if len(node.input) > 3 and node.input[3]:
        sizes = _constant_ints(edit, node, 3, "sizes") or []
        wanted: list[int | None] = [None] * rank
        for place, size in zip(places, sizes, strict=True):
            wanted[place] = size
        if not set_resize_scales(edit, node, wanted):
            raise _NotExpressibleError("sizes of axes of unknown size")
        return
    scales = edit.constant(node.input[2])
    if scales is None:
        raise _NotExpressibleError("computed scales")
    full = np.ones(rank, np.float32)
    full[places] = scales
    node.input[2] = edit.new_constant(f"{node.output[0]}/scales", full)


def _cast(_: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Opset 19 added what happens beyond the range of 8-bit floats."""
    _without(node, "saturate", "round_mode")
    return [node]


def _quantize(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Opset 21 lets the element type be stated beside, or instead of, a zero point."""
    if int_attribute(node, "block_size", 0):
        raise _NotExpressibleError("its attribute 'block_size'")
    stated = int_attribute(node, "output_dtype", 0)
    has_zero = len(node.input) > 2 and bool(node.input[2])
    known = {0, onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.FLOAT}
    if stated not in known:
        raise _NotExpressibleError("its attribute 'output_dtype'")
    if stated == onnx.TensorProto.INT8 and not has_zero:
        scale = edit.sizes(node.input[1]) or ()
        zeros = np.zeros([size or 1 for size in scale], np.int8)
        del node.input[2:]
        node.input.append(edit.new_constant(f"{node.output[0]}/zero_point", zeros))
    _without(node, "output_dtype", "block_size", "saturate", "precision")
    return [node]


class _Chain:
    """Collects the nodes that stand for one, the last of them under its output's name."""

    def __init__(self, edit: GraphEdit, node: onnx.NodeProto) -> None:
        self.nodes: Nodes = []
        self._edit = edit
        self._output = node.output[0]

    def add(self, operator: str, *inputs: str, **attributes: AttributeValue) -> str:
        name = self._edit.new_name(f"{self._output}/{operator}")
        node = helper.make_node(operator, list(inputs), [name], name=name)
        node.attribute.extend(
            helper.make_attribute(key, value) for key, value in attributes.items()
        )
        self.nodes.append(node)
        return name

    def number(self, value: float) -> str:
        constant = np.array(value, np.float32)
        return self._edit.new_constant(f"{self._output}/number", constant)

    def ints(self, values: Sequence[int]) -> str:
        return self._edit.new_constant(f"{self._output}/ints", np.array(values, np.int64))

    def ends(self) -> Nodes:
        self.nodes[-1].output[0] = self._output
        return self.nodes


def _gelu(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """0.5 x (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) for the erf.

    Source: ONNX operator Gelu, version 20.
    """
    chain, x = _Chain(edit, node), node.input[0]
    if text_attribute(node, "approximate", "none") == "tanh":
        cubed = chain.add("Mul", chain.add("Mul", x, x), x)
        inner = chain.add("Add", x, chain.add("Mul", cubed, chain.number(0.044715)))
        odd = chain.add("Tanh", chain.add("Mul", inner, chain.number((2 / np.pi) ** 0.5)))
    else:
        odd = chain.add("Erf", chain.add("Mul", x, chain.number(0.5**0.5)))
    half = chain.add("Mul", x, chain.number(0.5))
    chain.add("Mul", half, chain.add("Add", odd, chain.number(1.0)))
    return chain.ends()


def _mish(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    chain, x = _Chain(edit, node), node.input[0]
    chain.add("Mul", x, chain.add("Tanh", chain.add("Softplus", x)))
    return chain.ends()


def _swish(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    chain, x = _Chain(edit, node), node.input[0]
    alpha = float_attribute(node, "alpha", 1.0)
    scaled = x if alpha == 1.0 else chain.add("Mul", x, chain.number(alpha))
    chain.add("Mul", x, chain.add("Sigmoid", scaled))
    return chain.ends()


def _rms_normalization(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Source: ONNX operator RMSNormalization, version 23."""
    chain, x, rank = _Chain(edit, node), node.input[0], _rank(edit, node)
    axes = list(range(int_attribute(node, "axis", -1) % rank, rank))
    square = chain.add("ReduceMean", chain.add("Mul", x, x), axes=axes, keepdims=1)
    epsilon = chain.number(float_attribute(node, "epsilon", 1e-5))
    root = chain.add("Sqrt", chain.add("Add", square, epsilon))
    chain.add("Mul", chain.add("Div", x, root), node.input[1])
    return chain.ends()


def _group_normalization(edit: GraphEdit, node: onnx.NodeProto) -> Nodes:
    """Normalise each group as one instance, then scale and shift each channel.

    In opset 18 the operator scaled groups instead; onnx has withdrawn that form and its checker
    refuses it.
    """
    chain = _Chain(edit, node)
    x, scale, bias = node.input[:3]
    groups, rank = int_attribute(node, "num_groups", 1), _rank(edit, node)
    ones = edit.new_constant(f"{node.output[0]}/ones", np.ones(groups, np.float32))
    zeros = edit.new_constant(f"{node.output[0]}/zeros", np.zeros(groups, np.float32))
    grouped = chain.add("Reshape", x, chain.ints([0, groups, -1]))
    epsilon = float_attribute(node, "epsilon", 1e-5)
    grouped = chain.add("InstanceNormalization", grouped, ones, zeros, epsilon=epsilon)
    normal = chain.add("Reshape", grouped, chain.add("Shape", x))
    spread = chain.ints(list(range(1, rank - 1)))
    scaled = chain.add("Mul", normal, chain.add("Unsqueeze", scale, spread))
    chain.add("Add", scaled, chain.add("Unsqueeze", bias, spread))
    return chain.ends()


_ADAPTERS: Final[dict[str, Adapter]] = {
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "Cast": _cast,
    "Gelu": _gelu,
    "GroupNormalization": _group_normalization,
    "Mish": _mish,
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "Resize": _resize,
    "RMSNormalization": _rms_normalization,
    "Split": _split,
    "Swish": _swish,
}
