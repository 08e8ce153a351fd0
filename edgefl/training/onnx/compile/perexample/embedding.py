"""Example norms of an embedding table: rows read by Gather."""

import numpy as np
import onnx

from edgefl.training.onnx.compile.attributes import int_attribute
from edgefl.training.onnx.compile.perexample.registry import (
    ExampleGradients,
    Use,
    example_rows,
    examples_of,
)


@examples_of("Gather")
def gather(use: Use) -> ExampleGradients:
    """A table whose rows are read at each example's own indices.

    An example's gradient holds, in each row, the sum of what comes back to every read of that row:
    its squared norm is the sum of the inner products of all pairs of reads of one row. No table per
    example is made.
    """
    use.require_wanted_within(0)
    graph, node = use.graph, use.node
    table = use.shape(node.input[0])
    if len(table) != 2 or int_attribute(node, "axis", 0) % 2 != 0:
        raise use.refused("a table that is not read row by row")
    reads, rows, _ = example_rows(use, use.dy, node.output[0])
    grams = graph.emit("MatMul", reads, graph.emit("Transpose", reads, perm=[0, 2, 1]))
    indices = _indices(use, rows, table[0] or 0)
    same = graph.emit(
        "Equal",
        graph.emit("Unsqueeze", indices, graph.int64s([2])),
        graph.emit("Unsqueeze", indices, graph.int64s([1])),
    )
    of_one_row = graph.emit("Where", same, grams, graph.float32(0.0))
    return ExampleGradients(
        squared_norms=graph.reduce_sum(of_one_row, [1, 2]), weighted=use.by_ordinary_rule
    )


def _indices(use: Use, rows: int, table_rows: int) -> str:
    """Return the indices, counted from the first row and ordered as the reads are, [N, rows]."""
    graph, value = use.graph, use.node.input[1]
    place, shape = use.place(value), use.shape(value)
    if place.outer != 1 or any(size != 1 for size in shape[: place.axis]):
        raise use.refused("indices whose first axis is not the batch")
    if graph.element_type_of(value) != onnx.TensorProto.INT64:
        value = graph.emit("Cast", value, to=onnx.TensorProto.INT64)
    ordered = graph.reshape(value, (None, rows))
    return graph.emit("Mod", ordered, graph.constant(np.array(table_rows, np.int64)))
