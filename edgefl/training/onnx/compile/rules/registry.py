"""The table of gradient rules: operator to function."""

from collections.abc import Callable, Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.graph import GraphEmitter

Gradients = list[str | None]
Rule = Callable[[GraphEmitter, onnx.NodeProto, str, Sequence[bool]], Gradients]
"""Takes the emitter, the forward node, the gradient of its first output, and for each input
whether its gradient is wanted; returns the gradient of each input, None where it is not wanted or
does not exist."""

OutputsRule = Callable[
    [GraphEmitter, onnx.NodeProto, Sequence[str | None], Sequence[bool]], Gradients
]
"""As `Rule`, but takes the gradient of each output; None where none arrives, not None for all."""

_RULES: dict[str, OutputsRule] = {}


def gradient_of(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of operators whose first output alone counts.

    Raises:
        ValueError: An operator has a rule already.
    """

    def register(rule: Rule) -> Rule:
        def of_first(
            graph: GraphEmitter,
            node: onnx.NodeProto,
            dys: Sequence[str | None],
            wanted: Sequence[bool],
        ) -> Gradients:
            if dys[0] is None or any(dy is not None for dy in dys[1:]):
                raise _unread_outputs(node)
            return rule(graph, node, dys[0], wanted)

        for op_type in op_types:
            _add(op_type, of_first)
        return rule

    return register


def gradients_of_outputs(*op_types: str) -> Callable[[OutputsRule], OutputsRule]:
    """Register the decorated function as the rule of operators with several outputs.

    Raises:
        ValueError: An operator has a rule already.
    """

    def register(rule: OutputsRule) -> OutputsRule:
        for op_type in op_types:
            _add(op_type, rule)
        return rule

    return register


def _add(op_type: str, rule: OutputsRule) -> None:
    if op_type in _RULES:
        message = f"{op_type} has two gradient rules"
        raise ValueError(message)
    _RULES[op_type] = rule


def _unread_outputs(node: onnx.NodeProto) -> TrainingError:
    return TrainingError(
        "E-MODEL-OP-FORM",
        f"only the first output of {describe(node)} on the way to the loss",
        f"another of {', '.join(node.output)}",
        "export the model without that output, or train only layers after it",
    )


def find_rule(node: onnx.NodeProto) -> OutputsRule | None:
    """Return the rule for a node, or None; operators outside the standard domain have none."""
    return _RULES.get(node.op_type) if node.domain in {"", "ai.onnx"} else None


def covered_operators() -> list[str]:
    """Return the names of all operators with a rule, sorted."""
    return sorted(_RULES)
