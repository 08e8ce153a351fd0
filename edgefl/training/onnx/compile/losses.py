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
    """Values of an emitted loss.

    Attributes:
        loss: Weighted mean over the batch, a scalar.
        output_gradient: Its gradient, [N, k], times the factor that was asked for.
    """

    loss: str
    output_gradient: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLosses:
    """The loss of each row, before rows are weighted.

    Attributes:
        losses: [N].
        gradient: Gradient of each row's own loss with respect to that row's output, [N, k].
    """

    losses: str
    gradient: str


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
        The loss and its gradient.
    """
    column = _weight_column(graph)
    scaled = column if factor is None else graph.emit("Mul", column, factor)
    if loss is Loss.CROSS_ENTROPY:
        # Less work than by way of the row losses; on a small board each node counts.
        log_probabilities = graph.emit("LogSoftmax", output, axis=-1)
        targets = _one_hot(graph, size)
        likelihoods = graph.emit("Mul", graph.emit("Mul", log_probabilities, targets), column)
        errors = graph.emit("Sub", graph.emit("Exp", log_probabilities), targets)
        return EmittedLoss(
            loss=graph.emit("Neg", graph.reduce_sum(likelihoods, [0, 1])),
            output_gradient=graph.emit("Mul", errors, scaled),
        )
    values, slopes = _VALUE_LOSSES[loss](graph, output)
    mean = scaled if size == 1 else graph.emit("Div", scaled, graph.float32(float(size)))
    total = graph.reduce_sum(graph.emit("Mul", values, column), [0, 1])
    return EmittedLoss(
        loss=total if size == 1 else graph.emit("Div", total, graph.float32(float(size))),
        output_gradient=graph.emit("Mul", slopes, mean),
    )


def emit_row_losses(graph: GraphEmitter, loss: Loss, output: str, size: int) -> RowLosses:
    """Emit the loss of each row on its own; weights are not applied.

    Args:
        graph: Where to emit.
        loss: Which one.
        output: float32 [N, k].
        size: k.

    Returns:
        The row losses and the gradient of each with respect to its row.
    """
    if loss is Loss.CROSS_ENTROPY:
        log_probabilities = graph.emit("LogSoftmax", output, axis=-1)
        targets = _one_hot(graph, size)
        likelihoods = graph.reduce_sum(graph.emit("Mul", log_probabilities, targets), [1])
        return RowLosses(
            losses=graph.emit("Neg", likelihoods),
            gradient=graph.emit("Sub", graph.emit("Exp", log_probabilities), targets),
        )
    values, slopes = _VALUE_LOSSES[loss](graph, output)
    sizes = graph.float32(float(size))
    return RowLosses(
        losses=graph.emit("Div", graph.reduce_sum(values, [1]), sizes),
        gradient=graph.emit("Div", slopes, sizes),
    )


def emit_weighted_mean(graph: GraphEmitter, row_losses: str) -> tuple[str, str]:
    """Emit sum(w_i l_i) / sum(w).

    Args:
        graph: Where to emit.
        row_losses: [N].

    Returns:
        The mean, a scalar, and w / sum(w), [N, 1].
    """
    column = _weight_column(graph)
    rows = graph.reshape(row_losses, (None, 1))
    return graph.reduce_sum(graph.emit("Mul", rows, column), [0, 1]), column


def _weight_column(graph: GraphEmitter) -> str:
    total = graph.emit(
        "Max", graph.reduce_sum(names.SAMPLE_WEIGHT, [0]), graph.float32(_SMALLEST_WEIGHT_SUM)
    )
    shares = graph.emit("Div", names.SAMPLE_WEIGHT, total)
    return graph.emit("Unsqueeze", shares, graph.int64s([1]))


def _one_hot(graph: GraphEmitter, classes: int) -> str:
    return graph.emit(
        "OneHot",
        names.TARGET,
        graph.constant(np.array(classes, np.int64)),
        graph.constant(np.array([0.0, 1.0], np.float32)),
        axis=-1,
    )


def _binary_cross_entropy(graph: GraphEmitter, logits: str) -> tuple[str, str]:
    """Emit log(1 + e^z) - z y, which is finite for any z, and sigmoid(z) - y."""
    products = graph.emit("Mul", logits, names.TARGET)
    values = graph.emit("Sub", graph.emit("Softplus", logits), products)
    return values, graph.emit("Sub", graph.emit("Sigmoid", logits), names.TARGET)


def _squared_error(graph: GraphEmitter, output: str) -> tuple[str, str]:
    errors = graph.emit("Sub", output, names.TARGET)
    return graph.emit("Mul", errors, errors), graph.emit("Add", errors, errors)


def _huber(graph: GraphEmitter, output: str) -> tuple[str, str]:
    """Emit c (e - c / 2), where c is the error e brought to at most 1 in size, and c."""
    errors = graph.emit("Sub", output, names.TARGET)
    limited = graph.emit("Clip", errors, graph.float32(-1.0), graph.float32(1.0))
    halves = graph.emit("Mul", limited, graph.float32(0.5))
    return graph.emit("Mul", limited, graph.emit("Sub", errors, halves)), limited


_VALUE_LOSSES: dict[Loss, Callable[[GraphEmitter, str], tuple[str, str]]] = {
    Loss.BINARY_CROSS_ENTROPY: _binary_cross_entropy,
    Loss.MSE: _squared_error,
    Loss.HUBER: _huber,
}
"""Each takes the output [N, k] and gives each value's loss and slope, [N, k]."""
