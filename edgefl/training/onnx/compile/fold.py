"""Computes what does not depend on the input or on a weight once, before training."""

from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.training.onnx.compile.graph_edit import GraphEdit

# Quantization stays visible; random numbers are drawn at each run.
_KEPT_OPERATORS: Final = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_LARGEST_FOLDED: Final = 1 << 20


def fold_constants(edit: GraphEdit) -> None:
    """Turn Constant nodes, and all nodes that read nothing but constants, into initializers.

    Weights are no constants here: a node that reads one stays, so that its gradient reaches it. An
    If whose condition is constant gives way to the branch taken.
    """
    outputs = {value.name for value in edit.graph.output}
    kept: list[onnx.NodeProto] = []
    pending = list(reversed(edit.graph.node))
    while pending:
        node = pending.pop()
        branch = _branch_taken(edit, node)
        if branch is not None:
            pending += reversed(_inlined(edit, node, branch))
            edit.rewrites += 1
            continue
        values = None if outputs & set(node.output) else _values(edit, node)
        if values is None:
            kept.append(node)
            continue
        for name, value in zip(node.output, values, strict=True):
            if name:
                edit.add_constant(name, value)
        edit.rewrites += node.op_type != "Constant"
    edit.replace_nodes(kept)


def _values(edit: GraphEdit, node: onnx.NodeProto) -> list[NDArray[np.generic]] | None:
    """Return the values of a node's outputs if they are constant."""
    if node.op_type == "Constant":
        return _constant_value(node)
    foldable = (
        node.domain in {"", "ai.onnx"}
        and node.op_type not in _KEPT_OPERATORS
        and any(node.input)
        and all(edit.is_setting(value) for value in node.input if value)
        and not any(a.HasField("g") for a in node.attribute)
    )
    return _run(edit, node) if foldable else None


def _constant_value(node: onnx.NodeProto) -> list[NDArray[np.generic]] | None:
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return [np.asarray(numpy_helper.to_array(value))]
    if attribute.name in {"value_float", "value_floats"}:
        return [np.array(value, np.float32)]
    if attribute.name in {"value_int", "value_ints"}:
        return [np.array(value, np.int64)]
    return None


def _run(edit: GraphEdit, node: onnx.NodeProto) -> list[NDArray[np.generic]] | None:
    """Run one node alone; None if it cannot be, or if its result is too large to store."""
    names = sorted({value for value in node.input if value})
    feeds = {name: edit.constant(name) for name in names}
    graph = helper.make_graph(
        [node],
        "constant",
        [_declared(name, value) for name, value in feeds.items() if value is not None],
        [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", edit.opset)])
    try:
        found = ReferenceEvaluator(model).run(None, feeds)
    except Exception:  # noqa: BLE001 - whatever cannot be computed beforehand stays in the graph
        return None
    values = [np.asarray(value) for value in found]
    if any(value.size > _LARGEST_FOLDED or value.dtype.kind not in "fiub" for value in values):
        return None
    by_name = iter(values)
    return [next(by_name) if name else np.empty(0, np.float32) for name in node.output]


def _declared(name: str, value: NDArray[np.generic]) -> onnx.ValueInfoProto:
    element_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, element_type, list(value.shape))


def _branch_taken(edit: GraphEdit, node: onnx.NodeProto) -> onnx.GraphProto | None:
    if node.op_type != "If" or not edit.is_setting(node.input[0]):
        return None
    condition = edit.constant(node.input[0])
    if condition is None:
        return None
    wanted = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    branches: dict[str, onnx.GraphProto] = {a.name: a.g for a in node.attribute}
    return branches[wanted]


def _inlined(
    edit: GraphEdit, node: onnx.NodeProto, branch: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """Return a branch's nodes with the If's outputs as their results."""
    for tensor in branch.initializer:
        edit.add_weight(tensor.name, np.asarray(numpy_helper.to_array(tensor)))
    identities = [
        helper.make_node("Identity", [inner.name], [outer], name=f"{outer}/taken")
        for inner, outer in zip(branch.output, node.output, strict=True)
    ]
    return [*branch.node, *identities]
