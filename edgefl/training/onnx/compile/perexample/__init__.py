"""Gradients clipped example by example, for example-level DP-SGD."""

from edgefl.training.onnx.compile.perexample.clip import (
    ClippedGradients,
    ExampleForm,
    emit_clipped_gradients,
    node_mixing_examples,
    why_examples_are_mixed,
)

__all__ = [
    "ClippedGradients",
    "ExampleForm",
    "emit_clipped_gradients",
    "node_mixing_examples",
    "why_examples_are_mixed",
]
