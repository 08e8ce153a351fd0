"""Opens the batch axis, also where the exporter wrote the size of its example batch into a node."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from edgefl.training.onnx.compile.graph_edit import GraphEdit, Sizes
from edgefl.training.onnx.compile.sizes import set_reshape_target
from edgefl.training.onnx.names import BATCH_AXIS

# Operators whose optional input holds the first state, with its index; zeros are the default.
_INITIAL_STATES = {"GRU": (5,), "RNN": (5,), "LSTM": (5, 6)}


def open_batch_axis(graph: onnx.GraphProto) -> int | None:
    """Make the batch axis of inputs and outputs symbolic and forget all inferred shapes.

    Returns:
        The batch size that the model was exported with, or None if it was open already.
    """
    shape = graph.input[0].type.tensor_type.shape
    baked = shape.dim[0].dim_value if shape.dim and shape.dim[0].dim_value else None
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if dims:
            dims[0].Clear()
            dims[0].dim_param = BATCH_AXIS
    for value in graph.output:
        # What the exporter claims of outputs is sometimes wrong; all of it is inferred anew.
        value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    return baked


def drop_zero_states(edit: GraphEdit) -> None:
    """Leave out first states that are all zero: they are the default for any batch size."""
    producers = {output: node for node in edit.graph.node for output in node.output}
    for node in edit.graph.node:
        for index in _INITIAL_STATES.get(node.op_type, ()):
            if len(node.input) > index and _is_zero(edit, producers, node.input[index]):
                node.input[index] = ""
                edit.rewrites += 1


def _is_zero(edit: GraphEdit, producers: dict[str, onnx.NodeProto], value: str) -> bool:
    constant = edit.constant(value)
    if constant is not None:
        return edit.is_setting(value) and not constant.any()
    node = producers.get(value)
    if node is None:
        return False
    if node.op_type == "ConstantOfShape":
        filled = [helper.get_attribute_value(a) for a in node.attribute if a.name == "value"]
        return not any(onnx.numpy_helper.to_array(tensor).any() for tensor in filled)
    copies = {"Expand", "Tile", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Slice", "Transpose"}
    return node.op_type in copies and _is_zero(edit, producers, node.input[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What the exporter's example batch made of the model.

    Attributes:
        batch: Its size.
        sizes: Sizes of each value with it.
    """

    batch: int
    sizes: Mapping[str, Sizes]


def free_baked_shapes(edit: GraphEdit, exported: Exported) -> bool:
    """Free the first Reshape or Expand, in order, that states the exported batch size.

    Args:
        edit: Graph with shapes as last inferred.
        exported: Before the batch axis was opened.

    Returns:
        Whether a node was changed; shapes must then be inferred again before the next is freed.
    """
    for node in edit.graph.node:
        if node.op_type == "Reshape" and _free_reshape(edit, node, exported):
            return True
        if node.op_type == "Expand" and _free_expand(edit, node, exported.batch):
            return True
    return False


def _free_reshape(edit: GraphEdit, node: onnx.NodeProto, exported: Exported) -> bool:
    stated, before = edit.constant(node.input[1]), edit.sizes(node.input[0])
    then = exported.sizes.get(node.input[0])
    if stated is None or before is None or then is None or before.count(None) != 1 or None in then:
        return False
    target = [int(size) for size in stated]
    freed = unbaked_shape(target, before, [size or 0 for size in then], exported.batch)
    if freed is None or freed == target:
        return False
    set_reshape_target(edit, node, np.array(freed, np.int64))
    edit.rewrites += 1
    return True


def unbaked_shape(
    target: Sequence[int], before: Sizes, then: Sequence[int], batch: int
) -> list[int] | None:
    """Return a Reshape's target for any batch size.

    A Reshape keeps the order of all values. So the axis that holds the batch afterwards has as many
    values before it as the one that held it; it is the first of them that the batch divides.

    Args:
        target: As exported; may hold 0 (copy) and -1 (the rest).
        before: Sizes of its input; None is the axis that holds the batch.
        then: The same at the exported batch size.
        batch: The exported batch size.

    Returns:
        The new target; None if no axis can hold the batch.
    """
    literal = [then[axis] if size == 0 else size for axis, size in enumerate(target)]
    if -1 in literal:
        others = -math.prod(literal)
        if others <= 0:
            return None
        literal[literal.index(-1)] = math.prod(then) // others
    held = before.index(None)
    lead = math.prod(then[:held])
    for axis, size in enumerate(literal):
        if math.prod(literal[:axis]) == lead and size % batch == 0 and (size > 1 or batch == 1):
            literal[axis] = 0 if axis == held and size == then[held] else -1
            return literal
    return None


def _free_expand(edit: GraphEdit, node: onnx.NodeProto, baked: int) -> bool:
    """Let an Expand to the exported batch follow the input's batch; 1 keeps an axis as it is."""
    stated, before = edit.constant(node.input[1]), edit.sizes(node.input[0])
    if stated is None or before is None or stated.size == 0 or int(stated[0]) != baked:
        return False
    if len(before) != stated.size:
        return False
    if before[0] is None:
        if baked == 1:
            return False
        kept = np.array([1, *stated[1:]], np.int64)
        node.input[1] = edit.new_constant(f"{node.output[0]}/shape", kept)
        edit.rewrites += 1
        return True
    return before[0] == 1 and _expand_to_batch(edit, node, stated[1:].astype(np.int64))


def _expand_to_batch(
    edit: GraphEdit, node: onnx.NodeProto, others: "np.ndarray[tuple[int], np.dtype[np.int64]]"
) -> bool:
    name = edit.new_name(f"{node.output[0]}/batch")
    shape = edit.new_name(f"{node.output[0]}/shape")
    rest = edit.new_constant(f"{node.output[0]}/others", others)
    batch = helper.make_node("Shape", [edit.graph.input[0].name], [name], start=0, end=1)
    joined = helper.make_node("Concat", [name, rest], [shape], axis=0)
    node.input[1] = shape
    index = next(i for i, other in enumerate(edit.graph.node) if other is node)
    nodes = list(edit.graph.node)
    edit.replace_nodes([*nodes[:index], batch, joined, *nodes[index:]])
    edit.rewrites += 1
    return True
