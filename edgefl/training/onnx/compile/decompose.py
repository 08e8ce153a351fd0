"""Writes operators without a gradient rule of their own, or with needless parts, more simply."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from edgefl.training.onnx.compile.attributes import int_attribute, ints_attribute
from edgefl.training.onnx.compile.graph_edit import GraphEdit

# Exporters write the largest number of 32 or 64 bits for "to the end".
_NO_END = (1 << 31) - 1


def decompose(edit: GraphEdit) -> None:
    """Replace what can be said with simpler operators.

    Args:
        edit: Graph with types and shapes as last inferred.
    """
    nodes: list[onnx.NodeProto] = []
    for node in edit.graph.node:
        rule = _RULES.get(node.op_type) if node.domain in {"", "ai.onnx"} else None
        simpler = None if rule is None else rule(edit, node)
        nodes += [node] if simpler is None else simpler
        edit.rewrites += simpler is not None
    edit.replace_nodes(nodes)


def _cast_like(edit: GraphEdit, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    wanted = edit.element_type(node.input[1])
    if wanted == onnx.TensorProto.UNDEFINED:
        return None
    if wanted == edit.element_type(node.input[0]):
        return [helper.make_node("Identity", [node.input[0]], list(node.output), name=node.name)]
    return [helper.make_node("Cast", [node.input[0]], list(node.output), name=node.name, to=wanted)]


def _cast(edit: GraphEdit, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Leave out a Cast to the type that a value has already."""
    if edit.element_type(node.input[0]) != int_attribute(node, "to", 0):
        return None
    return [helper.make_node("Identity", [node.input[0]], list(node.output), name=node.name)]


def _mean_variance_normalization(
    edit: GraphEdit, node: onnx.NodeProto
) -> list[onnx.NodeProto] | None:
    """(x - mean) / (sqrt(mean square of the same) + 1e-9), as the operator's definition has it."""
    axes = ints_attribute(node, "axes") or [0, 2, 3]
    x, output = node.input[0], node.output[0]
    parts = ("mean", "off", "square", "var", "root", "safe")
    names = {part: edit.new_name(f"{output}/{part}") for part in parts} | {"whole": output}
    least = edit.new_constant(f"{output}/least", np.array(1e-9, np.float32))
    steps = (
        ("ReduceMean", [x], "mean"),
        ("Sub", [x, names["mean"]], "off"),
        ("Mul", [names["off"], names["off"]], "square"),
        ("ReduceMean", [names["square"]], "var"),
        ("Sqrt", [names["var"]], "root"),
        ("Add", [names["root"], least], "safe"),
        ("Div", [names["off"], names["safe"]], "whole"),
    )
    nodes = []
    for operator, inputs, part in steps:
        node = helper.make_node(operator, inputs, [names[part]], name=names[part])
        if operator == "ReduceMean":
            node.attribute.append(helper.make_attribute("axes", axes))
        nodes.append(node)
    return nodes


def _layer_normalization(edit: GraphEdit, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Give it a bias of zeros: onnxruntime 1.16.3 dies of one without, behind two additions."""
    scale = edit.constant(node.input[1])
    if scale is None or any(node.input[2:]):
        return None
    zeros = edit.new_constant(f"{node.output[0]}/zeros", np.zeros(scale.shape, np.float32))
    whole = onnx.NodeProto()
    whole.CopyFrom(node)
    del whole.input[2:]
    whole.input.append(zeros)
    return [whole]


def _slice(edit: GraphEdit, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Leave out the axes that are taken whole, above all the batch, whose name a Slice loses."""
    starts, ends, axes, steps = (_ints(edit, node, index) for index in range(1, 5))
    is_computed = any(value and edit.constant(value) is None for value in node.input[1:])
    if starts is None or ends is None or is_computed:
        return None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    kept = [
        place
        for place in range(len(starts))
        if starts[place] != 0 or ends[place] < _NO_END or steps[place] != 1
    ]
    if len(kept) == len(starts):
        return None
    if not kept:
        return [helper.make_node("Identity", [node.input[0]], list(node.output), name=node.name)]
    parts = [
        edit.new_constant(
            f"{node.output[0]}/{part}", np.array([values[place] for place in kept], np.int64)
        )
        for part, values in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps))
    ]
    return [helper.make_node("Slice", [node.input[0], *parts], list(node.output), name=node.name)]


def _reduce_sum(edit: GraphEdit, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Leave out a sum over no axes, which old runtimes cannot run."""
    if not int_attribute(node, "noop_with_empty_axes", 0):
        return None
    has_axes = len(node.input) > 1 and bool(node.input[1])
    if has_axes and _ints(edit, node, 1) != []:
        return None
    return [helper.make_node("Identity", [node.input[0]], list(node.output), name=node.name)]


def _ints(edit: GraphEdit, node: onnx.NodeProto, index: int) -> list[int] | None:
    values = edit.constant(node.input[index]) if len(node.input) > index else None
    return None if values is None else [int(value) for value in values.reshape(-1)]


_RULES: dict[str, Callable[[GraphEdit, onnx.NodeProto], list[onnx.NodeProto] | None]] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "LayerNormalization": _layer_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "ReduceSum": _reduce_sum,
    "Slice": _slice,
}
