"""Draws whole models at random: layers, activations, shapes and joins, from an input to logits.

Each node is evaluated as it is added, so that values stay small and away from poles.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from hypothesis import reject
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.gradient_check import evaluator

BATCH = 3
CLASSES = 4
LARGEST_VALUE = 20.0
LARGEST_SIZE = 240
STARTS = ((5,), (2, 6), (4, 5), (4, 4, 4), (2, 5, 6))

Draw = Callable[[st.SearchStrategy], object]


@dataclass
class Draft:
    """A model in the making.

    Attributes:
        nodes: So far.
        weights: Tensors that `all` may train, and settings.
        values: Float64 value of each float tensor of the chain, with the batch axis.
        last: The chain's present value.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    last: str = "x"

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the present value without the batch."""
        return self.values[self.last].shape[1:]

    def weight(self, *shape: int, near: float = 0.0) -> str:
        """Add a weight of small random values around a number."""
        rng = np.random.default_rng([len(self.weights), *shape])
        spread = 1.0 / max(np.sqrt(np.prod(shape[1:])), 1.0)
        return self._store(near + spread * rng.normal(size=shape), np.float32)

    def ints(self, *values: int) -> str:
        """Add whole numbers, as axes and shapes are given."""
        return self._store(np.array(values), np.int64)

    def integer(self, value: int) -> str:
        """Add one whole number without axes."""
        return self._store(np.array(value), np.int64)

    def number(self, value: float) -> str:
        """Add a scalar setting."""
        return self._store(np.array(value), np.float32)

    def _store(self, values: np.ndarray, dtype: type) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(values, dtype)
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> list[str]:
        """Append a node and evaluate it; the first input is the present value if none is given.

        Raises:
            TooLargeError: Its value is not small and finite.
        """
        names = [f"v{len(self.nodes)}.{index}" for index in range(outputs)]
        node = helper.make_node(op, list(inputs or (self.last,)), names, name=f"{op}_{names[0]}")
        for key, value in attributes.items():
            node.attribute.append(helper.make_attribute(key, value))
        feeds = {name: self._value(name) for name in node.input if name}
        with np.errstate(all="ignore"):
            found = evaluator(node).run(None, feeds)
        for name, value in zip(names, found, strict=True):
            is_float = value.dtype.kind == "f"
            if value.size > LARGEST_SIZE * BATCH or not np.isfinite(value).all():
                raise TooLargeError
            if is_float and value.size and np.abs(value).max() > LARGEST_VALUE:
                raise TooLargeError
            self.values[name] = value.astype(np.float64) if is_float else value
        self.nodes.append(node)
        self.last = names[0]
        return names

    def _value(self, name: str) -> np.ndarray:
        if name in self.values:
            return self.values[name]
        value = self.weights[name]
        return value.astype(np.float64) if value.dtype == np.float32 else value

    def model(self) -> onnx.ModelProto:
        """Close the chain with a linear layer and return it as an exporter would write it."""
        if len(self.shape) != 1:
            self.add("Flatten")
        self.add(
            "Gemm", self.last, self.weight(CLASSES, *self.shape), self.weight(CLASSES), transB=1
        )
        sizes = ["N", *self.values["x"].shape[1:]]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, ["N", CLASSES])],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class TooLargeError(Exception):
    """A node's value is of no use; the node is not added."""


UNARY = (
    "Abs", "Atan", "Celu", "Cos", "Elu", "Erf", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
    "Neg", "Relu", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
    "Cosh", "Sinh", "Exp", "Dropout",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean")
REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSumSquare",
)  # fmt: skip


def _unary(draft: Draft, draw: Draw) -> None:
    draft.add(draw(st.sampled_from(UNARY)))


def _positive(draft: Draft, draw: Draw) -> None:
    """Sqrt, Log and Reciprocal of x * x + 1, and Pow."""
    square = draft.add("Pow", draft.last, draft.number(2.0))[0]
    draft.add("Add", square, draft.number(1.0))
    draft.add(draw(st.sampled_from(("Sqrt", "Log", "Reciprocal"))))


def _with_weight(draft: Draft, draw: Draw) -> None:
    shape = [size if draw(st.booleans()) else 1 for size in draft.shape]
    op = draw(st.sampled_from((*BINARY, "Div", "PRelu")))
    near = 2.0 if op == "Div" else 0.2
    draft.add(op, draft.last, draft.weight(*shape, near=near))


def _with_earlier(draft: Draft, draw: Draw) -> None:
    shape = draft.values[draft.last].shape
    same = [
        name
        for name, value in draft.values.items()
        if value.shape == shape and value.dtype == np.float64
    ]
    here, other = draft.last, draw(st.sampled_from(same))
    if draw(st.booleans()):
        op = draw(st.sampled_from(("Greater", "Less")))
        draft.add("Where", draft.add(op, here, draft.number(0.1))[0], other, here)
        return
    draft.add(draw(st.sampled_from(BINARY)), here, other)


def _clip(draft: Draft, draw: Draw) -> None:
    low, high = draw(st.sampled_from(((-0.5, 0.7), (0.0, 6.0))))
    draft.add("Clip", draft.last, draft.number(low), draft.number(high))


def _reduce(draft: Draft, draw: Draw) -> None:
    axis = draw(st.integers(1, len(draft.shape)))
    op = draw(st.sampled_from((*REDUCTIONS, "ReduceSum")))
    keepdims = 1 if len(draft.shape) == 1 else draw(st.integers(0, 1))
    if op == "ReduceSum":
        draft.add(op, draft.last, draft.ints(axis), keepdims=keepdims)
    else:
        draft.add(op, axes=[axis], keepdims=keepdims)


def _softmax(draft: Draft, draw: Draw) -> None:
    axis = draw(st.integers(1, len(draft.shape)))
    draft.add(draw(st.sampled_from(("Softmax", "LogSoftmax"))), axis=axis)


def _normalise(draft: Draft, draw: Draw) -> None:
    op = draw(st.sampled_from(("LayerNormalization", "LpNormalization", "InstanceNormalization")))
    if op == "LpNormalization":
        draft.add(op, axis=-1, p=2)
    elif op == "LayerNormalization":
        size = draft.shape[-1]
        draft.add(op, draft.last, draft.weight(size, near=1.0), draft.weight(size), axis=-1)
    elif len(draft.shape) > 1:
        channels = draft.shape[0]
        draft.add(op, draft.last, draft.weight(channels, near=1.0), draft.weight(channels))


def _batch_norm(draft: Draft, _: Draw) -> None:
    channels = draft.shape[0]
    mean, variance = draft.weight(channels), draft.weight(channels, near=0.0)
    draft.weights[variance] = np.abs(draft.weights[variance]) + np.float32(0.5)
    scale, bias = draft.weight(channels, near=1.0), draft.weight(channels)
    draft.add("BatchNormalization", draft.last, scale, bias, mean, variance)


def _linear(draft: Draft, draw: Draw) -> None:
    width = draw(st.integers(1, 6))
    if len(draft.shape) == 1 and draw(st.booleans()):
        draft.add("Gemm", draft.last, draft.weight(width, *draft.shape), "", transB=1)
        return
    draft.add("MatMul", draft.last, draft.weight(draft.shape[-1], width))


def _windows(draft: Draft, draw: Draw, *, dilated: bool) -> dict[str, object]:
    axes = len(draft.shape) - 1
    kernel = [draw(st.integers(1, min(3, size))) for size in draft.shape[1:]]
    strides = [draw(st.integers(1, 2)) for _ in range(axes)]
    pads = [draw(st.integers(0, size - 1)) for size in kernel] * 2
    found: dict[str, object] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if dilated:
        found["dilations"] = [
            draw(st.integers(1, 2)) if (k - 1) * 2 + 1 <= size else 1
            for k, size in zip(kernel, draft.shape[1:], strict=True)
        ]
    return found


def _conv(draft: Draft, draw: Draw) -> None:
    windows = _windows(draft, draw, dilated=True)
    kernel, channels = windows["kernel_shape"], draft.shape[0]
    group = draw(st.sampled_from([g for g in (1, 2, channels) if channels % g == 0]))
    filters = group * draw(st.integers(1, 2))
    bias = draft.weight(filters) if draw(st.booleans()) else ""
    if draw(st.booleans()):
        weight = draft.weight(filters, channels // group, *kernel)
        draft.add("Conv", draft.last, weight, bias, group=group, **windows)
    else:
        weight = draft.weight(channels, filters // group, *kernel)
        draft.add("ConvTranspose", draft.last, weight, bias, group=group, **windows)


def _pool(draft: Draft, draw: Draw) -> None:
    op = draw(st.sampled_from(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")))
    if op.startswith("Global"):
        draft.add(op)
        return
    windows = _windows(draft, draw, dilated=False)
    if op == "AveragePool":
        windows["count_include_pad"] = draw(st.integers(0, 1))
    draft.add(op, **windows)


def _reshape(draft: Draft, draw: Draw) -> None:
    total = int(np.prod(draft.shape))
    first = draw(st.sampled_from([size for size in range(1, total + 1) if total % size == 0]))
    choice = draw(st.sampled_from(("Reshape", "Flatten", "Transpose", "Unsqueeze", "Tile")))
    rank = len(draft.shape)
    if choice == "Reshape":
        draft.add("Reshape", draft.last, draft.ints(0, first, total // first))
    elif choice == "Flatten":
        draft.add("Flatten")
    elif choice == "Transpose":
        order = draw(st.permutations(range(1, rank + 1)))
        draft.add("Transpose", perm=[0, *order])
    elif choice == "Tile":
        draft.add(
            "Tile", draft.last, draft.ints(1, *[draw(st.integers(1, 2)) for _ in range(rank)])
        )
    elif rank < 3:
        draft.add("Unsqueeze", draft.last, draft.ints(draw(st.integers(1, rank + 1))))


def _squeeze(draft: Draft, draw: Draw) -> None:
    ones = [axis + 1 for axis, size in enumerate(draft.shape) if size == 1]
    if ones and len(draft.shape) > 1:
        draft.add("Squeeze", draft.last, draft.ints(draw(st.sampled_from(ones))))
        return
    axes = [2 if size == 1 else size for size in draft.shape]
    draft.add("Expand", draft.last, draft.ints(1, *axes))


def _cut(draft: Draft, draw: Draw) -> None:
    axis = draw(st.integers(1, len(draft.shape)))
    size = draft.shape[axis - 1]
    choice = draw(st.sampled_from(("Slice", "Split", "Gather", "Pad", "CumSum")))
    if choice == "Slice" and size > 1:
        start = draw(st.integers(0, size - 2))
        bounds = draft.ints(start), draft.ints(size), draft.ints(axis)
        draft.add("Slice", draft.last, *bounds, draft.ints(draw(st.integers(1, 2))))
    elif choice == "Split" and size > 1:
        parts = draft.ints(1, size - 1)
        first, second = draft.add("Split", draft.last, parts, outputs=2, axis=axis)
        draft.add("Concat", *draw(st.permutations((first, second))), axis=axis)
    elif choice == "Gather":
        picked = [draw(st.integers(-size, size - 1)) for _ in range(draw(st.integers(1, 3)))]
        draft.add("Gather", draft.last, draft.ints(*picked), axis=axis)
    elif choice == "Pad":
        pads = np.zeros((2, len(draft.shape) + 1), int)
        pads[:, axis] = draw(st.integers(0, 1)), draw(st.integers(0, 2))
        mode = draw(st.sampled_from(("constant", "reflect", "edge"))) if size > 2 else "constant"
        draft.add("Pad", draft.last, draft.ints(*pads.reshape(-1).tolist()), mode=mode)
    elif choice == "CumSum":
        draft.add("CumSum", draft.last, draft.integer(axis), reverse=draw(st.integers(0, 1)))


def _blocks(draft: Draft, draw: Draw) -> None:
    channels, height, width = draft.shape
    if channels % 4 == 0:
        mode = draw(st.sampled_from(("DCR", "CRD")))
        draft.add("DepthToSpace", blocksize=2, mode=mode)
    elif height % 2 == 0 and width % 2 == 0:
        draft.add("SpaceToDepth", blocksize=2)


def _resize(draft: Draft, draw: Draw) -> None:
    scales = np.ones(len(draft.shape) + 1, np.float32)
    scales[-1] = draw(st.sampled_from((2.0, 3.0)))
    name = draft.weight(1)
    draft.weights[name] = scales
    draft.add(
        "Resize",
        draft.last,
        "",
        name,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _recurrent(draft: Draft, draw: Draw) -> None:
    op = draw(st.sampled_from(("GRU", "LSTM", "RNN")))
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    hidden, features = draw(st.integers(1, 3)), draft.shape[1]
    direction = draw(st.sampled_from(("forward", "reverse", "bidirectional")))
    ways = 2 if direction == "bidirectional" else 1
    attributes: dict[str, object] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    steps_first = draft.add("Transpose", perm=[1, 0, 2])[0]
    weights = (
        draft.weight(ways, gates * hidden, features),
        draft.weight(ways, gates * hidden, hidden),
        draft.weight(ways, 2 * gates * hidden),
    )
    draft.add(op, steps_first, *weights, **attributes)
    steps = draft.values[draft.last].shape[0]
    draft.add("Transpose", perm=[2, 0, 1, 3])
    draft.add("Reshape", draft.last, draft.ints(0, steps, ways * hidden))


OF_ANY_RANK = (
    _unary, _unary, _with_weight, _with_earlier, _positive, _clip, _reduce, _softmax, _normalise,
    _linear, _reshape, _squeeze, _cut,
)  # fmt: skip
OF_PLANES = (_batch_norm, _conv, _conv, _pool)
OF_SEQUENCES = (_recurrent, _resize)
OF_PICTURES = (_blocks, _resize)


DRAWN = {
    *(*UNARY, *BINARY, *REDUCTIONS, "Div", "PRelu", "ReduceSum"),
    *("Pow", "Sqrt", "Log", "Reciprocal", "Clip", "Greater", "Less", "Where"),
    *("Softmax", "LogSoftmax", "LayerNormalization", "LpNormalization", "InstanceNormalization"),
    *("BatchNormalization", "Gemm", "MatMul", "Conv", "ConvTranspose", "GRU", "LSTM", "RNN"),
    *("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Resize"),
    *("Reshape", "Flatten", "Transpose", "Unsqueeze", "Squeeze", "Tile", "Expand"),
    *("Slice", "Split", "Concat", "Gather", "Pad", "CumSum", "DepthToSpace", "SpaceToDepth"),
}
"""Operators of the parts above."""


@st.composite
def models(draw: Draw, least: int = 3, most: int = 9) -> onnx.ModelProto:
    """Draw a model of that many parts."""
    shape = draw(st.sampled_from(STARTS))
    draft = Draft()
    draft.values["x"] = _inputs(shape).astype(np.float64)
    draft.add("Add", "x", draft.weight(*shape))  # so that gradients flow through every part
    for _ in range(draw(st.integers(least, most))):
        parts = list(OF_ANY_RANK)
        if len(draft.shape) > 1:
            parts += OF_PLANES
        parts += {2: OF_SEQUENCES, 3: OF_PICTURES}.get(len(draft.shape), ())
        before = len(draft.nodes), draft.last
        try:
            draw(st.sampled_from(parts))(draft, draw)
        except TooLargeError:
            del draft.nodes[before[0] :]
            draft.last = before[1]
        if len(draft.shape) > 3:
            draft.add("Flatten")
    try:
        return draft.model()
    except TooLargeError:
        reject()


def inputs_of(model: onnx.ModelProto) -> np.ndarray:
    """The input that the model was drawn with: float32 [3, ...]."""
    dims = model.graph.input[0].type.tensor_type.shape.dim[1:]
    return _inputs(tuple(dim.dim_value for dim in dims))


def _inputs(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng([7, *shape]).normal(size=(BATCH, *shape)).astype(np.float32)
