"""Chooses which tensors of a model are trained."""

import difflib
from collections.abc import Sequence

import onnx

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.differentiate import no_gradient

ALL = "all"
HEAD = "head"
_LINEAR_OPERATORS = frozenset({"Conv", "Gemm", "MatMul"})


def select_trainable(graph: onnx.GraphProto, wanted: str | Sequence[str]) -> tuple[str, ...]:
    """Return the trainable tensors in the model's own order, which becomes the flat order.

    Args:
        graph: Prepared forward graph.
        wanted: `all`, `head` (the last linear layer and whatever follows it), or a list of names.

    Returns:
        Names, at least one.

    Raises:
        TrainingError: E-MODEL-TRAINABLE for unknown names (with close matches) or an empty choice;
            E-MODEL-NO-GRADIENT for tensors that the output does not depend on.
    """
    candidates = trainable_candidates(graph)
    chosen = set(_choose(graph, candidates, wanted))
    if not chosen:
        raise TrainingError(
            "E-MODEL-TRAINABLE",
            "at least one float32 tensor to train",
            "none",
            "export the model with its weights as initializers",
        )
    return tuple(name for name in candidates if name in chosen)


def trainable_candidates(graph: onnx.GraphProto) -> list[str]:
    """Return the float32 initializers with at least one axis that some node reads.

    Scalars are settings (slopes, bounds, quantization scales) rather than weights.
    """
    used = {value for node in graph.node for value in node.input}
    return [
        tensor.name
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.dims and tensor.name in used
    ]


def _choose(
    graph: onnx.GraphProto, candidates: list[str], wanted: str | Sequence[str]
) -> list[str]:
    if wanted == ALL:
        return candidates
    if wanted == HEAD:
        return _head(graph, candidates)
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    floats = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    unknown = [name for name in names if name not in floats]
    if unknown:
        close = [match for name in unknown for match in difflib.get_close_matches(name, candidates)]
        raise TrainingError(
            "E-MODEL-TRAINABLE",
            "names of float32 initializers",
            ", ".join(repr(name) for name in unknown),
            f"did you mean {', '.join(close)}?" if close else f"there are {', '.join(candidates)}",
        )
    unread = [name for name in names if name not in candidates]
    if unread:
        raise no_gradient(unread)
    return names


def _head(graph: onnx.GraphProto, candidates: list[str]) -> list[str]:
    found: list[str] = []
    for node in reversed(graph.node):
        found += [value for value in node.input if value in candidates]
        if found and node.op_type in _LINEAR_OPERATORS:
            break
    return found
