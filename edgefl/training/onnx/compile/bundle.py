"""Prepares a training bundle from an ONNX model: the compiler's entry point."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import helper

from edgefl.errors import TrainingError
from edgefl.training.bundle import EVAL_ONNX, EXPORT_TEMPLATE, TRAIN_ONNX, pack_bundle
from edgefl.training.kinds import ElementType, Loss, Optimizer, Runtime
from edgefl.training.manifest import Manifest, Program, TensorSpec, slots_of
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.check import (
    Logits,
    dropout_warnings,
    find_logits,
    require_rules,
)
from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter, values_read_by
from edgefl.training.onnx.compile.losses import LOSSES
from edgefl.training.onnx.compile.normalize import (
    MINIMUM_ONNXRUNTIME,
    TARGET_IR_VERSION,
    TARGET_OPSET,
    load_model,
    normalize,
)
from edgefl.training.onnx.compile.optim import OPTIMIZERS
from edgefl.training.onnx.compile.select import ALL, select_trainable
from edgefl.training.onnx.compile.template import float_values, make_template


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedBundle:
    """The result of a preparation.

    Attributes:
        bundle_bytes: The bundle file.
        manifest: Its manifest, without file hashes.
        warnings: What the user should know, one line each.
    """

    bundle_bytes: bytes
    manifest: Manifest
    warnings: tuple[str, ...]


def prepare_bundle(
    model_path: Path,
    *,
    out_path: Path,
    loss: str = "cross_entropy",
    trainable: str | Sequence[str] = ALL,
    optimizer: str = "sgd",
) -> PreparedBundle:
    """Prepare a model file for training on devices and write the bundle.

    Args:
        model_path: An ONNX model with one input and logits [batch, classes] as first output.
        out_path: Where to write; its folder must exist.
        loss: `cross_entropy`.
        trainable: `all`, `head`, or names of initializers.
        optimizer: `sgd`.

    Returns:
        What was written, and warnings.

    Raises:
        TrainingError: The model cannot be trained; the message names every obstacle.
    """
    prepared = compile_bundle(
        load_model(model_path), loss=loss, trainable=trainable, optimizer=optimizer
    )
    out_path.write_bytes(prepared.bundle_bytes)
    return prepared


def compile_bundle(
    source: onnx.ModelProto,
    *,
    loss: str = "cross_entropy",
    trainable: str | Sequence[str] = ALL,
    optimizer: str = "sgd",
) -> PreparedBundle:
    """Prepare a model in memory; see `prepare_bundle`."""
    _require_known("loss", loss, sorted(kind.value for kind in LOSSES))
    _require_known("optimizer", optimizer, sorted(kind.value for kind in OPTIMIZERS))
    source_sha256 = hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()
    model = normalize(source)
    logits = find_logits(model)
    forward = ancestors(model.graph.node, logits.name)
    selected = select_trainable(_reduced(model.graph, forward), trainable)
    require_rules(forward, selected)
    template = make_template(model, selected)
    manifest = _manifest(
        model,
        logits,
        selected,
        template.splice_offsets,
        source_sha256,
        Loss(loss),
        Optimizer(optimizer),
    )
    contents = {
        TRAIN_ONNX: _serialize(_train_graph(model, forward, manifest)),
        EVAL_ONNX: _serialize(_eval_graph(model, forward, manifest)),
        EXPORT_TEMPLATE: template.template,
    }
    bundle_bytes = pack_bundle(manifest, contents, initial_params=float_values(model, selected))
    warnings = (*logits.warnings, *dropout_warnings(forward))
    return PreparedBundle(bundle_bytes=bundle_bytes, manifest=manifest, warnings=warnings)


def ancestors(nodes: Sequence[onnx.NodeProto], *values: str) -> list[onnx.NodeProto]:
    """Return the nodes that the values depend on, in execution order."""
    needed = set(values)
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if any(output in needed for output in node.output):
            kept.append(node)
            needed.update(values_read_by(node))
    return kept[::-1]


def _require_known(what: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise TrainingError(
            f"E-MODEL-{what.upper()}", f"a {what} among {', '.join(known)}", repr(name), ""
        )


def _reduced(graph: onnx.GraphProto, forward: list[onnx.NodeProto]) -> onnx.GraphProto:
    return helper.make_graph(forward, graph.name, [], [], list(graph.initializer))


def _manifest(
    model: onnx.ModelProto,
    logits: Logits,
    selected: Sequence[str],
    splice_offsets: dict[str, int],
    source_sha256: str,
    loss: Loss,
    optimizer: Optimizer,
) -> Manifest:
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    model_input = model.graph.input[0]
    return Manifest(
        parameters=slots_of((name, tuple(tensors[name].dims)) for name in selected),
        frozen=tuple(_spec_of(t) for name, t in tensors.items() if name not in selected),
        input=TensorSpec(name=model_input.name, shape=_example_shape(model_input)),
        output=TensorSpec(name=logits.name, shape=(logits.classes,)),
        loss=loss,
        optimizer=optimizer,
        programs=(
            Program(
                runtime=Runtime.ONNX,
                minimum_version=MINIMUM_ONNXRUNTIME,
                facts={"opset": TARGET_OPSET, "ir_version": TARGET_IR_VERSION},
            ),
        ),
        splice_offsets=tuple(splice_offsets[name] for name in selected),
        source_sha256=source_sha256,
        files={},
    )


def _spec_of(tensor: onnx.TensorProto) -> TensorSpec:
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type).name
    known = {kind.value for kind in ElementType}
    return TensorSpec(
        name=tensor.name,
        shape=tuple(tensor.dims),
        element_type=ElementType(dtype) if dtype in known else ElementType.OTHER,
    )


def _example_shape(model_input: onnx.ValueInfoProto) -> tuple[int, ...]:
    tensor = model_input.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim[1:]]
    if tensor.elem_type != onnx.TensorProto.FLOAT or not tensor.shape.dim or 0 in sizes:
        raise TrainingError(
            "E-MODEL-INPUTS",
            "a float32 input whose sizes past the batch axis are fixed",
            f"'{model_input.name}' with sizes {['?' if size == 0 else size for size in sizes]}",
            "export the model with fixed sizes and float32 input",
        )
    return tuple(sizes)


def _train_graph(
    model: onnx.ModelProto, forward: list[onnx.NodeProto], manifest: Manifest
) -> onnx.GraphProto:
    emitter = GraphEmitter(model)
    emitted = LOSSES[manifest.loss](emitter, manifest.output.name, manifest.classes)
    selected = [slot.name for slot in manifest.parameters]
    gradients = differentiate(
        emitter, forward, selected, manifest.output.name, emitted.logits_gradient
    )
    step = OPTIMIZERS[manifest.optimizer]
    results = {
        names.updated(name): step(emitter, name, gradient) for name, gradient in gradients.items()
    }
    results[names.LOSS] = emitted.loss
    named = [helper.make_node("Identity", [value], [name]) for name, value in results.items()]
    nodes = ancestors([*forward, *emitter.nodes, *named], *results)
    floats, integers = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    inputs = [
        *_forward_inputs(model, manifest),
        helper.make_tensor_value_info(names.TARGET, integers, [names.BATCH_AXIS]),
        helper.make_tensor_value_info(names.SAMPLE_WEIGHT, floats, [names.BATCH_AXIS]),
        helper.make_tensor_value_info(names.LEARNING_RATE, floats, [1]),
    ]
    outputs = [helper.make_tensor_value_info(names.LOSS, floats, [])]
    outputs += [
        helper.make_tensor_value_info(names.updated(slot.name), floats, list(slot.shape))
        for slot in manifest.parameters
    ]
    constants = [*_frozen(model, selected), *emitter.constants]
    return helper.make_graph(nodes, "train_step", inputs, outputs, _used(constants, nodes))


def _eval_graph(
    model: onnx.ModelProto, forward: list[onnx.NodeProto], manifest: Manifest
) -> onnx.GraphProto:
    output = helper.make_tensor_value_info(
        manifest.output.name, onnx.TensorProto.FLOAT, [names.BATCH_AXIS, manifest.classes]
    )
    frozen = _frozen(model, [slot.name for slot in manifest.parameters])
    inputs = _forward_inputs(model, manifest)
    return helper.make_graph(forward, "evaluate", inputs, [output], _used(frozen, forward))


def _forward_inputs(model: onnx.ModelProto, manifest: Manifest) -> list[onnx.ValueInfoProto]:
    parameters = [
        helper.make_tensor_value_info(slot.name, onnx.TensorProto.FLOAT, list(slot.shape))
        for slot in manifest.parameters
    ]
    return [model.graph.input[0], *parameters]


def _frozen(model: onnx.ModelProto, selected: Sequence[str]) -> list[onnx.TensorProto]:
    return [tensor for tensor in model.graph.initializer if tensor.name not in selected]


def _used(tensors: list[onnx.TensorProto], nodes: list[onnx.NodeProto]) -> list[onnx.TensorProto]:
    read = {value for node in nodes for value in values_read_by(node)}
    return [tensor for tensor in tensors if tensor.name in read]


def _serialize(graph: onnx.GraphProto) -> bytes:
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", TARGET_OPSET)],
        ir_version=TARGET_IR_VERSION,
        producer_name="edgefl",
    )
    onnx.checker.check_model(model, full_check=True)
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized
