"""Opens the batch axis, also where the exporter wrote the size of its example batch into a node."""

import math

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


def free_baked_shapes(edit: GraphEdit, baked: int) -> bool:
    """Free the first Reshape or Expand, in order, that states the exported batch size.

    Args:
        edit: Graph with shapes as last inferred.
        baked: The batch size that the model was exported with.

    Returns:
        Whether a node was changed; shapes must then be inferred again before the next is freed.
    """
    for node in edit.graph.node:
        if node.op_type == "Reshape" and _free_reshape(edit, node, baked):
            return True
        if node.op_type == "Expand" and _free_expand(edit, node, baked):
            return True
    return False


def _free_reshape(edit: GraphEdit, node: onnx.NodeProto, baked: int) -> bool:
    stated, before = edit.constant(node.input[1]), edit.sizes(node.input[0])
    if stated is None or before is None or before.count(None) != 1:
        return False
    target = [int(size) for size in stated]
    freed = unbaked_shape(target, before, baked)
    if freed is None or freed == target:
        return False
    set_reshape_target(edit, node, np.array(freed, np.int64))
    edit.rewrites += 1
    return True


def unbaked_shape(target: list[int], before: Sizes, baked: int) -> list[int] | None:
    """Return a Reshape's target for any batch size.

    Args:
        target: As exported; may hold 0 (copy) and -1 (the rest).
        before: Sizes of its input; None is the batch axis.
        baked: The batch size in the target.

    Returns:
        The new target; None if the batch cannot be told from other axes, or is free already.
    """
    if any(size == 0 and before[axis] is None for axis, size in enumerate(target) if size == 0):
        return None
    copied = [before[a] if size == 0 and a < len(before) else size for a, size in enumerate(target)]
    literal = [size or 0 for size in copied]
    rest = math.prod(size for size in before if size is not None)
    if -1 in literal:
        others = math.prod(size for size in literal if size != -1)
        if others == 0 or (rest % others == 0 and literal[0] != baked):
            return None  # the -1 takes the batch
        literal[literal.index(-1)] = baked * rest // others
    if math.prod(literal) != baked * rest:
        return None
    if literal[0] == baked and before[0] is None:
        return [0, *literal[1:]]
    holders = [axis for axis, size in enumerate(literal) if size % baked == 0]
    if len(holders) != 1 and baked != 1:
        return None
    literal[holders[0]] = -1
    return literal


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
