"""The nets whose training step is timed, as the same ONNX models and data for every side."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8
ROWS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """A model that grows layer by layer from `x` [N, ...] to `logits` [N, classes]."""

    input_shape: tuple[int, ...]
    classes: int
    build: Callable[["Layers"], None]

    def model(self) -> onnx.ModelProto:
        """Return the model with weights from a fixed seed."""
        layers = Layers()
        self.build(layers)
        graph = helper.make_graph(
            layers.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *self.input_shape])],
            [helper.make_tensor_value_info(layers.last, TensorProto.FLOAT, ["N", self.classes])],
            layers.weights,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )

    def data(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return float32 [512, ...] and int64 [512] from a fixed seed."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((ROWS, *self.input_shape), dtype=np.float32)
        return x, rng.integers(0, self.classes, ROWS)


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


NETS = {
    "mlp": Net(input_shape=(64,), classes=6, build=_mlp),
    "cnn1d": Net(input_shape=(9, 128), classes=6, build=_cnn_1d),
    # onnxruntime-training turns a BatchNormalization exported for inference into one of batch
    # statistics and so computes something else; the net without it lets all sides do the same work.
    "depthwise2d": Net(input_shape=(3, 32, 32), classes=10, build=_depthwise_plain),
    "depthwise2d-bn": Net(input_shape=(3, 32, 32), classes=10, build=_depthwise_normed),
}
