"""Brings any exporter's model into the one form that the compiler reads, or refuses it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import onnx
from onnx import checker, inliner, shape_inference, version_converter

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.batch_axis import (
    Exported,
    drop_zero_states,
    free_baked_shapes,
    open_batch_axis,
)
from edgefl.training.onnx.compile.decompose import decompose
from edgefl.training.onnx.compile.fold import fold_constants
from edgefl.training.onnx.compile.graph_edit import GraphEdit, mark_weights
from edgefl.training.onnx.compile.lower_opset import lower_opset
from edgefl.training.onnx.compile.same_results import require_same_results
from edgefl.training.onnx.compile.sizes import resolve_sizes
from edgefl.training.onnx.names import PREFIX

TARGET_OPSET: Final = 17
"""Newest operator set that onnxruntime 1.16.3 and every later one read alike."""
TARGET_IR_VERSION: Final = 8
MINIMUM_ONNXRUNTIME: Final = "1.16.3"
_STANDARD_DOMAINS: Final = frozenset({"", "ai.onnx"})
_PRECISIONS: Final = {
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.BFLOAT16: "bfloat16",
    onnx.TensorProto.DOUBLE: "float64",
}
# Each round follows one more shape that depends on another; models seen so far needed at most 4.
_LARGEST_ROUNDS: Final = 60


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

    Functions are inlined, newer operators are written in opset 17's words, constants are computed,
    shapes computed at run time are resolved, and the batch axis is opened. Constants of the graph
    itself, which are no weights, can be told by `graph_edit.is_setting`. Where anything was
    rewritten, source and copy are run on the same random inputs and must agree.

    Args:
        source: A valid model with one input; its first axis is the batch.

    Returns:
        The copy; its batch axis is symbolic.

    Raises:
        TrainingError: E-MODEL-EXTERNAL-DATA, E-MODEL-INVALID, E-MODEL-INPUTS, E-MODEL-PRECISION,
            E-MODEL-OPSET, E-MODEL-NAMES, E-MODEL-BATCH, E-MODEL-SHAPE or E-MODEL-CONVERSION.
    """
    _require_internal_data(source.graph.initializer)
    _require_valid(source)
    model = inliner.inline_local_functions(source) if source.functions else _copy(source)
    _drop_initializers_from_inputs(model.graph)
    _require_single_precision(model.graph)
    _require_free_names(model.graph)
    version = _opset_of(model)
    if version < TARGET_OPSET:
        model = _raised(model, version)
    edit = GraphEdit(model.graph, max(version, TARGET_OPSET))
    edit.rewrites += version < TARGET_OPSET or bool(source.functions)
    _name_apart(model.graph)
    fold_constants(edit)
    _untie_aliases(edit)
    edit.infer()
    if version > TARGET_OPSET:
        lower_opset(edit, TARGET_OPSET)
    edit.infer()
    before = edit.all_sizes()
    baked = open_batch_axis(model.graph)
    _settle(edit, None if baked is None else Exported(batch=baked, sizes=before))
    _require_shapes(edit, is_baked=baked is not None)
    edit.keep_inferred()
    _require_possible_sizes(model.graph)
    mark_weights(edit)
    model.ir_version = TARGET_IR_VERSION
    del model.opset_import[:], model.functions[:]
    model.opset_import.append(onnx.helper.make_opsetid("", TARGET_OPSET))
    model.opset_import.extend(e for e in source.opset_import if e.domain not in _STANDARD_DOMAINS)
    if edit.rewrites or baked is not None:
        require_same_results(source, model, baked)
    return model


def _settle(edit: GraphEdit, exported: Exported | None) -> None:
    """Resolve shapes and fold constants until nothing changes."""
    for _ in range(_LARGEST_ROUNDS):
        edit.infer()
        decompose(edit)
        drop_zero_states(edit)
        changed = resolve_sizes(edit)
        fold_constants(edit)
        changed |= _untie_aliases(edit)
        edit.drop_identities()
        edit.drop_unused()
        edit.infer()
        if not changed and (exported is None or not free_baked_shapes(edit, exported)):
            break


def _require_valid(source: onnx.ModelProto) -> None:
    try:
        checker.check_model(source)
    except (checker.ValidationError, ValueError) as error:
        raise TrainingError(
            "E-MODEL-INVALID", "a valid ONNX model", _first_line(error), "export the model again"
        ) from error


def _require_shapes(edit: GraphEdit, *, is_baked: bool) -> None:
    try:
        edit.infer(strict=True)
    except shape_inference.InferenceError as error:
        if not is_baked:
            raise TrainingError(
                "E-MODEL-INVALID",
                "a model whose shapes and types agree",
                _first_line(error),
                "export the model again; onnxruntime could not run it either",
            ) from error
        raise TrainingError(
            "E-MODEL-BATCH",
            "a model that takes any batch size",
            _first_line(error),
            "export with a dynamic batch axis and no batch size in a Reshape",
        ) from error


def _require_possible_sizes(graph: onnx.GraphProto) -> None:
    """Refuse sizes below zero, which onnx infers for windows larger than what they slide on."""
    makers = {value: node for node in graph.node for value in node.output}
    for value in [*graph.value_info, *graph.output]:
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if min(sizes, default=0) < 0 and value.name in makers:
            raise TrainingError(
                "E-MODEL-SHAPE",
                "values of one size or more along each axis",
                f"sizes {sizes} made by {describe(makers[value.name])}",
                "export the model again with an input that its windows fit on",
            )


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


def _untie_aliases(edit: GraphEdit) -> bool:
    """Give each Identity of an initializer a tensor of its own.

    Exporters merge initializers of equal value behind Identity; training one would then move the
    others, which in the source are separate.

    Returns:
        Whether there was one.
    """
    outputs = {value.name for value in edit.graph.output}
    kept: list[onnx.NodeProto] = []
    for node in edit.graph.node:
        original = edit.constant(node.input[0]) if node.op_type == "Identity" else None
        if original is None or node.output[0] in outputs:
            kept.append(node)
        else:
            edit.add_weight(node.output[0], original)
    found = len(kept) < len(edit.graph.node)
    if found:
        edit.replace_nodes(kept)
    return found


def _name_apart(graph: onnx.GraphProto) -> None:
    """Give nodes of the same name other ones; onnxruntime refuses two nodes of one name."""
    seen: set[str] = set()
    for node in graph.node:
        if node.name in seen:
            node.name = f"{node.name}/{node.output[0]}"
        if node.name:
            seen.add(node.name)


def _require_single_precision(graph: onnx.GraphProto) -> None:
    """Refuse models in half or double precision, naming some of their tensors."""
    values = [(value.name, value.type.tensor_type.elem_type) for value in graph.input]
    values += [(tensor.name, tensor.data_type) for tensor in graph.initializer]
    other = [f"'{name}' of {_PRECISIONS[kind]}" for name, kind in values if kind in _PRECISIONS]
    if other:
        raise TrainingError(
            "E-MODEL-PRECISION",
            "a model in float32",
            ", ".join(other[:5]),
            "export it in float32 (in PyTorch: model.float()); to save memory on the device, "
            "quantize it to int8 instead",
        )


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


def _opset_of(model: onnx.ModelProto) -> int:
    versions = [e.version for e in model.opset_import if e.domain in _STANDARD_DOMAINS]
    return int(versions[0]) if versions else 0


def _raised(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Bring a model of an older operator set to the target."""
    try:
        return version_converter.convert_version(model, TARGET_OPSET)
    except Exception as error:  # the converter's C++ errors have no common Python type
        raise TrainingError(
            "E-MODEL-OPSET",
            f"a model that converts to opset {TARGET_OPSET}",
            f"opset {version}: {_first_line(error)}",
            f"export the model with opset {TARGET_OPSET}",
        ) from error


def _unreadable(found: str) -> TrainingError:
    return TrainingError(
        "E-MODEL-UNREADABLE", "a readable ONNX model", found, "check the path and export it again"
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
