"""Refuses models whose parts cannot be read, before anything else looks at them.

onnx's own checker looks neither at the encoding of names nor into tensors within attributes, and it
takes nodes and graphs without outputs.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from edgefl.errors import TrainingError

_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE})
# Far more than any model for a board; functions that call each other twice double at each level.
_MOST_NODES = 200_000


def require_sound(source: onnx.ModelProto) -> None:
    """Look at every name, node and tensor of a model.

    Args:
        source: A model as it was parsed.

    Raises:
        TrainingError: E-MODEL-INVALID for a part that cannot be read, E-MODEL-WEIGHTS for weights
            that are no numbers.
    """
    fault = next(_faults(source), None)
    if fault is not None:
        raise TrainingError(
            "E-MODEL-INVALID", "a valid ONNX model", fault, "export the model again"
        )
    for tensor in source.graph.initializer:
        _require_numbers(tensor)


def _faults(source: onnx.ModelProto) -> Iterator[str]:
    """Yield what is wrong; each check may rely on those before it."""
    if not _is_text(source):
        yield "a name that is no UTF-8 text"
    if not source.graph.output:
        yield "a graph without outputs"
    if source.graph.sparse_initializer:
        yield f"{len(source.graph.sparse_initializer)} sparse tensors; store them as dense ones"
    bodies = [source.graph.node, *(function.node for function in source.functions)]
    for nodes in bodies:
        yield from _node_faults(nodes)
    yield from _tensor_faults(source.graph.initializer)
    if _nodes_when_inlined(source) > _MOST_NODES:
        yield f"functions that call each other more than {_MOST_NODES} times"


def _node_faults(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        if not any(node.output):
            yield f"{node.op_type} '{node.name}' without an output"
        for attribute in node.attribute:
            yield from _tensor_faults([attribute.t] if attribute.HasField("t") else [])
            yield from _tensor_faults(attribute.tensors)
            for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                yield from _tensor_faults(graph.initializer)
                yield from _node_faults(graph.node)


def _tensor_faults(tensors: Iterable[onnx.TensorProto]) -> Iterator[str]:
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            # Refused later, with advice of its own.
            continue
        try:
            numpy_helper.to_array(tensor)
        except Exception:  # noqa: BLE001 - of a damaged tensor it raises whatever comes first
            yield f"tensor '{tensor.name}' whose type, sizes and values do not agree"


def _require_numbers(tensor: onnx.TensorProto) -> None:
    if tensor.data_type not in _FLOATS or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return
    # What a mask adds, and a bound, may well be infinite.
    if np.isnan(numpy_helper.to_array(tensor)).any():
        raise TrainingError(
            "E-MODEL-WEIGHTS",
            "weights that are numbers",
            f"NaN in '{tensor.name}'",
            "its training diverged; export an earlier state",
        )


def _is_text(message: onnx.ModelProto) -> bool:
    """Tell whether every text in a message can be decoded.

    Its fields are found by what they are: releases of protobuf describe them differently.
    """
    try:
        for field, value in message.ListFields():
            is_single = hasattr(value, "ListFields") or isinstance(value, str | bytes | int | float)
            values = [value] if is_single else value
            if field.type == field.TYPE_MESSAGE and not all(map(_is_text, values)):
                return False
            if field.type == field.TYPE_STRING and not all(isinstance(v, str) for v in values):
                return False
    except UnicodeDecodeError:
        return False
    return True


def _nodes_when_inlined(source: onnx.ModelProto) -> int:
    """Return how many nodes there are once each call stands for its function's nodes."""
    functions = {(one.domain, one.name): one for one in source.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size_of(nodes: Iterable[onnx.NodeProto], open_calls: frozenset[tuple[str, str]]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            # A function that calls itself is refused by onnx's checker.
            if key not in functions or key in open_calls:
                total += 1
                continue
            if key not in sizes:
                sizes[key] = size_of(functions[key].node, open_calls | {key})
            total += sizes[key]
        return total

    return size_of(source.graph.node, frozenset())
