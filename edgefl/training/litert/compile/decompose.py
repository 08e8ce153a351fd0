"""Rewrites ONNX operators that TFLite lacks as several that it has, before shapes are fixed."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edgefl.training.onnx.compile.attributes import (
    float_attribute,
    int_attribute,
    ints_attribute,
)
from edgefl.training.onnx.names import PREFIX

_PREFIX = PREFIX + "litert."
# Name that `edgefl.training.onnx.compile.optim` gives the branch that holds for all settings.
_REGULARISED_BRANCH = "regularised"
_SMALLEST_BASE = 1e-30
_ERF_SCALE = 0.3275911
_ERF_FACTORS = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


class Rewriter:
    """Collects nodes and constants of a graph that is being rewritten."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        """Start with nothing but the values that the graph's own constants have."""
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._count = 0
        self._given = {tensor.name: tensor for tensor in graph.initializer}
        self._makers = {output: node for node in graph.node for output in node.output}
        self._ranks = {
            value.name: len(value.type.tensor_type.shape.dim)
            for value in [*graph.input, *graph.value_info, *graph.output]
            if value.type.tensor_type.HasField("shape")
        }

    def float64(self, value: str) -> float | None:
        """Return a float64 constant of a single number, or None for anything else."""
        tensor = self._given.get(value)
        if tensor is None or tensor.data_type != onnx.TensorProto.DOUBLE:
            return None
        values = np.asarray(numpy_helper.to_array(tensor))
        return float(values.reshape(-1)[0]) if values.size == 1 else None

    def rank(self, value: str) -> int | None:
        """Return the number of axes of a value of the source graph, if shape inference knows it."""
        return self._ranks.get(value)

    def maker(self, value: str) -> onnx.NodeProto | None:
        """Return the node of the source graph that makes a value."""
        return self._makers.get(value)

    def new_name(self) -> str:
        """Return a name that no model uses."""
        self._count += 1
        return f"{_PREFIX}{self._count}"

    def emit(
        self, op_type: str, *inputs: str, to: str | None = None, **attributes: int | Sequence[int]
    ) -> str:
        """Append a node, rewritten if need be, and return the name of its output."""
        name = to or self.new_name()
        node = helper.make_node(op_type, list(inputs), [name], name=name)
        node.attribute.extend(
            helper.make_attribute(key, value) for key, value in attributes.items()
        )
        _rewrite(self, node)
        return name

    def constant(self, value: NDArray[np.generic]) -> str:
        """Return the name of a constant."""
        name = self.new_name()
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def float32(self, value: float) -> str:
        """Return the name of a single number."""
        return self.constant(np.array(value, np.float32))


Rewrite = Callable[[Rewriter, onnx.NodeProto], None]


def decompose(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return the graph with rewritten nodes.

    Args:
        graph: Standard operators, after shape inference.

    Returns:
        A graph that computes the same.
    """
    rewriter = Rewriter(graph)
    for node in graph.node:
        _rewrite(rewriter, node)
    constants = [*graph.initializer, *rewriter.constants]
    return helper.make_graph(
        rewriter.nodes,
        graph.name,
        list(graph.input),
        list(graph.output),
        [_single_precision(constant) for constant in constants],
    )


def _single_precision(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Return float64 constants as float32: TFLite has next to no operators of the former."""
    if tensor.data_type != onnx.TensorProto.DOUBLE:
        return tensor
    values = np.asarray(numpy_helper.to_array(tensor))
    return numpy_helper.from_array(values.astype(np.float32), tensor.name)


def _rewrite(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    rewrite = _REWRITES.get(node.op_type)
    if rewrite is None:
        rewriter.nodes.append(node)
    else:
        rewrite(rewriter, node)


def _choice(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Compute both branches of an If and choose between their results.

    The branches of a training step are short, and a choice between subgraphs would keep the
    interpreter from planning its memory once. The optimiser's branch without FedProx and without
    a bound of the norm is left out: the other one gives the same values, bit for bit, when mu is 0
    and the bound is infinite (it adds 0 and multiplies by 1).
    """
    branches = {attribute.name: attribute.g for attribute in node.attribute}
    if branches["else_branch"].name == _REGULARISED_BRANCH:
        for output, value in zip(
            node.output, _inline(rewriter, branches["else_branch"]), strict=True
        ):
            rewriter.emit("Identity", value, to=output)
        return
    results = [_inline(rewriter, branches[name]) for name in ("then_branch", "else_branch")]
    for output, chosen, other in zip(node.output, *results, strict=True):
        rewriter.emit("Where", node.input[0], chosen, other, to=output)


def _inline(rewriter: Rewriter, body: onnx.GraphProto) -> list[str]:
    """Append the nodes of a body under new names and return those of its outputs."""
    renamed = {
        name: rewriter.new_name()
        for name in [
            *(tensor.name for tensor in body.initializer),
            *(output for inner in body.node for output in inner.output if output),
        ]
    }
    for tensor in body.initializer:
        copied = onnx.TensorProto()
        copied.CopyFrom(tensor)
        copied.name = renamed[tensor.name]
        rewriter.constants.append(copied)
    for inner in body.node:
        copied_node = onnx.NodeProto()
        copied_node.CopyFrom(inner)
        copied_node.input[:] = [renamed.get(name, name) for name in inner.input]
        copied_node.output[:] = [renamed.get(name, name) for name in inner.output]
        _rewrite(rewriter, copied_node)
    return [renamed.get(value.name, value.name) for value in body.output]


def _batch_normalization(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write y = x a + b with a = scale / sqrt(variance + epsilon) and b = bias - mean a."""
    x, scale, bias, mean, variance = node.input[:5]
    epsilon = rewriter.float32(float_attribute(node, "epsilon", 1e-5))
    root = rewriter.emit("Sqrt", rewriter.emit("Add", variance, epsilon))
    slope = rewriter.emit("Div", scale, root)
    shift = rewriter.emit("Sub", bias, rewriter.emit("Mul", mean, slope))
    # The channel axis is the second one; the number of axes after it comes from the input's shape.
    sizes = rewriter.emit("Slice", rewriter.emit("Shape", x), *_past_channels(rewriter))
    trailing = rewriter.emit("Mul", sizes, rewriter.constant(np.array([0], np.int64)))
    trailing = rewriter.emit("Add", trailing, rewriter.constant(np.array([1], np.int64)))
    size = rewriter.constant(np.array([-1], np.int64))
    shape = rewriter.emit("Concat", size, trailing, axis=0)
    slope, shift = (rewriter.emit("Reshape", value, shape) for value in (slope, shift))
    rewriter.emit("Add", rewriter.emit("Mul", x, slope), shift, to=node.output[0])


def _past_channels(rewriter: Rewriter) -> tuple[str, str]:
    first = rewriter.constant(np.array([2], np.int64))
    last = rewriter.constant(np.array([np.iinfo(np.int64).max], np.int64))
    return first, last


def _global_average_pool(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Average over all axes past the channels, by flattening them to one."""
    x = node.input[0]
    rows = rewriter.emit("Reshape", x, rewriter.constant(np.array([0, 0, -1], np.int64)))
    means = rewriter.emit("ReduceMean", rows, axes=[2], keepdims=1)
    sizes = rewriter.emit("Slice", rewriter.emit("Shape", x), *_past_channels(rewriter))
    ones = rewriter.emit("Mul", sizes, rewriter.constant(np.array([0], np.int64)))
    ones = rewriter.emit("Add", ones, rewriter.constant(np.array([1], np.int64)))
    kept = rewriter.constant(np.array([0, 0], np.int64))
    shape = rewriter.emit("Concat", kept, ones, axis=0)
    rewriter.emit("Reshape", means, shape, to=node.output[0])


def _layer_normalization(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write y = (x - mean) / sqrt(variance + epsilon) * scale + bias over the last axes."""
    x, scale = node.input[:2]
    axis, rank = int_attribute(node, "axis", -1), rewriter.rank(x)
    if axis >= 0 and rank is None:
        rewriter.nodes.append(node)
        return
    axes = list(range(axis - rank if axis >= 0 and rank is not None else axis, 0))
    mean = rewriter.emit("ReduceMean", x, axes=axes, keepdims=1)
    centred = rewriter.emit("Sub", x, mean)
    variance = rewriter.emit(
        "ReduceMean", rewriter.emit("Mul", centred, centred), axes=axes, keepdims=1
    )
    epsilon = rewriter.float32(float_attribute(node, "epsilon", 1e-5))
    inverse = rewriter.emit(
        "Reciprocal", rewriter.emit("Sqrt", rewriter.emit("Add", variance, epsilon))
    )
    extra = dict(zip(node.output[1:], (mean, inverse), strict=False))
    for output, value in extra.items():
        if output:
            rewriter.emit("Identity", value, to=output)
    has_bias = len(node.input) > 2 and bool(node.input[2])
    normal = rewriter.emit("Mul", centred, inverse)
    scaled = rewriter.emit("Mul", normal, scale, to=None if has_bias else node.output[0])
    if has_bias:
        rewriter.emit("Add", scaled, node.input[2], to=node.output[0])


def _softplus(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write log(1 + e^x) as max(x, 0) + log(1 + e^-|x|), which never overflows."""
    x = node.input[0]
    small = rewriter.emit("Exp", rewriter.emit("Neg", rewriter.emit("Abs", x)))
    tail = rewriter.emit("Log", rewriter.emit("Add", small, rewriter.float32(1.0)))
    rewriter.emit("Add", rewriter.emit("Relu", x), tail, to=node.output[0])


def _erf(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write the error function as 1 minus a polynomial of 1 / (1 + p |x|) times e^-x^2, signed.

    It is off by 1.5e-7 at most, about what float32 holds.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", formula 7.1.26.
    """
    x = node.input[0]
    one = rewriter.float32(1.0)
    size = rewriter.emit("Abs", x)
    scaled = rewriter.emit("Mul", size, rewriter.float32(_ERF_SCALE))
    t = rewriter.emit("Div", one, rewriter.emit("Add", scaled, one))
    total = rewriter.float32(_ERF_FACTORS[-1])
    for factor in _ERF_FACTORS[-2::-1]:
        total = rewriter.emit("Add", rewriter.emit("Mul", total, t), rewriter.float32(factor))
    bell = rewriter.emit("Exp", rewriter.emit("Neg", rewriter.emit("Mul", x, x)))
    tail = rewriter.emit("Mul", rewriter.emit("Mul", total, t), bell)
    rewriter.emit(
        "Mul", rewriter.emit("Sub", one, tail), rewriter.emit("Sign", x), to=node.output[0]
    )


def _hard_sigmoid(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    slope = rewriter.float32(float_attribute(node, "alpha", 0.2))
    shift = rewriter.float32(float_attribute(node, "beta", 0.5))
    line = rewriter.emit("Add", rewriter.emit("Mul", node.input[0], slope), shift)
    low = rewriter.emit("Max", line, rewriter.float32(0.0))
    rewriter.emit("Min", low, rewriter.float32(1.0), to=node.output[0])


def _prelu(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    x, slope = node.input
    negative = rewriter.emit("Mul", rewriter.emit("Min", x, rewriter.float32(0.0)), slope)
    rewriter.emit("Add", rewriter.emit("Relu", x), negative, to=node.output[0])


def _reciprocal(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    rewriter.emit("Div", rewriter.float32(1.0), node.input[0], to=node.output[0])


def _mean(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    share = rewriter.float32(1.0 / len(node.input))
    rewriter.emit("Mul", rewriter.emit("Sum", *node.input), share, to=node.output[0])


def _softsign(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    x = node.input[0]
    bound = rewriter.emit("Add", rewriter.emit("Abs", x), rewriter.float32(1.0))
    rewriter.emit("Div", x, bound, to=node.output[0])


def _reduce_of_squares(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write ReduceSumSquare and ReduceL2 as a sum of squares, the latter with its root."""
    x = node.input[0]
    squares = rewriter.emit("Mul", x, x)
    axes = ints_attribute(node, "axes")
    keep = int_attribute(node, "keepdims", 1)
    inputs = [squares] if axes is None else [squares, rewriter.constant(np.array(axes, np.int64))]
    is_norm = node.op_type == "ReduceL2"
    total = rewriter.emit(
        "ReduceSum", *inputs, keepdims=keep, to=None if is_norm else node.output[0]
    )
    if is_norm:
        rewriter.emit("Sqrt", total, to=node.output[0])


def _max_unpool(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write it as adding to zeros at places that count over the whole tensor.

    Without the size of the result as third input it stays, and is refused.
    """
    if len(node.input) < 3:
        rewriter.nodes.append(node)
        return
    values, places, size = node.input
    whole = rewriter.constant(np.array([-1], np.int64))
    count = rewriter.emit("ReduceProd", size, axes=[0], keepdims=1)
    zeros = rewriter.emit("Expand", rewriter.float32(0.0), count)
    places, values = (rewriter.emit("Reshape", value, whole) for value in (places, values))
    node_name = rewriter.new_name()
    scatter = helper.make_node(
        "ScatterElements", [zeros, places, values], [node_name], name=node_name, reduction="add"
    )
    rewriter.nodes.append(scatter)
    rewriter.emit("Reshape", node_name, size, to=node.output[0])


def _is_nan(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write it as unlike itself, which nothing else is."""
    equal = rewriter.emit("Equal", node.input[0], node.input[0])
    rewriter.emit("Not", equal, to=node.output[0])


def _cast(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Keep numbers in float32 where ONNX goes on in float64."""
    if int_attribute(node, "to", 0) == onnx.TensorProto.DOUBLE:
        attribute = helper.make_attribute("to", onnx.TensorProto.FLOAT)
        name = node.output[0]
        kept = helper.make_node("Cast", [node.input[0]], [name], name=name)
        kept.attribute.append(attribute)
        rewriter.nodes.append(kept)
    else:
        rewriter.nodes.append(node)


def _subtract(rewriter: Rewriter, node: onnx.NodeProto) -> None:
    """Write AdamW's 1 - beta ** step, which is made in float64, so that float32 does.

    With t = tanh(step * log(beta) / 2) it is -2 t / (1 - t): no digits are lost near 0.
    """
    power = rewriter.maker(node.input[1])
    base = None if power is None else rewriter.float64(power.input[0])
    is_correction = (
        power is not None and power.op_type == "Pow" and rewriter.float64(node.input[0]) == 1.0
    )
    if power is None or base is None or not is_correction:
        rewriter.nodes.append(node)
        return
    half_log = rewriter.float32(math.log(max(base, _SMALLEST_BASE)) / 2.0)
    bent = rewriter.emit("Tanh", rewriter.emit("Mul", power.input[1], half_log))
    numerator = rewriter.emit("Mul", bent, rewriter.float32(-2.0))
    denominator = rewriter.emit("Sub", rewriter.float32(1.0), bent)
    rewriter.emit("Div", numerator, denominator, to=node.output[0])


_REWRITES: dict[str, Rewrite] = {
    "Cast": _cast,
    "IsNaN": _is_nan,
    "Sub": _subtract,
    "BatchNormalization": _batch_normalization,
    "Erf": _erf,
    "GlobalAveragePool": _global_average_pool,
    "HardSigmoid": _hard_sigmoid,
    "If": _choice,
    "LayerNormalization": _layer_normalization,
    "MaxUnpool": _max_unpool,
    "Mean": _mean,
    "PRelu": _prelu,
    "Reciprocal": _reciprocal,
    "ReduceL2": _reduce_of_squares,
    "ReduceSumSquare": _reduce_of_squares,
    "Softplus": _softplus,
    "Softsign": _softsign,
}
