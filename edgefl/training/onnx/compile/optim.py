"""Optimisers, emitted as the last nodes of a training step.

FedProx and the bound of the gradient's norm are inputs of the step. Most tasks use neither, so
what they need stands in one branch of an `If`, and the other branch is the plain update.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from edgefl.errors import ConfigError
from edgefl.training.kinds import Optimizer
from edgefl.training.manifest import Facts
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.graph import GraphEmitter

_SMALLEST_NORM = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """An optimiser with its constants, which become part of the training graph.

    Attributes:
        kind: Which one.
        momentum: Of MOMENTUM: share of the last velocity that is kept, 0 to below 1.
        beta1: Of ADAMW: share of the last mean of gradients that is kept.
        beta2: Of ADAMW: share of the last mean of squares that is kept.
        epsilon: Of ADAMW: added to the root of the mean of squares.
        weight_decay: Of ADAMW: share of a parameter, times lr, that each step takes off.
    """

    kind: Optimizer = Optimizer.SGD
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        """Check ranges.

        Raises:
            ConfigError: E-MODEL-OPTIMIZER-SETTING.
        """
        shares = {"momentum": self.momentum, "beta1": self.beta1, "beta2": self.beta2}
        for name, share in shares.items():
            if not 0.0 <= share < 1.0:
                raise _wrong_setting(f"{name} from 0 to below 1", share)
        if not (math.isfinite(self.epsilon) and self.epsilon > 0.0):
            raise _wrong_setting("an epsilon above 0", self.epsilon)
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0.0):
            raise _wrong_setting("a weight decay of at least 0", self.weight_decay)

    @property
    def facts(self) -> Facts:
        """Return the constants that the optimiser uses, for the manifest."""
        if self.kind is Optimizer.MOMENTUM:
            return {"momentum": self.momentum}
        if self.kind is Optimizer.ADAMW:
            return {
                "beta1": self.beta1,
                "beta2": self.beta2,
                "epsilon": self.epsilon,
                "weight_decay": self.weight_decay,
            }
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTensor:
    """A tensor that the step changes.

    Attributes:
        name: Its name.
        shape: Its shape.
        gradient: Value of its gradient; for SGD times lr already.
        is_averaged: Whether FedProx holds it near what was received; local tensors are free.
    """

    name: str
    shape: tuple[int, ...]
    gradient: str
    is_averaged: bool


def takes_scaled_gradients(kind: Optimizer) -> bool:
    """Tell whether the gradients given to `emit_step` are multiplied by lr already.

    Scaling the output's gradient once is cheaper than scaling each parameter's.
    """
    return kind is Optimizer.SGD


def emit_step(
    graph: GraphEmitter, tensors: Sequence[TrainedTensor], settings: OptimizerSettings
) -> dict[str, str]:
    """Emit one step of an optimiser.

    Args:
        graph: Where to emit.
        tensors: What is changed.
        settings: How.

    Returns:
        By output name the value that carries it: tensors and states after the step.
    """
    update = _UPDATES[settings.kind]
    shared = _shared_factors(graph, settings)
    plain = {tensor.name: tensor.gradient for tensor in tensors}
    with graph.subgraph() as plain_nodes:
        plain_results = update(graph, tensors, plain, settings, shared)
    with graph.subgraph() as regular_nodes:
        regular = _regularised(graph, tensors, settings.kind)
        regular_results = update(graph, tensors, regular, settings, shared)
    # Zero times infinity is no number: exactly when mu is 0 and nothing bounds the norm.
    product = graph.emit("Mul", names.PROX_MU, names.MAX_GRADIENT_NORM)
    shapes = {
        output: tensor.shape for tensor in tensors for output in _outputs(tensor.name, settings)
    }
    results = graph.emit_outputs(
        "If",
        [graph.emit("IsNaN", product)],
        len(shapes),
        then_branch=_branch("plain", plain_nodes, plain_results, shapes),
        else_branch=_branch("regularised", regular_nodes, regular_results, shapes),
    )
    return dict(zip(shapes, results, strict=True))


def _outputs(parameter: str, settings: OptimizerSettings) -> list[str]:
    states = [names.new_state(kind, parameter) for kind in settings.kind.states]
    return [names.updated(parameter), *states]


def _branch(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    results: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
) -> onnx.GraphProto:
    outputs = [
        helper.make_tensor_value_info(results[output], onnx.TensorProto.FLOAT, list(shape))
        for output, shape in shapes.items()
    ]
    return helper.make_graph(nodes, name, [], outputs)


def _regularised(
    graph: GraphEmitter, tensors: Sequence[TrainedTensor], kind: Optimizer
) -> dict[str, str]:
    """Add the gradient of FedProx, then bring the whole gradient's norm to its bound.

    Source: Li et al., "Federated Optimization in Heterogeneous Networks", arXiv:1812.06127,
    equation 2 (FedProx).
    """
    mu, bound = names.PROX_MU, names.MAX_GRADIENT_NORM
    if takes_scaled_gradients(kind):
        mu = graph.emit("Mul", mu, names.LEARNING_RATE)
        # A learning rate of 0 must not turn an infinite bound into 0 times infinity.
        rate = graph.emit("Max", names.LEARNING_RATE, graph.float32(_SMALLEST_NORM))
        bound = graph.emit("Mul", bound, rate)
    gradients = {
        tensor.name: _with_prox(graph, tensor, mu) if tensor.is_averaged else tensor.gradient
        for tensor in tensors
    }
    squares = [
        graph.emit("ReduceSumSquare", gradient, keepdims=0) for gradient in gradients.values()
    ]
    norm = graph.emit("Sqrt", graph.emit("Sum", *squares))
    ratio = graph.emit("Div", bound, graph.emit("Max", norm, graph.float32(_SMALLEST_NORM)))
    factor = graph.emit("Min", ratio, graph.float32(1.0))
    return {
        tensor.name: _as_shaped(graph, graph.emit("Mul", gradients[tensor.name], factor), tensor)
        for tensor in tensors
    }


def _with_prox(graph: GraphEmitter, tensor: TrainedTensor, mu: str) -> str:
    distance = graph.emit("Sub", tensor.name, names.received(tensor.name))
    pull = _as_shaped(graph, graph.emit("Mul", distance, mu), tensor)
    return graph.emit("Add", tensor.gradient, pull)


def _as_shaped(graph: GraphEmitter, value: str, tensor: TrainedTensor) -> str:
    """Take back the axis that a scalar gains from a factor of shape [1]."""
    return value if tensor.shape else graph.reshape(value, ())


def _shared_factors(graph: GraphEmitter, settings: OptimizerSettings) -> dict[str, str]:
    """Emit what is the same for all parameters of an AdamW step.

    The means are kept divided by (1 - beta), so that each takes one product less; the factors put
    that right together with the correction for the means' start at 0.
    """
    if settings.kind is not Optimizer.ADAMW:
        return {}
    step = graph.emit("Cast", names.STEP, to=onnx.TensorProto.DOUBLE)
    factors = [
        graph.emit("Div", graph.constant(np.array(1.0 - beta)), _correction(graph, beta, step))
        for beta in (settings.beta1, settings.beta2)
    ]
    mean_factor = graph.emit("Cast", factors[0], to=onnx.TensorProto.FLOAT)
    # root of the corrected mean of squares = root of what is kept * `root_factor`.
    root_factor = graph.emit("Sqrt", graph.emit("Cast", factors[1], to=onnx.TensorProto.FLOAT))
    rate = graph.emit("Mul", names.LEARNING_RATE, mean_factor)
    shared = {
        "rate": graph.emit("Div", rate, root_factor),
        "epsilon": graph.emit("Div", graph.float32(settings.epsilon), root_factor),
    }
    if settings.weight_decay > 0.0:
        decay = graph.emit("Mul", names.LEARNING_RATE, graph.float32(settings.weight_decay))
        shared["kept"] = graph.emit("Sub", graph.float32(1.0), decay)
    return shared


def _correction(graph: GraphEmitter, beta: float, step: str) -> str:
    """Emit 1 - beta ** step, in float64: in float32 the first ones would lose four digits."""
    power = graph.emit("Pow", graph.constant(np.array(beta)), step)
    return graph.emit("Sub", graph.constant(np.array(1.0)), power)


def _sgd(
    graph: GraphEmitter,
    tensors: Sequence[TrainedTensor],
    gradients: Mapping[str, str],
    settings: OptimizerSettings,
    shared: Mapping[str, str],
) -> dict[str, str]:
    del settings, shared
    return {
        names.updated(tensor.name): graph.emit("Sub", tensor.name, gradients[tensor.name])
        for tensor in tensors
    }


def _momentum(
    graph: GraphEmitter,
    tensors: Sequence[TrainedTensor],
    gradients: Mapping[str, str],
    settings: OptimizerSettings,
    shared: Mapping[str, str],
) -> dict[str, str]:
    """Emit velocity = momentum * velocity + gradient; parameter -= lr * velocity."""
    del shared
    results: dict[str, str] = {}
    for tensor in tensors:
        kept = graph.emit(
            "Mul", names.state("velocity", tensor.name), graph.float32(settings.momentum)
        )
        velocity = graph.emit("Add", kept, gradients[tensor.name])
        change = _as_shaped(graph, graph.emit("Mul", velocity, names.LEARNING_RATE), tensor)
        results[names.updated(tensor.name)] = graph.emit("Sub", tensor.name, change)
        results[names.new_state("velocity", tensor.name)] = velocity
    return results


def _adamw(
    graph: GraphEmitter,
    tensors: Sequence[TrainedTensor],
    gradients: Mapping[str, str],
    settings: OptimizerSettings,
    shared: Mapping[str, str],
) -> dict[str, str]:
    """Emit AdamW; the states are the means divided by (1 - beta).

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", arXiv:1711.05101,
    algorithm 2, with a constant schedule multiplier.
    """
    results: dict[str, str] = {}
    for tensor in tensors:
        gradient = gradients[tensor.name]
        means = {}
        for kind, beta, addend in (
            ("mean", settings.beta1, gradient),
            ("variance", settings.beta2, graph.emit("Mul", gradient, gradient)),
        ):
            kept = graph.emit("Mul", names.state(kind, tensor.name), graph.float32(beta))
            means[kind] = graph.emit("Add", kept, addend)
            results[names.new_state(kind, tensor.name)] = means[kind]
        root = graph.emit("Add", graph.emit("Sqrt", means["variance"]), shared["epsilon"])
        step = graph.emit("Mul", graph.emit("Div", means["mean"], root), shared["rate"])
        kept = tensor.name
        if "kept" in shared:
            kept = _as_shaped(graph, graph.emit("Mul", kept, shared["kept"]), tensor)
        step = _as_shaped(graph, step, tensor)
        results[names.updated(tensor.name)] = graph.emit("Sub", kept, step)
    return results


_UPDATES = {Optimizer.SGD: _sgd, Optimizer.MOMENTUM: _momentum, Optimizer.ADAMW: _adamw}


def _wrong_setting(expected: str, found: float) -> ConfigError:
    return ConfigError(
        "E-MODEL-OPTIMIZER-SETTING", expected, str(found), "correct the optimiser's options"
    )
