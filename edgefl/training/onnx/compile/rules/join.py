"""Gradients of joining and splitting along one axis."""

from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, int_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import (
    Gradients,
    gradient_of,
    gradients_of_outputs,
)


@gradient_of("Concat")
def concat(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Split the gradient where the inputs were joined.

    Raises:
        TrainingError: E-MODEL-OP-FORM when examples are joined.
    """
    rank = len(graph.shape_of(node.output[0], node))
    axis = int_attribute(node, "axis", 0) % rank
    sizes = [_size_along(graph, node, value, axis) for value in node.input]
    if wanted.count(True) > 1:
        parts = graph.emit_outputs("Split", [dy, graph.int64s(sizes)], len(sizes), axis=axis)
        return [part if want else None for part, want in zip(parts, wanted, strict=True)]
    only = wanted.index(True)
    start = sum(sizes[:only])
    bounds = [graph.int64s([value]) for value in (start, start + sizes[only], axis)]
    gradients: Gradients = [None] * len(sizes)
    gradients[only] = graph.emit("Slice", dy, *bounds)
    return gradients


@gradients_of_outputs("Split")
def split(
    graph: GraphEmitter, node: onnx.NodeProto, dys: Sequence[str | None], wanted: Sequence[bool]
) -> Gradients:
    """Join the gradients of the parts; a part without one counts as zeros.

    Raises:
        TrainingError: E-MODEL-OP-FORM when the batch is split.
    """
    gradients: Gradients = [None] * len(node.input)
    if not wanted[0]:
        return gradients
    rank = len(graph.shape_of(node.input[0], node))
    axis = int_attribute(node, "axis", 0) % rank
    sizes = [_size_along(graph, node, value, axis) for value in node.output]
    parts: list[tuple[str, int, int]] = []
    zeros = 0
    for dy, size in zip(dys, sizes, strict=True):
        if dy is None:
            zeros += size
        else:
            parts.append((dy, zeros, 0))
            zeros = 0
    last, before, _ = parts.pop()
    parts.append((last, before, zeros))
    padded = [_with_zeros(graph, dy, rank, axis, before, after) for dy, before, after in parts]
    gradients[0] = padded[0] if len(padded) == 1 else graph.emit("Concat", *padded, axis=axis)
    return gradients


def _with_zeros(
    graph: GraphEmitter, value: str, rank: int, axis: int, before: int, after: int
) -> str:
    if not (before or after):
        return value
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = before, after
    return graph.emit("Pad", value, graph.int64s(pads))


def _size_along(graph: GraphEmitter, node: onnx.NodeProto, value: str, axis: int) -> int:
    size = graph.shape_of(value, node)[axis]
    if size is None:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "joining and splitting within one example",
            f"{describe(node)} along the batch axis",
            "join or split along other axes",
        )
    return size
