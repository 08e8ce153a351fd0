"""Optimisers, emitted as the last nodes of a training step."""

from collections.abc import Callable

from edgefl.training.kinds import Optimizer
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.graph import GraphEmitter


def sgd(graph: GraphEmitter, parameter: str, gradient: str) -> str:
    """Emit plain stochastic gradient descent.

    Args:
        graph: Where to emit.
        parameter: The tensor before the step.
        gradient: Gradient of the loss, of the same shape.

    Returns:
        The tensor after the step: parameter - lr * gradient; lr is an input of shape [1].
    """
    return graph.emit("Sub", parameter, graph.emit("Mul", gradient, names.LEARNING_RATE))


OPTIMIZERS: dict[Optimizer, Callable[[GraphEmitter, str, str], str]] = {Optimizer.SGD: sgd}
