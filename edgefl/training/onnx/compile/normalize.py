"""Brings any exporter's model into the one form that the compiler reads, or refuses it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import onnx
from onnx import checker, inliner, shape_inference, version_converter

from edgefl.errors import TrainingError
from edgefl.training.onnx.names import BATCH_AXIS, PREFIX

TARGET_OPSET: Final = 17
"""Newest operator set that onnxruntime 1.16.3 and every later one read alike."""
TARGET_IR_VERSION: Final = 8
MINIMUM_ONNXRUNTIME: Final = "1.16.3"


def load_model(path: Path) -> onnx.ModelProto:
    """Read a model file.

    Raises:
        TrainingError: E-MODEL-UNREADABLE.
    """
    try:
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        found = error.strerror or type(error).__name__
        raise _unreadable(f"{path}: {found}") from error
    except Exception as error:  # what a damaged file raises depends on the protobuf release
        raise _unreadable(f"{path} is no ONNX file") from error


def normalize(source: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in opset 17 and IR 8 with weights as initializers and known shapes.

    Args:
        source: A valid model with one input; its first axis is the batch.

    Returns:
        The copy; its batch axis is symbolic.

    Raises:
        TrainingError: E-MODEL-EXTERNAL-DATA, E-MODEL-INVALID, E-MODEL-INPUTS, E-MODEL-OPSET or
            E-MODEL-NAMES.
    """
    _require_internal_data(source.graph.initializer)
    try:
        checker.check_model(source)
    except (checker.ValidationError, ValueError) as error:
        raise TrainingError(
            "E-MODEL-INVALID", "a valid ONNX model", _first_line(error), "export the model again"
        ) from error
    model = inliner.inline_local_functions(source) if source.functions else _copy(source)
    _constants_to_initializers(model.graph)
    _untie_aliases(model.graph)
    _drop_initializers_from_inputs(model.graph)
    _require_free_names(model.graph)
    model = _at_target_opset(model)
    model.ir_version = TARGET_IR_VERSION
    _open_batch_axis(model.graph)
    try:
        return shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        raise TrainingError(
            "E-MODEL-BATCH",
            "a model that takes any batch size",
            _first_line(error),
            "export with a dynamic batch axis and no batch size in a Reshape",
        ) from error


def _copy(source: onnx.ModelProto) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(source)
    return model


def _require_internal_data(tensors: Iterable[onnx.TensorProto]) -> None:
    external = [t.name for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL]
    if external:
        raise TrainingError(
            "E-MODEL-EXTERNAL-DATA",
            "weights inside the model file",
            f"external data for {', '.join(external[:5])}",
            "save the model as one file",
        )


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        tensors = [a.t for a in node.attribute if a.name == "value"]
        if node.op_type != "Constant" or not tensors:
            kept.append(node)
            continue
        tensor = onnx.TensorProto()
        tensor.CopyFrom(tensors[0])
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
    _replace_nodes(graph, kept)


def _untie_aliases(graph: onnx.GraphProto) -> None:
    """Give each Identity of an initializer a tensor of its own.

    Exporters merge initializers of equal value behind Identity; training one would then move the
    others, which in the source are separate.
    """
    by_name = {tensor.name: tensor for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        original = by_name.get(node.input[0]) if node.op_type == "Identity" else None
        if original is None or node.output[0] in outputs:
            kept.append(node)
            continue
        tensor = onnx.TensorProto()
        tensor.CopyFrom(original)
        tensor.name = node.output[0]
        by_name[tensor.name] = tensor
        graph.initializer.append(tensor)
    _replace_nodes(graph, kept)


def _replace_nodes(graph: onnx.GraphProto, kept: list[onnx.NodeProto]) -> None:
    copies = [_copy_node(node) for node in kept]
    del graph.node[:]
    graph.node.extend(copies)


def _copy_node(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _drop_initializers_from_inputs(graph: onnx.GraphProto) -> None:
    initializers = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in initializers]
    if len(inputs) != 1:
        raise TrainingError(
            "E-MODEL-INPUTS",
            "a model with one input",
            f"{len(inputs)}: {', '.join(value.name for value in inputs)}",
            "combine the inputs into one tensor",
        )
    only = onnx.ValueInfoProto()
    only.CopyFrom(inputs[0])
    del graph.input[:]
    graph.input.append(only)


def _require_free_names(graph: onnx.GraphProto) -> None:
    names = [value for node in graph.node for value in [*node.input, *node.output]]
    taken = sorted({name for name in names if name.startswith(PREFIX)})
    if taken:
        raise TrainingError(
            "E-MODEL-NAMES",
            f"no value named '{PREFIX}...'",
            ", ".join(taken[:5]),
            "prepare the source model, not a training graph",
        )


def _at_target_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    version = next(
        (entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), 0
    )
    if version == TARGET_OPSET:
        return model
    try:
        return version_converter.convert_version(model, TARGET_OPSET)
    except Exception as error:  # the converter's C++ errors have no common Python type
        raise TrainingError(
            "E-MODEL-OPSET",
            f"a model that converts to opset {TARGET_OPSET}",
            f"opset {version}: {_first_line(error)}",
            f"export the model with opset {TARGET_OPSET}",
        ) from error


def _open_batch_axis(graph: onnx.GraphProto) -> None:
    """Make the batch axis symbolic; forget inferred shapes, which may hold a batch size."""
    for value in [*graph.input, *graph.output]:
        shape = value.type.tensor_type.shape
        if shape.dim:
            shape.dim[0].Clear()
            shape.dim[0].dim_param = BATCH_AXIS
    del graph.value_info[:]


def _unreadable(found: str) -> TrainingError:
    return TrainingError(
        "E-MODEL-UNREADABLE", "a readable ONNX model", found, "check the path and export it again"
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
