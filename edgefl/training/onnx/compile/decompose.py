"""Writes operators without a gradient rule of their own as simpler ones that have one."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from edgefl.training.onnx.compile.attributes import ints_attribute
from edgefl.training.onnx.compile.graph_edit import GraphEdit


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


_RULES: dict[str, Callable[[GraphEdit, onnx.NodeProto], list[onnx.NodeProto] | None]] = {
    "CastLike": _cast_like,
    "LayerNormalization": _layer_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
}
