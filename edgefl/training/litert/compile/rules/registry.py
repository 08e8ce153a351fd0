"""The table of lowering rules: ONNX operator to function."""

from collections.abc import Callable

import onnx

from edgefl.training.litert.compile.lowering import Lowering

Rule = Callable[[Lowering, onnx.NodeProto], None]
"""Appends operators for one node and says where each of its outputs lies."""

_RULES: dict[str, Rule] = {}


def lowers(*op_types: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of ONNX operators.

    Raises:
        ValueError: An operator has a rule already.
    """

    def register(rule: Rule) -> Rule:
        for op_type in op_types:
            if op_type in _RULES:
                message = f"{op_type} has two lowering rules"
                raise ValueError(message)
            _RULES[op_type] = rule
        return rule

    return register


def find_rule(node: onnx.NodeProto) -> Rule | None:
    """Return the rule for a node, or None; operators outside the standard domain have none."""
    return _RULES.get(node.op_type) if node.domain in {"", "ai.onnx"} else None


def lowered_operators() -> list[str]:
    """Return the names of all operators with a rule, sorted."""
    return sorted(_RULES)
