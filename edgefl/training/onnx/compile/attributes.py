"""Typed reading of ONNX node attributes."""

import onnx


def int_attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return a whole-number attribute, or the default when the node lacks it."""
    attribute = _find(node, name)
    return default if attribute is None else int(attribute.i)


def float_attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    """Return a float attribute, or the default when the node lacks it."""
    attribute = _find(node, name)
    return default if attribute is None else float(attribute.f)


def ints_attribute(node: onnx.NodeProto, name: str) -> list[int] | None:
    """Return a list attribute, or None when the node lacks it."""
    attribute = _find(node, name)
    return None if attribute is None else [int(value) for value in attribute.ints]


def text_attribute(node: onnx.NodeProto, name: str, default: str) -> str:
    """Return a text attribute, or the default when the node lacks it."""
    attribute = _find(node, name)
    return default if attribute is None else attribute.s.decode(errors="replace")


def describe(node: onnx.NodeProto) -> str:
    """Return `Op 'name'` for messages; a node without a name is known by its output."""
    return f"{node.op_type} '{node.name or node.output[0]}'"


def _find(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)
