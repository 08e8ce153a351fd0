"""Losses, emitted together with their gradient with respect to the model's output.

With row weights w and row losses l, loss = sum(w_i l_i) / sum(w): rows of weight 0, as padding has,
count for nothing, and a batch of only such rows has loss 0 and no gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgefl.training.kinds import Loss
from edgefl.training.onnx import names
from edgefl.training.onnx.compile.graph import GraphEmitter

# Guards the division when every row of a batch has weight 0.
_SMALLEST_WEIGHT_SUM = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedLoss:
    """Values of an emitted loss; those that nothing reads are left out of the finished graph.

    Attributes:
        loss: Weighted mean over the batch, a scalar.
        output_gradient: Its gradient, [N, k], times the factor that was asked for.
        example_gradients: Row i is the gradient of example i's own loss, not weighted, [N, k].
        weights: The weights divided by their sum, [N].
    """

    loss: str
    output_gradient: str
    example_gradients: str
    weights: str


def emit_loss(
    graph: GraphEmitter, loss: Loss, output: str, size: int, *, factor: str | None = None
) -> EmittedLoss:
    """Emit the weighted mean of a loss and its gradient.

    Args:
        graph: Where to emit.
        loss: Which one.
        output: float32 [N, k]: logits or values.
        size: k.
        factor: Value of shape [1] by which the gradient, not the loss, is multiplied.

    Returns:
        The loss and its gradients.
    """
    total = graph.emit(
        "Max", graph.reduce_sum(names.SAMPLE_WEIGHT, [0]), graph.float32(_SMALLEST_WEIGHT_SUM)
    )
    weights = graph.emit("Div", names.SAMPLE_WEIGHT, total)
    column = graph.emit("Unsqueeze", weights, graph.int64s([1]))
    values, slopes = _LOSSES[loss](graph, output, size)
    mean = graph.reduce_sum(graph.emit("Mul", values, column), [0, 1])
    scaled = column if factor is None else graph.emit("Mul", column, factor)
    slopes_of_example = slopes
    if not loss.takes_labels and size > 1:
        # Such a loss is the mean over the k values of a row.
        share = graph.float32(1.0 / size)
        mean = graph.emit("Mul", mean, share)
        scaled = graph.emit("Mul", scaled, share)
        slopes_of_example = graph.emit("Mul", slopes, share)
    return EmittedLoss(
        loss=mean,
        output_gradient=graph.emit("Mul", slopes, scaled),
        example_gradients=slopes_of_example,
        weights=weights,
    )


def _cross_entropy(graph: GraphEmitter, logits: str, classes: int) -> tuple[str, str]:
    """Emit -log softmax where the target is, 0 elsewhere, and softmax minus one-hot targets."""
    log_probabilities = graph.emit("LogSoftmax", logits, axis=-1)
    targets = graph.emit(
        "OneHot",
        names.TARGET,
        graph.constant(np.array(classes, np.int64)),
        graph.constant(np.array([0.0, -1.0], np.float32)),
        axis=-1,
    )
    slopes = graph.emit("Add", graph.emit("Exp", log_probabilities), targets)
    return graph.emit("Mul", log_probabilities, targets), slopes


def _binary_cross_entropy(graph: GraphEmitter, logits: str, size: int) -> tuple[str, str]:
    """Emit log(1 + e^z) - z y, which is finite for any z, and sigmoid(z) - y."""
    del size
    products = graph.emit("Mul", logits, names.TARGET)
    values = graph.emit("Sub", graph.emit("Softplus", logits), products)
    return values, graph.emit("Sub", graph.emit("Sigmoid", logits), names.TARGET)


def _squared_error(graph: GraphEmitter, output: str, size: int) -> tuple[str, str]:
    del size
    errors = graph.emit("Sub", output, names.TARGET)
    return graph.emit("Mul", errors, errors), graph.emit("Add", errors, errors)


def _huber(graph: GraphEmitter, output: str, size: int) -> tuple[str, str]:
    """Emit c (e - c / 2), where c is the error e brought to at most 1 in size, and c."""
    del size
    errors = graph.emit("Sub", output, names.TARGET)
    limited = graph.emit("Clip", errors, graph.float32(-1.0), graph.float32(1.0))
    halves = graph.emit("Mul", limited, graph.float32(0.5))
    return graph.emit("Mul", limited, graph.emit("Sub", errors, halves)), limited


_LOSSES: dict[Loss, Callable[[GraphEmitter, str, int], tuple[str, str]]] = {
    Loss.CROSS_ENTROPY: _cross_entropy,
    Loss.BINARY_CROSS_ENTROPY: _binary_cross_entropy,
    Loss.MSE: _squared_error,
    Loss.HUBER: _huber,
}
"""Each takes the output [N, k] and gives what is summed up and its slope for each value, [N, k]."""
