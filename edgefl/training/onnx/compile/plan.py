"""What was decided about a model before its graphs are emitted."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgefl.training.manifest import Quantization
from edgefl.training.onnx.compile.differentiate import values_on_path
from edgefl.training.onnx.compile.graph import known_shapes, known_types
from edgefl.training.onnx.compile.lora import LoraLayer, add_lora
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.output import ModelOutput, find_output
from edgefl.training.onnx.compile.quantize.forms import Quantizer
from edgefl.training.onnx.compile.quantize.rounding import Grid
from edgefl.training.onnx.compile.select import parse_selection, select_local, select_trainable
from edgefl.training.onnx.compile.split import FrontPart, ancestors, find_front
from edgefl.training.onnx.compile.weights import LAYER_OPERATORS, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A model with the choices that its graphs follow.

    Attributes:
        base: Normalized model, as it is exported.
        model: The same as it is trained: with low-rank changes, and with the rounding that a
            quantized mode brings.
        whole: The same as it is measured: without the rounding of trained weights.
        output: The value that the loss reads.
        forward: The nodes of `model` that the output depends on, in execution order.
        averaged: Trained tensors of the flat vector, in its order.
        local: Trained tensors that stay on the device, in their order.
        lora: Low-rank changes.
        front: The frozen front part; None if the training graph reads the input.
        grids: By name of a trained weight, the grid that each step rounds it to.
        int8_files: Content of the int8 export's files by name.
        quantization: For the manifest.
        warnings: What the user should know, one line each.
        options: What was asked for.
    """

    base: onnx.ModelProto
    model: onnx.ModelProto
    output: ModelOutput
    forward: tuple[onnx.NodeProto, ...]
    averaged: tuple[str, ...]
    local: tuple[str, ...]
    lora: tuple[LoraLayer, ...]
    front: FrontPart | None
    whole: onnx.ModelProto
    grids: Mapping[str, Grid]
    int8_files: Mapping[str, bytes]
    quantization: Quantization
    warnings: tuple[str, ...]
    options: CompileOptions

    @property
    def trained(self) -> tuple[str, ...]:
        """Return all trained tensors, averaged ones first."""
        return (*self.averaged, *self.local)

    @property
    def input(self) -> onnx.ValueInfoProto:
        """Return the model's input."""
        first: onnx.ValueInfoProto = self.model.graph.input[0]
        return first

    @property
    def whole_forward(self) -> list[onnx.NodeProto]:
        """Return the nodes of `whole` that the output depends on, in execution order."""
        return ancestors(self.whole.graph.node, self.output.name)

    @property
    def trained_forward(self) -> list[onnx.NodeProto]:
        """Return the forward nodes of the training graph: those behind the front part."""
        features = [] if self.front is None else [f.name for f in self.front.features]
        return ancestors(self.forward, self.output.name, given=features)


def make_plan(
    base: onnx.ModelProto, options: CompileOptions, *, source_names: Collection[str] = ()
) -> Plan:
    """Decide what is trained, what is rounded, and where the model is split.

    Args:
        base: Normalized model; a quantized one is opened first.
        options: What is asked for.
        source_names: Names of the source model's initializers.

    Raises:
        TrainingError: E-MODEL-OUTPUT, E-MODEL-TRAINABLE, E-MODEL-LOCAL, E-MODEL-LORA,
            E-MODEL-CALIBRATION or E-MODEL-NO-GRADIENT.
        DataError: E-CALIBRATION-ROWS.
    """
    wanted = options.quantization
    quantizer = Quantizer(base, wanted.mode, wanted.calibration)
    base = quantizer.model
    output = find_output(base, options.loss)
    base_forward = ancestors(base.graph.node, output.name)
    reduced = onnx.GraphProto(name=base.graph.name)
    reduced.node.extend(base_forward)
    reduced.initializer.extend(base.graph.initializer)
    selection = parse_selection(options.trainable)
    chosen: tuple[str, ...] = ()
    if selection.terms or not selection.lora:
        chosen = select_trainable(reduced, selection.terms, source_names=source_names)
    model, warnings = base, list(output.warnings)
    lora: tuple[LoraLayer, ...] = ()
    if selection.lora:
        changed = add_lora(
            base,
            selection.lora,
            untouched=chosen,
            alpha=options.lora_alpha,
            seed=options.seed,
        )
        model, lora = changed.model, changed.layers
        if changed.skipped:
            warnings.append(f"no low-rank change for {', '.join(changed.skipped)}")
        chosen = (*chosen, *(name for layer in lora for name in layer.trained))
    exported = [name for name in chosen if not any(name in layer.trained for layer in lora)]
    forms = quantizer.forms(
        chosen, training_model=model, changed=[*exported, *(layer.weight for layer in lora)]
    )
    model = forms.training
    forward = tuple(ancestors(model.graph.node, output.name))
    local = select_local(reduced, chosen, parse_selection(options.local).terms)
    warnings += [
        *forms.warnings,
        *_dropout_warnings(forward),
        *_tied_warnings(Weights(reduced), chosen),
    ]
    return Plan(
        base=base,
        model=model,
        output=output,
        forward=forward,
        averaged=tuple(name for name in chosen if name not in local),
        local=local,
        lora=lora,
        front=_front(model, forward, chosen) if options.splits_front else None,
        whole=forms.whole,
        grids=forms.grids,
        int8_files=forms.files,
        quantization=forms.quantization,
        warnings=tuple(warnings),
        options=options,
    )


def _front(
    model: onnx.ModelProto, forward: Sequence[onnx.NodeProto], trained: Sequence[str]
) -> FrontPart | None:
    path = values_on_path(forward, trained)
    return find_front(
        forward, path, model.graph.input[0].name, known_shapes(model), known_types(model)
    )


def _tied_warnings(weights: Weights, trained: Sequence[str]) -> list[str]:
    """Return a line for each trained tensor that several layers share."""
    counts = {
        name: sum(use.node.op_type in LAYER_OPERATORS for use in weights.uses(name))
        for name in trained
    }
    return [
        f"'{name}' is read by {count} layers and trained as one"
        for name, count in counts.items()
        if count > 1
    ]


def _dropout_warnings(nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """Return one line for all Dropouts, since they will drop nothing."""
    dropouts = [node.name or node.output[0] for node in nodes if node.op_type == "Dropout"]
    if not dropouts:
        return []
    return [f"Dropout {', '.join(map(repr, dropouts))} drops nothing while training on a device"]
