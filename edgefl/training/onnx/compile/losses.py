"""Losses, emitted together with their gradient with respect to the logits."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgefl.training.kinds import Loss
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.graph import GraphEmitter

# Guards the division when every row of a batch has weight 0: loss and gradient are then 0.
_SMALLEST_WEIGHT_SUM = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedLoss:
    """Values of an emitted loss.

    Attributes:
        loss: Weighted mean over the batch, a scalar.
        logits_gradient: Its gradient, [N, classes].
        example_gradients: Row i is the gradient of example i's own loss, not weighted, [N, classes].
        weights: The weights divided by their sum, [N].
    """

    loss: str
    logits_gradient: str
    example_gradients: str
    weights: str


def cross_entropy(graph: GraphEmitter, logits: str, classes: int) -> EmittedLoss:
    """Emit softmax cross-entropy of logits with whole-number targets.

    With row weights w, loss = sum(w_i * -log softmax(logits_i)[target_i]) / sum(w): padding rows
    of weight 0 count for nothing.

    Args:
        graph: Where to emit.
        logits: float32 [N, classes].
        classes: Number of classes.

    Returns:
        The loss and its gradient (softmax - one-hot), weighted.
    """
    log_probabilities = graph.emit("LogSoftmax", logits, axis=-1)
    one_hot = graph.emit(
        "OneHot",
        names.TARGET,
        graph.constant(np.array(classes, np.int64)),
        graph.constant(np.array([0.0, 1.0], np.float32)),
        axis=-1,
    )
    weight_sum = graph.emit(
        "Max", graph.reduce_sum(names.SAMPLE_WEIGHT, [0]), graph.float32(_SMALLEST_WEIGHT_SUM)
    )
    weights = graph.emit("Div", names.SAMPLE_WEIGHT, weight_sum)
    likelihoods = graph.reduce_sum(graph.emit("Mul", log_probabilities, one_hot), [1])
    loss = graph.emit("Neg", graph.reduce_sum(graph.emit("Mul", likelihoods, weights), [0]))
    errors = graph.emit("Sub", graph.emit("Exp", log_probabilities), one_hot)
    column = graph.emit("Unsqueeze", weights, graph.int64s([1]))
    return EmittedLoss(
        loss=loss,
        logits_gradient=graph.emit("Mul", errors, column),
        example_gradients=errors,
        weights=weights,
    )


LOSSES: dict[Loss, Callable[[GraphEmitter, str, int], EmittedLoss]] = {
    Loss.CROSS_ENTROPY: cross_entropy,
}
