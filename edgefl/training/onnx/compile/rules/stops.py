"""Operators through which no gradient flows: their outputs are counts, places and flags."""

from collections.abc import Sequence

import onnx

from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradients_of_outputs


@gradients_of_outputs(
    "And",
    "ArgMax",
    "ArgMin",
    "ConstantOfShape",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "NonZero",
    "Not",
    "Or",
    "Shape",
    "Size",
    "Xor",
)
def stop(
    graph: GraphEmitter,
    node: onnx.NodeProto,
    dys: Sequence[str | None],
    wanted: Sequence[bool],
) -> Gradients:
    """Give no gradient: the output does not change when the inputs change a little."""
    del graph, dys, wanted
    return [None] * len(node.input)
