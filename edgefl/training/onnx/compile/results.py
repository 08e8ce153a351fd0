"""Gives the results of a training step their names, if possible without a node that only copies."""

from collections import Counter
from collections.abc import Mapping, Sequence

import onnx
from onnx import helper


def name_results(
    emitted: Sequence[onnx.NodeProto], results: Mapping[str, str]
) -> list[onnx.NodeProto]:
    """Return the emitted nodes so that they make each result under its name.

    A node costs some microseconds, and a small step has fewer than a hundred. So the node that
    makes a result takes on its name; only values that two results share, or that no emitted node
    makes, are copied.

    Args:
        emitted: Nodes of the backward pass, in execution order.
        results: Value by the name that it is to have.
    """
    made = {value for node in emitted for value in node.output}
    shared = Counter(results.values())
    renamed = {
        value: name for name, value in results.items() if value in made and shared[value] == 1
    }
    nodes = [_renamed(node, renamed) for node in emitted]
    copies = [
        helper.make_node("Identity", [renamed.get(value, value)], [name], name=name)
        for name, value in results.items()
        if value not in renamed
    ]
    return [*nodes, *copies]


def _renamed(node: onnx.NodeProto, renamed: Mapping[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _rename(copy, renamed)
    return copy


def _rename(node: onnx.NodeProto, renamed: Mapping[str, str]) -> None:
    """Change what a node and its subgraphs read and make; emitted names are unique in all."""
    for values in (node.input, node.output):
        for index, value in enumerate(values):
            if value in renamed:
                values[index] = renamed[value]
    for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
        for inner in body.node:
            _rename(inner, renamed)
        for output in body.output:
            output.name = renamed.get(output.name, output.name)
