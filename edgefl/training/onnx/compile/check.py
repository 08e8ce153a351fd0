"""Looks at a planned model before anything is emitted and names every obstacle at once."""

from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.differentiate import reads_any, values_on_path
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample import node_mixing_examples
from edgefl.training.onnx.compile.rules import find_rule
from edgefl.training.onnx.compile.rules.norm import require_inference_mode
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


def require_examples_apart(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], batch_input: str
) -> None:
    """Refuse a model in which an example's result depends on the others of its batch.

    Devices cut their data into batches as they like, fill up the last one, and keep what a frozen
    front part computed row by row.

    Args:
        model: Knows shapes and constants.
        nodes: Forward nodes that the output depends on.
        batch_input: The input whose first axis is the batch.

    Raises:
        TrainingError: E-MODEL-BATCHNORM-TRAINING or E-MODEL-OP-FORM with the node.
    """
    for node in nodes:
        if node.op_type == "BatchNormalization":
            require_inference_mode(node)
    mixing = node_mixing_examples(GraphEmitter(model), nodes, batch_input)
    if mixing:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "layers that compute each example of a batch on its own",
            mixing,
            "export the model for inference, or let the layer work along another axis",
        )


_ADVICE = "replace them, or train only layers after them"


def _unsupported(obstacles: Sequence[str], advice: str = _ADVICE) -> TrainingError:
    return TrainingError(
        "E-MODEL-UNSUPPORTED-OPS",
        "operators with a gradient rule (docs/models.md lists them)",
        ", ".join(obstacles),
        advice,
    )
