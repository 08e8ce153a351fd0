"""Gradients of arithmetic that works value by value, with broadcasting."""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.onnx.compile.attributes import describe
from edgefl.training.onnx.compile.graph import GraphEmitter
from edgefl.training.onnx.compile.rules.registry import Gradients, gradient_of


@gradient_of("Add", "Sum")
def add(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Pass the gradient to each operand."""
    return [
        unbroadcast(graph, node, dy, index) if is_wanted else None
        for index, is_wanted in enumerate(wanted)
    ]


@gradient_of("Mean")
def mean(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Share the gradient equally among the operands."""
    share = graph.emit("Mul", dy, graph.float32(1.0 / len(node.input)))
    return add(graph, node, share, wanted)


@gradient_of("Sub")
def subtract(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Pass the gradient to the first operand, negated to the second."""
    return [
        unbroadcast(graph, node, dy, 0) if wanted[0] else None,
        graph.emit("Neg", unbroadcast(graph, node, dy, 1)) if wanted[1] else None,
    ]


@gradient_of("Mul")
def multiply(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale the gradient by the other operand."""
    a, b = node.input
    if a == b:
        return [graph.emit("Mul", graph.emit("Mul", dy, a), graph.float32(2.0)), None]
    gradients: Gradients = [None, None]
    for index, other in ((0, b), (1, a)):
        if wanted[index]:
            gradients[index] = unbroadcast(graph, node, graph.emit("Mul", dy, other), index)
    return gradients


@gradient_of("Div")
def divide(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Differentiate y = a / b: da = dy / b and db = -da y.

    Dividing by 0 gives the infinities and NaN of PyTorch.
    """
    da = graph.emit("Div", dy, node.input[1])
    gradients: Gradients = [None, None]
    if wanted[0]:
        gradients[0] = unbroadcast(graph, node, da, 0)
    if wanted[1]:
        product = graph.emit("Mul", da, node.output[0])
        gradients[1] = graph.emit("Neg", unbroadcast(graph, node, product, 1))
    return gradients


@gradient_of("Pow")
def power(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Differentiate y = x^p: dx = dy p x^(p-1) and dp = dy y log x.

    As in PyTorch, dx is 0 where p is 0, and dp is 0 where x is 0 and p is not negative; dx is
    infinite where x is 0 and p is between 0 and 1, and dp is NaN where x is negative.
    """
    x, exponent = node.input
    gradients: Gradients = [None, None]
    if wanted[0]:
        fixed = None if wanted[1] else graph.constant_value(exponent)
        gradient = (
            _power_of_computed(graph, x, exponent, dy)
            if fixed is None
            else _power_of_fixed(graph, node, fixed, dy)
        )
        gradients[0] = None if gradient is None else unbroadcast(graph, node, gradient, 0)
    if wanted[1] and graph.element_type_of(exponent) == onnx.TensorProto.FLOAT:
        at_zero = graph.emit("Equal", x, graph.float32(0.0))
        logarithm = graph.emit("Log", graph.emit("Where", at_zero, graph.float32(1.0), x))
        slope = graph.emit("Mul", node.output[0], logarithm)
        gradients[1] = unbroadcast(graph, node, graph.emit("Mul", dy, slope), 1)
    return gradients


def _power_of_fixed(
    graph: GraphEmitter, node: onnx.NodeProto, exponent: NDArray[np.generic], dy: str
) -> str | None:
    """Return dy p x^(p-1), written shorter for the powers that occur most."""
    x, y = node.input[0], node.output[0]
    values = exponent.astype(np.float32)
    if np.all(values == 0):
        return None
    if np.all(values == 1):
        return dy
    if np.all(values == 2):
        return graph.emit("Mul", graph.emit("Mul", dy, x), graph.float32(2.0))
    if np.all(values == 0.5):
        return graph.emit("Div", graph.emit("Mul", dy, graph.float32(0.5)), y)
    # Where the power is 0, any finite power of x will do: it is multiplied by 0.
    lower = np.where(values == 0, np.float32(0), values - np.float32(1))
    scaled = graph.emit("Mul", dy, graph.constant(values))
    return graph.emit("Mul", scaled, graph.emit("Pow", x, graph.constant(lower)))


def _power_of_computed(graph: GraphEmitter, x: str, exponent: str, dy: str) -> str:
    if graph.element_type_of(exponent) != onnx.TensorProto.FLOAT:
        exponent = graph.emit("Cast", exponent, to=onnx.TensorProto.FLOAT)
    zero = graph.float32(0.0)
    lower = graph.emit(
        "Where",
        graph.emit("Equal", exponent, zero),
        zero,
        graph.emit("Sub", exponent, graph.float32(1.0)),
    )
    slope = graph.emit("Mul", exponent, graph.emit("Pow", x, lower))
    return graph.emit("Mul", dy, slope)


@gradient_of("Neg")
def negate(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Negate."""
    del node, wanted
    return [graph.emit("Neg", dy)]


@gradient_of("Abs")
def absolute(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by the sign of x; at exactly 0 the gradient is 0."""
    del wanted
    return [graph.emit("Mul", dy, graph.emit("Sign", node.input[0]))]


@gradient_of("Reciprocal")
def reciprocal(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by -y squared."""
    del wanted
    y = node.output[0]
    return [graph.emit("Neg", graph.emit("Mul", dy, graph.emit("Mul", y, y)))]


@gradient_of("Sqrt")
def square_root(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Divide by 2 y: infinite at 0, as in PyTorch."""
    del wanted
    return [graph.emit("Div", graph.emit("Mul", dy, graph.float32(0.5)), node.output[0])]


@gradient_of("Exp")
def exponential(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Scale by y."""
    del wanted
    return [graph.emit("Mul", dy, node.output[0])]


@gradient_of("Log")
def logarithm(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Divide by x: infinite at 0, as in PyTorch."""
    del wanted
    return [graph.emit("Div", dy, node.input[0])]


@gradient_of("Clip")
def clip(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Pass the gradient to x within the bounds, and to a bound where x lies past it.

    At exactly a bound it goes to x, as in PyTorch's clamp to numbers.
    """
    x, y = node.input[0], node.output[0]
    gradients: Gradients = [None] * len(node.input)
    if wanted[0]:
        gradients[0] = dy
        if any(node.input[1:]):
            gradients[0] = masked(graph, dy, graph.emit("Equal", x, y))
    for index, comparison in ((1, "Less"), (2, "Greater")):
        if len(node.input) > index and wanted[index]:
            past = graph.emit(comparison, x, node.input[index])
            gradients[index] = unbroadcast(graph, node, masked(graph, dy, past), index)
    return gradients


@gradient_of("Max", "Min")
def extreme(
    graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]
) -> Gradients:
    """Pass the gradient to the operand that was chosen; of equal ones, to the first.

    PyTorch would halve it between two equal ones, at the cost of three nodes more.
    """
    gradients: Gradients = [None] * len(node.input)
    last_wanted = max(index for index, is_wanted in enumerate(wanted) if is_wanted)
    taken: str | None = None
    for index, value in enumerate(node.input[: last_wanted + 1]):
        if index == len(node.input) - 1:
            chosen = graph.emit("Not", taken) if taken else None
        else:
            equal = graph.emit("Equal", value, node.output[0])
            chosen = graph.emit("And", equal, graph.emit("Not", taken)) if taken else equal
            taken = graph.emit("Or", taken, equal) if taken else equal
        if wanted[index]:
            gradient = masked(graph, dy, chosen) if chosen else dy
            gradients[index] = unbroadcast(graph, node, gradient, index)
    return gradients


@gradient_of("Ceil", "Floor", "Round", "Sign")
def steps(graph: GraphEmitter, node: onnx.NodeProto, dy: str, wanted: Sequence[bool]) -> Gradients:
    """Give no gradient: the function is flat but for its steps."""
    del graph, dy, wanted
    return [None] * len(node.input)


def masked(graph: GraphEmitter, dy: str, flags: str) -> str:
    """Return the gradient where the flags are true, 0 elsewhere.

    Where would be one node less, but onnxruntime 1.32's kernel for it takes 9 times as long as
    Cast and Mul together (262,144 values, x86-64).
    """
    return graph.emit("Mul", dy, graph.emit("Cast", flags, to=onnx.TensorProto.FLOAT))


def unbroadcast(graph: GraphEmitter, node: onnx.NodeProto, gradient: str, index: int) -> str:
    """Sum a gradient of the node's output over the axes along which an operand was repeated.

    Raises:
        TrainingError: E-MODEL-BATCH when it may or may not have been repeated, as the batch axis
            meets a fixed size.
    """
    broadcast = graph.shape_of(node.output[0], node)
    original = graph.shape_of(node.input[index], node)
    aligned = broadcast[len(broadcast) - len(original) :]
    if any(
        size is None and result is not None for size, result in zip(original, aligned, strict=True)
    ):
        raise TrainingError(
            "E-MODEL-BATCH",
            "a model that takes any batch size",
            f"{describe(node)} of the batch axis with a fixed size",
            "export with a dynamic batch axis and no batch size in other tensors",
        )
    return graph.sum_to_shape(gradient, broadcast, original)
