"""The nets whose training step is timed, as the same ONNX models for every side."""

from collections.abc import Callable

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.benchmarks.training.net_data import SHAPES

OPSET = 17
IR_VERSION = 8


def model(name: str) -> onnx.ModelProto:
    """Return a net with weights from a fixed seed, from `x` [N, ...] to logits [N, classes]."""
    shapes, layers = SHAPES[name], Layers()
    _BUILDERS[name](layers)
    graph = helper.make_graph(
        layers.nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shapes.input_shape])],
        [helper.make_tensor_value_info(layers.last, TensorProto.FLOAT, ["N", shapes.classes])],
        layers.weights,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


class Layers:
    """Collects nodes and weights; each layer reads the one before."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.last = "x"
        self._rng = np.random.default_rng(0)

    def add(self, operator: str, *tensors: str, **attributes: object) -> None:
        output = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, [self.last, *tensors], [output], name=output, **attributes)
        )
        self.last = output

    def tensor(self, values: NDArray[np.generic]) -> str:
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def _uniform(self, shape: tuple[int, ...], fan_in: int) -> str:
        bound = fan_in**-0.5
        return self.tensor(self._rng.uniform(-bound, bound, shape).astype(np.float32))

    def linear(self, inputs: int, outputs: int) -> None:
        weight, bias = self._uniform((outputs, inputs), inputs), self._uniform((outputs,), inputs)
        self.add("Gemm", weight, bias, transB=1)

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: list[int],
        *,
        stride: int = 1,
        group: int = 1,
        bias: bool = True,
    ) -> None:
        pads = [size // 2 for size in kernel]
        fan_in = inputs // group * int(np.prod(kernel))
        tensors = [self._uniform((outputs, inputs // group, *kernel), fan_in)]
        if bias:
            tensors.append(self._uniform((outputs,), fan_in))
        self.add(
            "Conv",
            *tensors,
            kernel_shape=kernel,
            pads=[*pads, *pads],
            strides=[stride] * len(kernel),
            group=group,
        )

    def batch_norm(self, channels: int) -> None:
        """Add inference statistics of a fixed seed."""
        mean = self._rng.normal(0, 0.1, channels).astype(np.float32)
        variance = self._rng.uniform(0.5, 1.5, channels).astype(np.float32)
        ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        self.add("BatchNormalization", *map(self.tensor, (ones, zeros, mean, variance)))

    def pooled_head(self, channels: int, classes: int) -> None:
        self.add("GlobalAveragePool")
        self.add("Flatten")
        self.linear(channels, classes)


def _mlp(layers: Layers) -> None:
    layers.linear(64, 128)
    layers.add("Relu")
    layers.linear(128, 64)
    layers.add("Tanh")
    layers.linear(64, 6)


def _cnn_1d(layers: Layers) -> None:
    for inputs, outputs, size in ((9, 32, 5), (32, 64, 5)):
        layers.conv(inputs, outputs, [size])
        layers.add("Relu")
        layers.add("MaxPool", kernel_shape=[2], strides=[2])
    layers.conv(64, 64, [3])
    layers.add("Relu")
    layers.pooled_head(64, 6)


def _depthwise(layers: Layers, *, batch_norm: bool) -> None:
    layers.conv(3, 16, [3, 3])
    layers.add("Relu")
    layers.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    layers.conv(16, 16, [3, 3], group=16, bias=not batch_norm)
    if batch_norm:
        layers.batch_norm(16)
    low, high = (layers.tensor(np.array(bound, np.float32)) for bound in (0, 6))
    layers.add("Clip", low, high)
    layers.conv(16, 32, [1, 1])
    layers.add("LeakyRelu", alpha=0.01)
    layers.pooled_head(32, 10)


def _depthwise_plain(layers: Layers) -> None:
    _depthwise(layers, batch_norm=False)


def _depthwise_normed(layers: Layers) -> None:
    _depthwise(layers, batch_norm=True)


_BUILDERS: dict[str, Callable[[Layers], None]] = {
    "mlp": _mlp,
    "cnn1d": _cnn_1d,
    "depthwise2d": _depthwise_plain,
    "depthwise2d-bn": _depthwise_normed,
}
