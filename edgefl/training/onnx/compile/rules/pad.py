"""Gradient of padding with a constant, the edge or a reflection."""

from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe, text_attribute
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Pad")
def pad(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Cut the padding off; samples that edge or reflect modes repeated get its gradient too.

    Raises:
        TrainingError: E-MODEL-OP-FORM for computed pads, pads of the batch axis, or edge and
            reflect modes with negative pads or reflections longer than the input.
    """
    gradients: Gradients = [None] * len(node.input)
    if not wanted[0]:
        return gradients
    shape = graph.shape_of(node.input[0], node)
    rank = len(shape)
    pads = graph.constant_value(node.input[1])
    if pads is None:
        raise _refusal(node, "constant pads", "computed ones")
    begins, ends = [int(v) for v in pads[:rank]], [int(v) for v in pads[rank:]]
    mode = text_attribute(node, "mode", "constant")
    padded = [axis for axis in range(rank) if begins[axis] or ends[axis]]
    if any(shape[axis] is None for axis in padded):
        raise _refusal(node, "pads within one example", "the batch axis is padded")
    if mode == "constant":
        gradients[0] = _constant(graph, dy, shape, begins, ends)
        return gradients
    if mode not in {"edge", "reflect"}:
        raise _refusal(node, "mode constant, edge or reflect", mode)
    for axis in padded:
        size = shape[axis] or 0
        if min(begins[axis], ends[axis]) < 0:
            raise _refusal(node, f"no negative pads with mode {mode}", "some")
        if mode == "reflect" and max(begins[axis], ends[axis]) >= size:
            raise _refusal(node, f"reflections shorter than the size {size}", "longer ones")
        dy = _fold(graph, dy, _Axis(graph, rank, axis, size), begins[axis], ends[axis], mode)
    gradients[0] = dy
    return gradients


class _Axis:
    """Emits cuts and zeros along one axis of a gradient."""

    def __init__(self, graph: GraphEmitter, rank: int, axis: int, size: int) -> None:
        self._graph = graph
        self._rank = rank
        self.axis = axis
        self.size = size

    def cut(self, value: str, start: int, count: int, *, backwards: bool = False) -> str:
        """Return `count` positions from `start` on, in either order."""
        if not backwards:
            bounds = (start, start + count, self.axis)
        else:
            # -1 would mean the last position; an end far below zero means "before the first".
            bounds = (start + count - 1, start - 1 if start else -(2**31), self.axis)
        parts = [self._graph.int64s([bound]) for bound in bounds]
        if backwards:
            parts.append(self._graph.int64s([-1]))
        return self._graph.emit("Slice", value, *parts)

    def place(self, value: str, start: int, count: int) -> str:
        """Return `count` positions placed at `start` among zeros."""
        pads = [0] * (2 * self._rank)
        pads[self.axis], pads[self._rank + self.axis] = start, self.size - start - count
        return self._graph.emit("Pad", value, self._graph.int64s(pads))

    def total(self, value: str) -> str:
        """Return the sum along the axis, which keeps one position."""
        return self._graph.emit("ReduceSum", value, self._graph.int64s([self.axis]), keepdims=1)


def _fold(graph: GraphEmitter, dy: str, along: _Axis, begin: int, end: int, mode: str) -> str:
    """Add the gradients of the padding of one axis to those of the samples it repeats."""
    size = along.size
    parts = [along.cut(dy, begin, size)]
    if begin and mode == "edge":
        parts.append(along.place(along.total(along.cut(dy, 0, begin)), 0, 1))
    elif begin:
        parts.append(along.place(along.cut(dy, 0, begin, backwards=True), 1, begin))
    if end and mode == "edge":
        parts.append(along.place(along.total(along.cut(dy, begin + size, end)), size - 1, 1))
    elif end:
        mirrored = along.cut(dy, begin + size, end, backwards=True)
        parts.append(along.place(mirrored, size - 1 - end, end))
    return graph.emit("Sum", *parts)


def _constant(
    graph: GraphEmitter, dy: str, shape: Shape, begins: list[int], ends: list[int]
) -> str:
    """Cut off what was added; where pads are negative, zeros stand for what they cut off."""
    axes = [axis for axis in range(len(shape)) if begins[axis] > 0 or ends[axis] > 0]
    if axes:
        starts = [max(begins[axis], 0) for axis in axes]
        sizes = [(shape[axis] or 0) + min(begins[axis], 0) + min(ends[axis], 0) for axis in axes]
        stops = [start + size for start, size in zip(starts, sizes, strict=True)]
        dy = graph.emit("Slice", dy, graph.int64s(starts), graph.int64s(stops), graph.int64s(axes))
    zeros = [-min(value, 0) for value in [*begins, *ends]]
    return graph.emit("Pad", dy, graph.int64s(zeros)) if any(zeros) else dy


def _refusal(node: onnx.NodeProto, expected: str, found: str) -> TrainingError:
    return TrainingError(
        "E-MODEL-OP-FORM",
        expected,
        f"{found} at {describe(node)}",
        "export the model with constant padding, or train only layers after it",
    )
