"""Looks at a prepared model before anything is emitted and names every obstacle at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.differentiate import values_on_path
from edgefl.training.onnx.compile.rules import covered_operators, find_rule

_STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_SOFTMAX_OPERATORS = frozenset({"Softmax", "LogSoftmax"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Logits:
    """The value that the loss reads.

    Attributes:
        name: Its name.
        classes: Its second size.
        warnings: What the user should know about the choice.
    """

    name: str
    classes: int
    warnings: tuple[str, ...]


def find_logits(model: onnx.ModelProto) -> Logits:
    """Return the value before a final softmax, or the output itself.

    Args:
        model: Normalized model.

    Raises:
        TrainingError: E-MODEL-OUTPUT when the first output is no [N, classes].
    """
    output = model.graph.output[0].name
    warnings: tuple[str, ...] = ()
    producer = next((node for node in model.graph.node if output in node.output), None)
    name = output
    if producer is not None and producer.op_type in _SOFTMAX_OPERATORS:
        name = producer.input[0]
        warnings = (
            f"{describe(producer)} is applied already; cross_entropy reads '{name}' before it",
        )
    return Logits(name=name, classes=_classes(model.graph, name), warnings=warnings)


def dropout_warnings(nodes: Sequence[onnx.NodeProto]) -> tuple[str, ...]:
    """Return one line for each Dropout that will drop nothing."""
    return tuple(
        f"{describe(node)} drops nothing while training on a device"
        for node in nodes
        if node.op_type == "Dropout"
    )


def require_rules(nodes: Sequence[onnx.NodeProto], trainable: Sequence[str]) -> None:
    """Refuse operators that cannot be differentiated or run on a stock runtime.

    Args:
        nodes: Forward nodes that the logits depend on.
        trainable: Names of the trainable tensors.

    Raises:
        TrainingError: E-MODEL-UNSUPPORTED-OPS with every such node.
    """
    path = values_on_path(nodes, trainable)
    obstacles = [
        describe(node) + ("" if node.domain in _STANDARD_DOMAINS else f" of {node.domain}")
        for node in nodes
        if node.domain not in _STANDARD_DOMAINS
        or (any(value in path for value in node.input) and find_rule(node) is None)
    ]
    if obstacles:
        raise TrainingError(
            "E-MODEL-UNSUPPORTED-OPS",
            f"operators among {', '.join(covered_operators())}",
            ", ".join(obstacles),
            "replace them, or train only layers after them",
        )


def _classes(graph: onnx.GraphProto, name: str) -> int:
    values = {value.name: value for value in [*graph.value_info, *graph.output]}
    dims = values[name].type.tensor_type.shape.dim if name in values else []
    sizes: list[int | None] = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    classes = sizes[1] if len(sizes) == 2 else None
    if sizes[:1] != [None] or not classes:
        shown = ["?" if size is None else size for size in sizes]
        raise TrainingError(
            "E-MODEL-OUTPUT",
            "logits of shape [any batch, classes]",
            f"'{name}' of shape {shown}",
            "end the model with one linear layer per class, with a dynamic batch axis",
        )
    return classes
