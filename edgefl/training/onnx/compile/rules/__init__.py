"""Gradient rules, one file per family of operators; importing the package fills the registry."""

import importlib
import pkgutil

from edgefl.training.onnx.compile.rules.registry import OutputsRule, covered_operators, find_rule

__all__ = ["OutputsRule", "covered_operators", "find_rule"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
