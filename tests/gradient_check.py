"""Checks gradient rules: float64 finite differences first, then onnxruntime against the reference.

`check_gradients` is for points where the function is smooth; `run_gradients` gives the gradients
that onnxruntime computes, for conventions at kinks and for values that must stay finite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgefl.training.onnx.compile.differentiate import differentiate
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules import registry
from edgefl.training.onnx.runtime.quiet import onnxruntime
from tests.exact_convolutions import EXACT_CONVOLUTIONS
from tests.exact_operators import EXACT_OPERATORS
from tests.exact_pad import EXACT_PAD
from tests.exact_pooling import EXACT_POOLING
from tests.exact_quantization import EXACT_QUANTIZATION

OPSET = 17
IR_VERSION = 8
SEED_PREFIX = "seed."
STEP = 1e-6
DIRECTIONS = 4
COORDINATES = 12
_JOIN = "JoinOfTest"
# Far from the seeds of tests: weights that equal x would hide faults of normalisations.
_SEED_STREAM = 20_011
_DIRECTION_STREAM = 20_021


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientGraph:
    """A forward graph with its gradients behind it.

    Attributes:
        forward: The forward model alone; wanted tensors and those with a batch axis are inputs.
        combined: Forward and backward nodes; reads the seeds too, gives one gradient per name.
        outputs: The forward values whose weighted sum is the loss.
        gradients: Name of the gradient by wanted tensor.
        emitted: Operators of the backward pass, in order.
        feeds: The values of the inputs, seeds included, float32 or integer.
    """

    forward: onnx.ModelProto
    combined: onnx.ModelProto
    outputs: tuple[str, ...]
    gradients: dict[str, str]
    emitted: tuple[str, ...]
    feeds: dict[str, np.ndarray]


def check_gradients(
    source,
    inputs,
    wanted=None,
    *,
    batch_axes=None,
    outputs=None,
    seed=0,
    step=STEP,
    tolerance=1e-6,
    float32_tolerance=1e-4,
    float32_floor=1e-6,
    zero_allowed=(),
    run_onnxruntime=True,
):
    """Differentiate, compare with central differences in float64 and with onnxruntime in float32.

    Args:
        source: A node, several nodes, or a model (its initializers join the inputs).
        inputs: Values by name; floats are rounded to float32. Tensors that are neither wanted nor
            have a batch axis become initializers, as rules expect of axes and shapes.
        wanted: Names whose gradients are checked; by default all float inputs.
        batch_axes: Axis of unknown size by input name, as in {"x": 0}.
        outputs: Values that the loss reads; by default every float output that no node reads.
        seed: Of the weights of the outputs and of the directions.
        step: Length of the difference.
        tolerance: Relative to the gradient's norm, for the float64 comparison.
        float32_tolerance: Relative to the largest gradient, for the float32 comparison.
        float32_floor: Allowed in any case, as where large parts cancel.
        zero_allowed: Names whose gradient may be all zeros; elsewhere that would prove nothing.
        run_onnxruntime: False where onnxruntime has no kernel for the forward node.

    Returns:
        The `GradientGraph`, for checks of what was emitted.
    """
    graph = differentiated(
        source, inputs, wanted, batch_axes=batch_axes, outputs=outputs, seed=seed
    )
    names = list(graph.gradients)
    wide = {name: _widened(value) for name, value in graph.feeds.items()}
    exact = dict(zip(names, evaluator(in_double(graph.combined)).run(None, wide), strict=True))
    loss = _loss(graph)
    rng = np.random.default_rng([_DIRECTION_STREAM, seed])
    for name in names:
        gradient = exact[name]
        assert gradient.shape == wide[name].shape, (name, gradient.shape, wide[name].shape)
        assert np.isfinite(gradient).all(), (name, gradient)
        assert name in zero_allowed or np.any(gradient), f"a zero gradient for {name}"
        for direction in _directions(gradient.shape, rng):
            ahead = loss({**wide, name: wide[name] + step * direction})
            behind = loss({**wide, name: wide[name] - step * direction})
            expected = (ahead - behind) / (2 * step)
            found = float(np.sum(gradient * direction))
            rounding = 1e-15 * (abs(ahead) + abs(behind)) / step
            allowed = tolerance * (np.linalg.norm(gradient) + abs(expected) + 1) + rounding
            assert abs(found - expected) <= allowed, (name, found, expected, graph.emitted)
    if run_onnxruntime:
        for name, found in _run_onnxruntime(graph).items():
            allowed = float32_tolerance * np.abs(exact[name]).max(initial=0) + float32_floor
            assert found.shape == exact[name].shape, name
            np.testing.assert_allclose(found, exact[name], rtol=0, atol=allowed, err_msg=name)
    return graph


def run_gradients(source, inputs, wanted=None, *, batch_axes=None, seeds=None):
    """Return the float32 gradients that onnxruntime computes, by wanted name.

    Args:
        source: As in `check_gradients`.
        inputs: As in `check_gradients`.
        wanted: As in `check_gradients`.
        batch_axes: As in `check_gradients`.
        seeds: Gradient of the loss by output; by default all ones.
    """
    graph = differentiated(source, inputs, wanted, batch_axes=batch_axes)
    for output in graph.outputs:
        ones = np.ones_like(graph.feeds[SEED_PREFIX + output])
        graph.feeds[SEED_PREFIX + output] = np.asarray((seeds or {}).get(output, ones), np.float32)
    return _run_onnxruntime(graph)


def differentiated(source, inputs, wanted=None, *, batch_axes=None, outputs=None, seed=0):
    """Build a forward graph and let the compiler append the gradients of a weighted sum."""
    nodes, values = _parts(source, inputs)
    batch_axes = batch_axes or {}
    if wanted is None:
        wanted = [name for name, value in values.items() if value.dtype == np.float32]
    model = _forward_model(nodes, values, wanted, batch_axes)
    outputs = tuple(outputs or _loose_float_outputs(model))
    emitter = GraphEmitter(model)
    gradients = _differentiate(emitter, list(model.graph.node), list(wanted), outputs)
    forward = _with_inputs(model, list(model.graph.node), values, wanted, batch_axes, outputs)
    results = evaluate(
        evaluator(forward), {value.name: values[value.name] for value in forward.graph.input}
    )
    rng = np.random.default_rng([_SEED_STREAM, seed])
    seeds = {
        SEED_PREFIX + name: rng.normal(size=np.shape(result)).astype(np.float32)
        for name, result in zip(outputs, results, strict=True)
    }
    # Two tensors may share one gradient, and it may be the seed itself: give each its own name.
    named = {name: f"gradient.{name}" for name in gradients}
    ends = [helper.make_node("Identity", [gradients[name]], [named[name]]) for name in named]
    combined = _with_inputs(
        model,
        [*model.graph.node, *emitter.nodes, *ends],
        {**values, **seeds},
        [*wanted, *seeds],
        batch_axes,
        tuple(named.values()),
        emitter.constants,
    )
    feeds = {value.name: {**values, **seeds}[value.name] for value in combined.graph.input}
    return GradientGraph(
        forward=forward,
        combined=combined,
        outputs=outputs,
        gradients=named,
        emitted=tuple(node.op_type for node in emitter.nodes),
        feeds=feeds,
    )


def evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    """Return onnx's reference evaluator with its faults in float64 put right."""
    operators = [*EXACT_OPERATORS, *EXACT_CONVOLUTIONS, *EXACT_PAD, *EXACT_POOLING]
    operators += EXACT_QUANTIZATION
    return ReferenceEvaluator(model, new_ops=operators)


def evaluate(reference: ReferenceEvaluator, feeds) -> list[np.ndarray]:
    """Run the reference evaluator; overflow shows in the values, no warning is needed."""
    with np.errstate(all="ignore"):
        return reference.run(None, feeds)


def in_double(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same graph with every float32 constant, cast and declaration widened."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    return wide


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        values = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _widened(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype == np.float32 else value


def _parts(source, inputs: Mapping[str, np.ndarray]):
    """Return the nodes and all values, floats as float32."""
    values = {}
    if isinstance(source, onnx.ModelProto):
        values = {t.name: numpy_helper.to_array(t) for t in source.graph.initializer}
        nodes = list(source.graph.node)
    else:
        nodes = [source] if isinstance(source, onnx.NodeProto) else list(source)
    values.update({name: np.asarray(value) for name, value in inputs.items()})
    return nodes, {
        name: value.astype(np.float32) if value.dtype.kind == "f" else value
        for name, value in values.items()
    }


def _forward_model(nodes, values, wanted, batch_axes) -> onnx.ModelProto:
    """Return the model as the compiler gets it: after inference, weights as initializers."""
    read = {name for node in nodes for name in _read_by(node)}
    last = [name for node in nodes for name in node.output if name and name not in read]
    graph = helper.make_graph(
        nodes,
        "rule",
        [_declared(name, values[name], batch_axes) for name in batch_axes],
        [helper.make_empty_tensor_value_info(name) for name in last],
        [
            # Other values than those of the run: no rule may keep what training changes.
            numpy_helper.from_array(v * 2 + 1 if n in wanted else v, n)
            for n, v in values.items()
            if n not in batch_axes
        ],
    )
    unknown = [name for name in wanted if name not in values]
    assert not unknown, f"no values for {unknown}"
    return onnx.shape_inference.infer_shapes(_model(graph), strict_mode=True, data_prop=True)


def _read_by(node: onnx.NodeProto) -> set[str]:
    """Return the values that a node reads, those of its subgraphs included."""
    inner = [a.g for a in node.attribute if a.HasField("g")]
    return {*node.input, *(n for graph in inner for child in graph.node for n in _read_by(child))}


def _with_inputs(model, nodes, values, inputs, batch_axes, outputs, constants=()):
    """Return nodes as a model whose inputs are the given ones and those with a batch axis."""
    read = {name for node in nodes for name in _read_by(node)}
    named = [name for name in dict.fromkeys([*inputs, *batch_axes]) if name in read]
    graph = helper.make_graph(
        nodes,
        "check",
        [_declared(name, values[name], batch_axes) for name in named],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [t for t in [*model.graph.initializer, *constants] if t.name not in named],
    )
    return _model(graph)


def _declared(name: str, value: np.ndarray, batch_axes) -> onnx.ValueInfoProto:
    sizes: list[int | str] = list(value.shape)
    if name in batch_axes:
        sizes[batch_axes[name]] = "N"
    elif name.startswith(SEED_PREFIX):
        sizes = [f"{name}.{axis}" for axis in range(value.ndim)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), sizes)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def _loose_float_outputs(model: onnx.ModelProto) -> list[str]:
    floats = [v for v in model.graph.output if v.type.tensor_type.elem_type == TensorProto.FLOAT]
    return [value.name for value in floats]


def _differentiate(emitter, nodes, wanted, outputs: Sequence[str]) -> dict[str, str]:
    seeds = [SEED_PREFIX + name for name in outputs]
    if len(outputs) == 1:
        return differentiate(emitter, nodes, wanted, outputs[0], seeds[0])
    # The compiler starts from one value: a node of the test's own joins several into one.
    join = helper.make_node(_JOIN, list(outputs), ["joined"])
    registry._RULES[_JOIN] = lambda *_: seeds
    try:
        return differentiate(emitter, [*nodes, join], wanted, "joined", "unused")
    finally:
        del registry._RULES[_JOIN]


def _loss(graph: GradientGraph):
    exact = evaluator(in_double(graph.forward))
    used = {value.name for value in graph.forward.graph.input}

    def loss(feeds) -> float:
        results = evaluate(exact, {name: feeds[name] for name in used})
        pairs = zip(graph.outputs, results, strict=True)
        return float(sum(np.sum(feeds[SEED_PREFIX + name] * result) for name, result in pairs))

    return loss


def _directions(shape, rng):
    """Yield random directions of norm 1, and some coordinate axes for readable failures."""
    size = int(np.prod(shape))
    for index in rng.permutation(size)[:COORDINATES]:
        yield np.eye(1, size, index).reshape(shape)
    for _ in range(DIRECTIONS):
        direction = rng.normal(size=shape)
        yield direction / np.linalg.norm(direction)


def _run_onnxruntime(graph: GradientGraph) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        graph.combined.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(list(graph.gradients.values()), graph.feeds)
    return dict(zip(graph.gradients, found, strict=True))
