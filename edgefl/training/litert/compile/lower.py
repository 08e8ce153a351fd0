"""Writes a training bundle's ONNX graphs as TFLite files: one compiler serves both runtimes."""

from collections.abc import Sequence
from dataclasses import replace

import onnx

from edgefl.errors import TrainingError
from edgefl.training.bundle import FEATURES_TFLITE, MODEL_TFLITE
from edgefl.training.kinds import Runtime
from edgefl.training.litert.compile.correlations import use_correlations
from edgefl.training.litert.compile.integer_layers import (
    find_integer_layers,
    write_integer_layer,
)
from edgefl.training.litert.compile.lowering import Lowering, Unsupported
from edgefl.training.litert.compile.rules import registry
from edgefl.training.litert.compile.static_graph import StaticGraph, make_static
from edgefl.training.litert.format.encode import write_model
from edgefl.training.litert.format.kinds import Builtin
from edgefl.training.litert.format.model import ModelFile, Signature, Subgraph
from edgefl.training.litert.format.tidy import drop_unread
from edgefl.training.litert.names import DEPLOY, FEATURES, INFER, TRAIN
from edgefl.training.manifest import Manifest, Program
from edgefl.training.onnx.compile.attributes import describe

DEFAULT_BATCH_ROWS = 16
MINIMUM_VERSION = "2.14.0"
"""Oldest release that runs the files: tflite-runtime; every ai-edge-litert is newer."""


def lower(
    train_model: onnx.ModelProto,
    eval_model: onnx.ModelProto,
    features_model: onnx.ModelProto | None,
    manifest: Manifest,
    *,
    batch_rows: int = DEFAULT_BATCH_ROWS,
) -> tuple[dict[str, bytes], Program]:
    """Write the TFLite form of a bundle.

    Args:
        train_model: One training step, with names as in `edgefl.training.onnx.names`.
        eval_model: The whole model with its parameters as inputs.
        features_model: The frozen front part, where the manifest lists features.
        manifest: The bundle's manifest; only its tensors' names are read.
        batch_rows: Rows of every call; a smaller batch is filled up with rows of weight 0.

    Returns:
        Files by name for `Bundle.contents`, and the program for the manifest.

    Raises:
        TrainingError: E-LITERT-OPERATORS with everything that has no builtin form, E-LITERT-SHAPE,
            or E-LITERT-BATCH.
    """
    if batch_rows < 1:
        raise TrainingError(
            "E-LITERT-BATCH", "at least 1 row per call", str(batch_rows), "set --batch-rows"
        )
    model = lower_entries({TRAIN: train_model, INFER: eval_model}, batch_rows=batch_rows)
    add_entries(model, lower_entries({DEPLOY: eval_model}, batch_rows=1))
    files = {MODEL_TFLITE: write_model(model)}
    if features_model is not None:
        front = lower_entries({FEATURES: features_model}, batch_rows=batch_rows)
        files[FEATURES_TFLITE] = write_model(front)
    program = Program(
        runtime=Runtime.LITERT,
        minimum_version=MINIMUM_VERSION,
        facts={"batch_rows": batch_rows, "parameters": manifest.dimension},
    )
    return files, program


def lower_entries(models: dict[str, onnx.ModelProto], *, batch_rows: int) -> ModelFile:
    """Return a TFLite model with one signature for each ONNX model.

    Args:
        models: ONNX models by name of the signature; the first is what a plain call runs.
        batch_rows: Size of every axis that has only a name.

    Returns:
        What the file will hold.

    Raises:
        TrainingError: E-LITERT-OPERATORS or E-LITERT-SHAPE.
    """
    subgraphs: list[Subgraph] = []
    signatures: list[Signature] = []
    for key, model in models.items():
        graph = use_correlations(make_static(model, batch_rows=batch_rows))
        subgraph = lower_graph(graph, key)
        subgraphs.append(subgraph)
        signatures.append(
            Signature(
                key=key,
                subgraph=len(subgraphs) - 1,
                inputs=dict(zip(graph.inputs, subgraph.inputs, strict=True)),
                outputs=dict(zip(graph.outputs, subgraph.outputs, strict=True)),
            )
        )
    return ModelFile(subgraphs=subgraphs, signatures=signatures)


def add_entries(model: ModelFile, other: ModelFile) -> None:
    """Append the entry points of another model."""
    moved = len(model.subgraphs)
    model.subgraphs += other.subgraphs
    model.signatures += [replace(one, subgraph=one.subgraph + moved) for one in other.signatures]


def lower_graph(graph: StaticGraph, name: str) -> Subgraph:
    """Write one graph with builtin operators.

    Args:
        graph: What to write.
        name: Of the subgraph, for people.

    Returns:
        The subgraph; inputs and outputs in the graph's order.

    Raises:
        TrainingError: E-LITERT-OPERATORS with everything that has no builtin form.
    """
    obstacles = [
        f"{describe(node)} (no such operator)"
        for node in graph.nodes
        if registry.find_rule(node) is None
    ]
    if obstacles:
        raise _unsupported(obstacles)
    low = Lowering(graph, name)
    layers = find_integer_layers(graph)
    absorbed = {value for layer in layers.values() for value in layer.absorbed}
    for node in graph.nodes:
        if node.output[0] in absorbed:
            continue
        rule, layer = registry.find_rule(node), layers.get(node.output[0])
        try:
            if layer is not None:
                write_integer_layer(low, layer, node)
            elif rule is not None:
                rule(low, node)
        except Unsupported as reason:
            obstacles.append(f"{describe(node)} ({reason})")
            _go_on_without(low, node)
    if obstacles:
        raise _unsupported(obstacles)
    for value in graph.outputs:
        low.subgraph.outputs.append(_own_tensor(low, value))
    drop_unread(low.subgraph)
    return low.subgraph


def _go_on_without(low: Lowering, node: onnx.NodeProto) -> None:
    """Give the outputs of a refused node empty tensors, so that later nodes are looked at too."""
    for output in node.output:
        if output:
            low.set(output, low.new_tensor(low.shape(output) or (1,), low.kind(output)))


def _own_tensor(low: Lowering, value: str) -> int:
    """Return a tensor for an output that is neither an input, nor a constant, nor taken."""
    tensor = low.plain(value)
    taken = {*low.subgraph.inputs, *low.subgraph.outputs}
    if tensor in taken or low.subgraph.tensors[tensor].content is not None:
        shape = low.tensor_shape(tensor)
        kind = low.subgraph.tensors[tensor].kind
        return low.emit(Builtin.RESHAPE, [tensor, low.int32s(shape)], shape, kind)
    return tensor


def _unsupported(obstacles: Sequence[str]) -> TrainingError:
    return TrainingError(
        "E-LITERT-OPERATORS",
        "a training step that TFLite's builtin operators can do",
        "; ".join(obstacles),
        "prepare the bundle for ONNX Runtime alone, or train only layers after these",
    )
