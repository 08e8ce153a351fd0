"""Gradient rules, one file per family of operators; importing the package fills the registry."""

from edgefl.training.onnx.compile.rules import conv, elementwise, linear, pool, shape
from edgefl.training.onnx.compile.rules.registry import Rule, covered_operators, find_rule

__all__ = [
    "Rule",
    "conv",
    "covered_operators",
    "elementwise",
    "find_rule",
    "linear",
    "pool",
    "shape",
]
