"""Gradient of cutting a part out of a tensor, with steps of either direction."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.graph import GraphEmitter, Shape
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """What is kept of one axis.

    Attributes:
        axis: The axis.
        size: Its size before the cut.
        kept: The positions kept, in the order of the output.
    """

    axis: int
    size: int
    kept: range


@gradient_of("Slice")
def slice_(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Put the gradient back in its place among zeros.

    Raises:
        TrainingError: E-MODEL-OP-FORM for computed bounds, or when the batch is cut.
    """
    gradients: Gradients = [None] * len(node.input)
    if not wanted[0]:
        return gradients
    shape = graph.shape_of(node.input[0], node)
    cuts = _cuts(graph, node, shape)
    rank = len(shape)
    sizes = list(graph.shape_of(node.output[0], node))
    dy = _forwards(graph, dy, cuts)
    pads = [0] * (2 * rank)
    for cut in cuts:
        ascending = cut.kept if cut.kept.step > 0 else cut.kept[::-1]
        if ascending.step > 1 and len(ascending) > 1:
            dy = _apart(graph, dy, sizes, cut.axis, ascending)
        pads[cut.axis] = ascending.start
        pads[rank + cut.axis] = cut.size - ascending[-1] - 1
    gradients[0] = graph.emit("Pad", dy, graph.int64s(pads)) if any(pads) else dy
    return gradients


def _forwards(graph: GraphEmitter, dy: str, cuts: list[_Cut]) -> str:
    """Reverse the axes that were read backwards."""
    axes = [cut.axis for cut in cuts if cut.kept.step < 0]
    if not axes:
        return dy
    lowest = int(np.iinfo(np.int64).min)
    return graph.emit(
        "Slice",
        dy,
        graph.int64s([-1] * len(axes)),
        graph.int64s([lowest] * len(axes)),
        graph.int64s(axes),
        graph.int64s([-1] * len(axes)),
    )


def _apart(graph: GraphEmitter, dy: str, sizes: list[int | None], axis: int, kept: range) -> str:
    """Put zeros between neighbours along an axis, and note its new size in `sizes`."""
    between = kept.step - 1
    column = graph.emit("Unsqueeze", dy, graph.int64s([axis + 1]))
    pads = [0] * (2 * (len(sizes) + 1))
    pads[len(sizes) + 1 + axis + 1] = between
    filled = graph.emit("Pad", column, graph.int64s(pads))
    sizes[axis] = len(kept) * kept.step
    joined = graph.reshape(filled, tuple(sizes))
    sizes[axis] = kept[-1] - kept.start + 1
    # The last neighbour has zeros behind it too; they may lie outside the input.
    bounds = [graph.int64s([value]) for value in (0, kept[-1] - kept.start + 1, axis)]
    return graph.emit("Slice", joined, *bounds)


def _cuts(graph: GraphEmitter, node: onnx.NodeProto, shape: Shape) -> list[_Cut]:
    starts, ends, axes, steps = _bounds(graph, node)
    cuts: list[_Cut] = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = axis % len(shape)
        size = shape[place]
        if size is not None:
            cuts.append(_Cut(axis=place, size=size, kept=_kept(start, end, step, size)))
        elif (start, step) != (0, 1) or end < np.iinfo(np.int32).max:
            raise _refusal(node, "slices within one example", "the batch axis is cut")
    if any(not cut.kept for cut in cuts):
        raise _refusal(node, "slices of at least one value", "an empty one")
    return cuts


def _kept(start: int, end: int, step: int, size: int) -> range:
    """Return the positions that a slice keeps; Python's rules once the ends are clamped.

    Unlike Python, ONNX counts an end below -size as "before the first", for backward steps.
    """
    return (
        range(*slice(start, None if end < -size else end, step).indices(size))
        if (step < 0 or end >= -size)
        else range(0)
    )


def _bounds(graph: GraphEmitter, node: onnx.NodeProto) -> list[list[int]]:
    """Return starts, ends, axes and steps."""
    values = [graph.constant_value(name) if name else None for name in node.input[1:]]
    if any(name and value is None for name, value in zip(node.input[1:], values, strict=True)):
        raise _refusal(node, "constant starts, ends, axes and steps", "computed ones")
    lists = [None if value is None else [int(item) for item in value] for value in values]
    lists += [None] * (4 - len(lists))
    starts, ends, axes, steps = lists
    count = len(starts or [])
    return [starts or [], ends or [], axes or list(range(count)), steps or [1] * count]


def _refusal(node: onnx.NodeProto, expected: str, found: str) -> TrainingError:
    return TrainingError(
        "E-MODEL-OP-FORM",
        expected,
        f"{found} at {describe(node)}",
        "export the model with fixed slices, or train only layers after it",
    )
