"""Reverse-mode differentiation: walks the forward nodes backwards and applies each one's rule."""

from collections.abc import Container, Iterable, Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.graph import GraphEmitter, values_read_by
from edgefl.training.onnx.compile.rules import find_rule
from edgefl.training.onnx.names import PREFIX

_UNKNOWN = PREFIX + "unknown_gradient"
"""Stands for a gradient that no rule gives, so that what lies before it is looked at as well."""


def values_on_path(nodes: Iterable[onnx.NodeProto], trainable: Iterable[str]) -> set[str]:
    """Return the trainable tensors and every value computed from them.

    Args:
        nodes: Forward nodes in execution order.
        trainable: Names of the trainable tensors.

    Returns:
        Names of the values through which gradients may flow.
    """
    path = set(trainable)
    for node in nodes:
        if reads_any(node, path):
            path.update(value for value in node.output if value)
    return path


def reads_any(node: onnx.NodeProto, values: Container[str]) -> bool:
    """Tell whether a node reads some of the values, itself or inside its branches and loops."""
    return any(value in values for value in values_read_by(node))


def differentiate(
    graph: GraphEmitter,
    nodes: Sequence[onnx.NodeProto],
    trainable: Sequence[str],
    output: str,
    output_gradient: str,
    *,
    obstacles: list[TrainingError] | None = None,
) -> dict[str, str]:
    """Emit the backward pass.

    Args:
        graph: Where to emit.
        nodes: Forward nodes in execution order, all with rules where gradients flow.
        trainable: Names of the trainable tensors.
        output: The value that the loss reads.
        output_gradient: Gradient of the loss with respect to it.
        obstacles: If given, what rules refuse is added here, and the pass goes on to find more; the
            emitted graph is of no use then.

    Returns:
        Name of the gradient by trainable tensor.

    Raises:
        TrainingError: What a rule refuses; E-MODEL-NO-GRADIENT with all tensors that the output
            does not depend on.

    Source: Griewank and Walther, "Evaluating Derivatives", 2nd ed., section 3.2 (reverse
    accumulation).
    """
    path = values_on_path(nodes, trainable)
    contributions: dict[str, list[str]] = {output: [output_gradient]}
    for node in reversed(nodes):
        if not reads_any(node, path):
            continue
        dys = [_total(graph, contributions.get(value, [])) for value in node.output]
        if all(dy is None for dy in dys):
            continue
        for value, gradient in _gradients_of_inputs(graph, node, dys, path, obstacles):
            if gradient is not None and value in path:
                contributions.setdefault(value, []).append(gradient)
    return _require_all(graph, trainable, contributions)


def _gradients_of_inputs(
    graph: GraphEmitter,
    node: onnx.NodeProto,
    dys: Sequence[str | None],
    path: Container[str],
    obstacles: list[TrainingError] | None,
) -> Iterable[tuple[str, str | None]]:
    """Apply a node's rule; where it cannot be applied, go on as if it could or give nothing."""
    rule = find_rule(node)
    wanted = [value in path for value in node.input]
    try:
        if rule is not None:
            return zip(node.input, rule(graph, node, dys, wanted), strict=True)
    except TrainingError as error:
        if obstacles is None:
            raise
        obstacles.append(error)
    if obstacles is None:
        return ()
    return [(value, _UNKNOWN) for value in sorted(values_read_by(node))]


def no_gradient(names: Sequence[str]) -> TrainingError:
    """Return the error for tensors that the output does not depend on."""
    return TrainingError(
        "E-MODEL-NO-GRADIENT",
        "trainable tensors that the output depends on",
        f"no gradient for {', '.join(repr(name) for name in names)}",
        "leave them out of the trainable tensors",
    )


def _total(graph: GraphEmitter, gradients: list[str]) -> str | None:
    """Add up the gradients of a value that several nodes read."""
    if not gradients:
        return None
    return gradients[0] if len(gradients) == 1 else graph.emit("Sum", *gradients)


def _require_all(
    graph: GraphEmitter, trainable: Sequence[str], contributions: dict[str, list[str]]
) -> dict[str, str]:
    gradients: dict[str, str] = {}
    without: list[str] = []
    for name in trainable:
        total = _total(graph, contributions.get(name, []))
        if total is None:
            without.append(name)
        else:
            gradients[name] = total
    if without:
        raise no_gradient(without)
    return gradients
