"""Emits the graphs of a bundle: one training step, the whole model, and its frozen front part."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto, helper

from edgefl.errors import TrainingError
from edgefl.training.kinds import ElementType, Loss, Optimizer
from edgefl.training.manifest import Facts, TensorSpec
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter, values_read_by
from edgefl.training.onnx.compile.losses import emit_loss
from edgefl.training.onnx.compile.normalize import TARGET_IR_VERSION, TARGET_OPSET
from edgefl.training.onnx.compile.optim import (
    TrainedTensor,
    emit_step,
    takes_scaled_gradients,
)
from edgefl.training.onnx.compile.plan import Plan
from edgefl.training.onnx.compile.quantize.rounding import round_to_grid
from edgefl.training.onnx.compile.results import name_results
from edgefl.training.onnx.compile.split import ancestors

_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainGraph:
    """One training step.

    Attributes:
        graph: Its graph.
        facts: What the manifest says of it.
        warnings: What the user should know, one line each.
    """

    graph: onnx.GraphProto
    facts: Facts
    warnings: tuple[str, ...]


def train_graph(plan: Plan) -> TrainGraph:
    """Return one training step.

    Raises:
        TrainingError: The model cannot be differentiated, or its frozen front part mixes examples
            that are to be clipped apart.
    """
    emitter = GraphEmitter(plan.model)
    forward = plan.trained_forward
    settings = plan.options.optimizer
    emitted = _emit_backward(emitter, plan, forward)
    shapes = _shapes_of(plan)
    trained = [
        TrainedTensor(
            name=name, shape=shapes[name], gradient=gradient, is_averaged=name in plan.averaged
        )
        for name, gradient in emitted.gradients.items()
    ]
    results = emit_step(emitter, trained, settings) | {names.LOSS: emitted.loss}
    for name, grid in plan.grids.items():
        rounded = round_to_grid(emitter, name, results[names.updated(name)], grid)
        results[names.updated(name)] = rounded
    outputs = [_float_info(names.LOSS, ())]
    if emitted.example_norms is not None:
        results[names.EXAMPLE_NORMS] = emitted.example_norms
        outputs.append(_row_info(names.EXAMPLE_NORMS))
    nodes = ancestors([*forward, *name_results(emitter.nodes, results)], *results)
    for name in plan.trained:
        outputs += [_float_info(value, shapes[name]) for value in _new_values(name, settings.kind)]
    constants = [*_frozen(plan), *emitter.constants]
    inputs = [*_data_inputs(plan), *_tensor_inputs(plan), *_step_inputs(plan)]
    graph = helper.make_graph(nodes, "train_step", inputs, outputs, _used(constants, nodes))
    return TrainGraph(graph=graph, facts=emitted.facts, warnings=emitted.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backward:
    loss: str
    gradients: dict[str, str]
    example_norms: str | None = None
    facts: Facts = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def _emit_backward(
    emitter: GraphEmitter, plan: Plan, forward: Sequence[onnx.NodeProto]
) -> _Backward:
    loss, output, size = plan.options.loss, plan.output.name, plan.output.size
    is_scaled = takes_scaled_gradients(plan.options.optimizer.kind)
    factor = names.LEARNING_RATE if is_scaled else None
    emitted = emit_loss(emitter, loss, output, size, factor=factor)
    if not plan.options.clips_examples:
        gradients = differentiate(emitter, forward, plan.trained, output, emitted.output_gradient)
        return _Backward(loss=emitted.loss, gradients=gradients)
    # Not at the head of the file: most preparations never need these rules.
    from edgefl.training.onnx.compile.perexample import ExampleForm, emit_clipped_gradients

    _require_separate_examples(plan)
    weights = emitted.weights
    clipped = emit_clipped_gradients(
        emitter,
        forward,
        plan.trained,
        batch_inputs=[value.name for value in _example_inputs(plan)],
        output=output,
        example_gradients=emitted.example_gradients,
        emit_example_gradients=lambda graph: emit_loss(graph, loss, output, size).example_gradients,
        weights=emitter.emit("Mul", weights, factor) if factor else weights,
    )
    slow = f"examples are clipped one after another, which is slower: {clipped.reason}"
    return _Backward(
        loss=emitted.loss,
        gradients=clipped.gradients,
        example_norms=clipped.norms,
        facts={"example_clipping": clipped.form.value},
        warnings=(slow,) if clipped.form is ExampleForm.SCAN else (),
    )


def _require_separate_examples(plan: Plan) -> None:
    from edgefl.training.onnx.compile.perexample.clip import why_examples_are_mixed

    if plan.front is None:
        return
    features = [feature.name for feature in plan.front.features]
    reason = why_examples_are_mixed(
        GraphEmitter(plan.model), plan.front.nodes, [plan.input.name], features
    )
    if reason:
        raise TrainingError(
            "E-MODEL-OP-FORM",
            "a frozen front part that keeps examples apart, since each is to be clipped alone",
            reason,
            "prepare without --clip-examples, or change the model",
        )


def eval_graph(plan: Plan) -> onnx.GraphProto:
    """Return the whole model up to the value that the loss reads, trained tensors as inputs."""
    output = helper.make_tensor_value_info(
        plan.output.name, TensorProto.FLOAT, [names.BATCH_AXIS, plan.output.size]
    )
    inputs = [plan.input, *_tensor_inputs(plan)]
    trained = set(plan.trained)
    frozen = [tensor for tensor in plan.whole.graph.initializer if tensor.name not in trained]
    nodes = plan.whole_forward
    return helper.make_graph(nodes, "evaluate", inputs, [output], _used(frozen, nodes))


def features_graph(plan: Plan) -> onnx.GraphProto | None:
    """Return the frozen front part, if the plan has one."""
    if plan.front is None:
        return None
    outputs = [_spec_info(feature) for feature in plan.front.features]
    constants = _used(_frozen(plan), plan.front.nodes)
    return helper.make_graph(plan.front.nodes, "features", [plan.input], outputs, constants)


def serialize(graph: onnx.GraphProto) -> bytes:
    """Return a model's bytes, equal ones for equal graphs, after the checker has passed it.

    Raises:
        TrainingError: E-MODEL-INVALID: sizes of the source model contradict each other in a way
            that shows only here.
    """
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", TARGET_OPSET)],
        ir_version=TARGET_IR_VERSION,
        producer_name="edgefl",
    )
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        said = " ".join(str(error).split())[:_SHOWN_CHARS]
        raise TrainingError(
            "E-MODEL-INVALID",
            f"a model of which ONNX's checker passes the graph '{graph.name}'",
            said,
            "export the model again; if onnxruntime runs it as it is, report this",
        ) from error
    serialized: bytes = model.SerializeToString(deterministic=True)
    return serialized


def _data_inputs(plan: Plan) -> list[onnx.ValueInfoProto]:
    target = _target_info(plan.options.loss, plan.output.size)
    return [*_example_inputs(plan), target, _row_info(names.SAMPLE_WEIGHT)]


def _example_inputs(plan: Plan) -> list[onnx.ValueInfoProto]:
    return [plan.input] if plan.front is None else [_spec_info(f) for f in plan.front.features]


def _target_info(loss: Loss, size: int) -> onnx.ValueInfoProto:
    if loss.takes_labels:
        return helper.make_tensor_value_info(names.TARGET, TensorProto.INT64, [names.BATCH_AXIS])
    return helper.make_tensor_value_info(names.TARGET, TensorProto.FLOAT, [names.BATCH_AXIS, size])


def _tensor_inputs(plan: Plan) -> list[onnx.ValueInfoProto]:
    shapes = _shapes_of(plan)
    return [_float_info(name, shapes[name]) for name in plan.trained]


def _step_inputs(plan: Plan) -> list[onnx.ValueInfoProto]:
    shapes = _shapes_of(plan)
    kind = plan.options.optimizer.kind
    inputs = [_float_info(names.received(name), shapes[name]) for name in plan.averaged]
    inputs += [
        _float_info(names.state(state, name), shapes[name])
        for name in plan.trained
        for state in kind.states
    ]
    inputs += [_float_info(names.rounding(name), shapes[name]) for name in plan.grids]
    numbers = [names.LEARNING_RATE, names.PROX_MU, names.MAX_GRADIENT_NORM]
    if kind is Optimizer.ADAMW:
        numbers.append(names.STEP)
    if plan.options.clips_examples:
        numbers.append(names.EXAMPLE_CLIP)
    return [*inputs, *(_float_info(number, (1,)) for number in numbers)]


def _new_values(name: str, kind: Optimizer) -> list[str]:
    return [names.updated(name), *(names.new_state(state, name) for state in kind.states)]


def _shapes_of(plan: Plan) -> dict[str, tuple[int, ...]]:
    trained = set(plan.trained)
    return {t.name: tuple(t.dims) for t in plan.model.graph.initializer if t.name in trained}


def _float_info(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def _row_info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [names.BATCH_AXIS])


def _spec_info(spec: TensorSpec) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        spec.name, _DATA_TYPES[spec.element_type], [names.BATCH_AXIS, *spec.shape]
    )


_DATA_TYPES = {
    ElementType.FLOAT32: TensorProto.FLOAT,
    ElementType.INT8: TensorProto.INT8,
    ElementType.UINT8: TensorProto.UINT8,
    ElementType.INT32: TensorProto.INT32,
    ElementType.INT64: TensorProto.INT64,
}


def _frozen(plan: Plan) -> list[onnx.TensorProto]:
    trained: Collection[str] = set(plan.trained)
    return [tensor for tensor in plan.model.graph.initializer if tensor.name not in trained]


def _used(
    tensors: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]
) -> list[onnx.TensorProto]:
    read = {value for node in nodes for value in values_read_by(node)}
    return [tensor for tensor in tensors if tensor.name in read]
