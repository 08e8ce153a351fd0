"""Parameters that are rearranged before they meet examples: transposed, cut up, joined anew."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample.registry import NotVectorisedError, total
from edgefl.training.onnx.compile.rules import find_rule

_REARRANGING: Final = frozenset(
    {
        *("Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze"),
        *("Transpose", "Unsqueeze"),
    }
)
_FOREIGN: Final = -1


def require_rearranged(
    graph: GraphEmitter,
    prepared: Sequence[onnx.NodeProto],
    trainable: Sequence[str],
    met: Sequence[str],
) -> None:
    """Check that the values that meet examples hold each trained number at most once.

    Then an example's gradient has the same norm over those values as over the parameters. Every
    trained number gets a label, the nodes are run on the labels, and the labels are counted.

    Args:
        graph: Knows shapes and constants.
        prepared: Nodes that depend on parameters and not on examples, in execution order.
        trainable: Names of the trainable tensors.
        met: Values that nodes with examples read, once for each reader.

    Raises:
        NotVectorisedError: A node computes, a number is read twice (a shared weight), or frozen
            numbers are mixed in.
    """
    for node in prepared:
        if node.op_type not in _REARRANGING:
            message = f"{describe(node)} computes with a parameter alone"
            raise NotVectorisedError(message)
    seen: set[str] = set()
    for value in met:
        if value in seen:
            message = f"two nodes read the parameter '{value}'"
            raise NotVectorisedError(message)
        seen.add(value)
    if not prepared or not met:
        return
    values = _run(graph, prepared, _labels(graph, trainable))
    labels = np.concatenate([values[value].reshape(-1) for value in met])
    if labels.min(initial=0) < 0:
        message = f"trained and frozen numbers are joined by {describe(prepared[-1])}"
        raise NotVectorisedError(message)
    # Not np.unique, which takes half a minute for five million numbers.
    if np.bincount(labels).max(initial=0) > 1:
        message = "some trained numbers meet examples twice"
        raise NotVectorisedError(message)


def pull_back(
    graph: GraphEmitter,
    prepared: Sequence[onnx.NodeProto],
    path: set[str],
    gradients: dict[str, str],
    trainable: Sequence[str],
) -> dict[str, str]:
    """Emit the way from gradients of rearranged values to those of the parameters.

    Args:
        graph: Where to emit.
        prepared: The nodes in execution order.
        path: The trainable tensors and what is computed from them.
        gradients: By value that meets examples.
        trainable: Names of the trainable tensors.
    """
    contributions = {value: [gradient] for value, gradient in gradients.items()}
    for node in reversed(prepared):
        dys = [
            total(graph, terms) if (terms := contributions.get(value)) else None
            for value in node.output
        ]
        rule = find_rule(node)
        if rule is None or all(dy is None for dy in dys):
            continue
        found = rule(graph, node, dys, [value in path for value in node.input])
        for value, gradient in zip(node.input, found, strict=True):
            if gradient is not None:
                contributions.setdefault(value, []).append(gradient)
    return {name: total(graph, contributions[name]) for name in trainable}


def _labels(graph: GraphEmitter, trainable: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    labels: dict[str, NDArray[np.int64]] = {}
    first = 0
    for name in trainable:
        shape = [size or 0 for size in graph.known_shape(name) or ()]
        size = int(np.prod(shape, dtype=np.int64))
        labels[name] = np.arange(first, first + size, dtype=np.int64).reshape(shape)
        first += size
    return labels


def _run(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    labels: dict[str, NDArray[np.int64]],
) -> dict[str, NDArray[np.int64]]:
    """Return the labels of every value that the nodes make, and of the parameters."""
    made = [value for node in nodes for value in node.output if value]
    if not made:
        return labels
    feeds: dict[str, NDArray[np.generic]] = dict(labels)
    for node in nodes:
        for value in node.input:
            if value and value not in feeds and value not in made:
                feeds[value] = _constant(graph, node, value)
    body = helper.make_graph(
        list(nodes),
        "rearranged",
        [_info(value) for value in feeds],
        [_info(value) for value in made],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(body, opset_imports=[opset], ir_version=8)
    results = ReferenceEvaluator(model).run(None, feeds)
    return labels | {n: np.asarray(r, np.int64) for n, r in zip(made, results, strict=True)}


def _constant(graph: GraphEmitter, node: onnx.NodeProto, value: str) -> NDArray[np.generic]:
    """Return a setting as it is, and frozen numbers as foreign labels."""
    constant = graph.constant_value(value)
    if constant is None:
        message = f"{describe(node)} rearranges a parameter by computed numbers"
        raise NotVectorisedError(message)
    if constant.dtype.kind == "f":
        return np.full(constant.shape, _FOREIGN, np.int64)
    return constant


def _info(value: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(value, onnx.TensorProto.INT64, None)
