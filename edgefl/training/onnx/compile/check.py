"""Looks at a planned model before anything is emitted and names every obstacle at once."""

from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.differentiate import reads_any, values_on_path
from edgefl.training.onnx.compile.rules import find_rule
from edgefl.training.onnx.compile.rules.quant import INTEGER_ADVICE, INTEGER_OPERATORS


def require_rules(nodes: Sequence[onnx.NodeProto], trainable: Sequence[str]) -> None:
    """Refuse operators that cannot be differentiated or run on a stock runtime.

    Args:
        nodes: Forward nodes that the output depends on.
        trainable: Names of the trainable tensors.

    Raises:
        TrainingError: E-MODEL-UNSUPPORTED-OPS with every such node.
    """
    path = values_on_path(nodes, trainable)
    obstacles = [node for node in nodes if reads_any(node, path) and find_rule(node) is None]
    if obstacles:
        has_integers = any(node.op_type in INTEGER_OPERATORS for node in obstacles)
        advice = INTEGER_ADVICE if has_integers else _ADVICE
        raise _unsupported([describe(node) for node in obstacles], advice)


_ADVICE = "replace them, or train only layers after them"


def _unsupported(obstacles: Sequence[str], advice: str = _ADVICE) -> TrainingError:
    return TrainingError(
        "E-MODEL-UNSUPPORTED-OPS",
        "operators with a gradient rule (docs/models.md lists them)",
        ", ".join(obstacles),
        advice,
    )
