"""The table of gradient rules: operator to function."""

from collections.abc import Callable, Sequence

import onnx

from edgefl.training.onnx.compile.graph import GraphEmitter

Gradients = list[str | None]
Rule = Callable[[GraphEmitter, onnx.NodeProto, str, Sequence[bool]], Gradients]
"""Takes the emitter, the forward node, the gradient of its first output, and for each input
whether its gradient is wanted; returns the gradient of each input, None where it is not wanted or
does not exist."""

_RULES: dict[str, Rule] = {}


def gradient_of(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of the given operators.

    Raises:
        ValueError: An operator has a rule already.
    """

    def register(rule: Rule) -> Rule:
        for op_type in op_types:
            if op_type in _RULES:
                message = f"{op_type} has two gradient rules"
                raise ValueError(message)
            _RULES[op_type] = rule
        return rule

    return register


def find_rule(node: onnx.NodeProto) -> Rule | None:
    """Return the rule for a node, or None; operators outside the standard domain have none."""
    return _RULES.get(node.op_type) if node.domain in {"", "ai.onnx"} else None


def covered_operators() -> list[str]:
    """Return the names of all operators with a rule, sorted."""
    return sorted(_RULES)
