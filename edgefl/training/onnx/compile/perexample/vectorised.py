"""The reverse pass that finds every example's gradient norm at once, over the whole batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx

from edgefl.training.onnx.compile.differentiate import values_on_path
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.perexample.places import Places
from edgefl.training.onnx.compile.perexample.prepared import pull_back, require_rearranged
from edgefl.training.onnx.compile.perexample.registry import (
    ExampleGradients,
    Use,
    example_gradients,
    total,
)
from edgefl.training.onnx.compile.rules import find_rule
from edgefl.training.onnx.compile.rules.registry import Gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorisedNorms:
    """Every example's norm, and what makes the weighted sum of the gradients.

    Attributes:
        squared_norms: float32 [N]: squared norm of each example's gradient over all parameters.
        weighted: Takes factors float32 [N]; emits and returns, by parameter name, the sum over
            examples of factor times gradient.
    """

    squared_norms: str
    weighted: Callable[[str], dict[str, str]]


def vectorised_norms(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    trainable: Sequence[str],
    places: Places,
    output: str,
    example_gradients_of_output: str,
) -> VectorisedNorms:
    """Emit the reverse pass up to the parameters.

    Where examples are kept apart, row i of every gradient on the way is that of example i's own
    loss. At each node that reads parameters, an example rule turns it into norms; their gradients
    are summed only afterwards, with the factors that clipping gives.

    Args:
        graph: Where to emit.
        nodes: Forward nodes in execution order.
        trainable: Names of the trainable tensors.
        places: Where values hold their examples.
        output: The value that the loss reads.
        example_gradients_of_output: Row i is the gradient of example i's loss, not weighted.

    Returns:
        Norms and the rest of the pass.

    Raises:
        NotVectorisedError: An operator or a use of a parameter has no example rule.
    """
    path = values_on_path(nodes, trainable)
    batch_nodes = [node for node in nodes if _is_batched(node, places)]
    prepared = [node for node in nodes if not _is_batched(node, places) and _on(path, node)]
    met = [
        value
        for node in batch_nodes
        for value in node.input
        if value in path and places.get(value) is None
    ]
    require_rearranged(graph, prepared, trainable, met)
    uses = _reverse(graph, batch_nodes, path, places, output, example_gradients_of_output)

    def weighted(factor: str) -> dict[str, str]:
        gradients: dict[str, str] = {}
        for node, found in uses:
            gradients |= {node.input[at]: v for at, v in found.weighted(factor).items()}
        return pull_back(graph, prepared, path, gradients, trainable)

    squared = total(graph, [found.squared_norms for _, found in uses])
    return VectorisedNorms(squared_norms=squared, weighted=weighted)


def _reverse(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    path: set[str],
    places: Places,
    output: str,
    output_gradients: str,
) -> list[tuple[onnx.NodeProto, ExampleGradients]]:
    """Walk back through the nodes that depend on examples; collect what parameters get."""
    contributions: dict[str, list[str]] = {output: [output_gradients]}
    uses: list[tuple[onnx.NodeProto, ExampleGradients]] = []
    for node in reversed(nodes):
        dys = [
            total(graph, terms) if (terms := contributions.get(value)) else None
            for value in node.output
        ]
        if not _on(path, node) or all(dy is None for dy in dys):
            continue
        use = _use_of(graph, node, dys, path, places)
        found = example_gradients(use) if use.wanted else None
        if found is not None:
            uses.append((node, found))
        for value, gradient in zip(node.input, _inputs(use, found), strict=True):
            if gradient is not None and places.get(value) is not None:
                contributions.setdefault(value, []).append(gradient)
    return uses


def _use_of(
    graph: GraphEmitter,
    node: onnx.NodeProto,
    dys: Sequence[str | None],
    path: set[str],
    places: Places,
) -> Use:
    wanted = [value in path for value in node.input]
    batched = [places.get(value) is not None for value in node.input]
    return Use(
        graph=graph,
        node=node,
        dys=dys,
        wanted=tuple(at for at, want in enumerate(wanted) if want and not batched[at]),
        wanted_inputs=tuple(w and b for w, b in zip(wanted, batched, strict=True)),
        places=places,
    )


def _inputs(use: Use, found: ExampleGradients | None) -> Gradients:
    """Return the gradients of the inputs that depend on examples."""
    if found is not None and found.inputs is not None:
        return found.inputs
    rule = find_rule(use.node)
    if rule is None or not any(use.wanted_inputs):
        return [None] * len(use.node.input)
    return rule(use.graph, use.node, use.dys, use.wanted_inputs)


def _is_batched(node: onnx.NodeProto, places: Places) -> bool:
    return any(places.get(value) is not None for value in node.output)


def _on(path: set[str], node: onnx.NodeProto) -> bool:
    return any(value in path for value in node.input)
