"""Keeps trained weights on their int8 grid by stochastic rounding after each step."""

from dataclasses import dataclass

import numpy as np

from edgefl.training.int8_values import LARGEST_INT8, Floats, along
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.names import rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The values that a weight may take: scale * -127 to 127.

    Attributes:
        scale: float32 [] or [channels].
        axis: Axis of the channels; None for one scale.
        rank: Number of axes of the weight.
    """

    scale: Floats
    axis: int | None
    rank: int


def round_to_grid(graph: GraphEmitter, parameter: str, updated: str, grid: Grid) -> str:
    """Emit stochastic rounding: up or down with chances that make it right on average.

    A value v between two grid points becomes floor(v / scale + u) * scale with u uniform over
    [0, 1), fed for each value; its mean is v. Rounding to the nearest would lose every change
    smaller than half a step. A weight that arrives off the grid, as a mean over devices does, is
    put onto it by the first step in the same way.

    Args:
        graph: Where to emit.
        parameter: Name of the weight.
        updated: The weight after the optimiser's step.
        grid: Its grid.

    Returns:
        The weight on the grid.

    Source: Gupta et al., "Deep Learning with Limited Numerical Precision", arXiv:1502.02551,
    section 3.
    """
    scale = np.asarray(along(grid.scale, grid.axis, grid.rank), np.float32)
    steps = graph.emit("Div", updated, graph.constant(scale))
    whole = graph.emit("Floor", graph.emit("Add", steps, rounding(parameter)))
    bounds = (graph.float32(float(bound)) for bound in (-LARGEST_INT8, LARGEST_INT8))
    return graph.emit("Mul", graph.emit("Clip", whole, *bounds), graph.constant(scale))
