"""PyTorch's eager training step over the same nets, weights and data.

Needs an environment of its own: `pip install torch onnx numpy`.
"""

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn

from tests.benchmarks.training.net_data import data
from tests.benchmarks.training.nets import model as model_of
from tests.benchmarks.training.step_side import LR, Epoch, batches, serve_steps


def module_of(model: onnx.ModelProto) -> nn.Sequential:
    """Return a chain of torch layers with the model's weights."""
    weights = {
        tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy())
        for tensor in model.graph.initializer
    }
    return nn.Sequential(*[_layer(node, weights) for node in model.graph.node])


def _layer(node: onnx.NodeProto, weights: dict[str, torch.Tensor]) -> nn.Module:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    tensors = [weights[name] for name in node.input[1:]]
    makers = {
        "Relu": nn.ReLU,
        "Tanh": nn.Tanh,
        "Flatten": nn.Flatten,
        "Clip": nn.ReLU6,
        "LeakyRelu": nn.LeakyReLU,
        "GlobalAveragePool": _MeanOverPositions,
        "Gemm": lambda: _filled(nn.Linear(*tensors[0].shape[::-1]), tensors),
        "Conv": lambda: _conv(attributes, tensors),
        "MaxPool": lambda: _max_pool(attributes),
        "BatchNormalization": lambda: _batch_norm(tensors),
    }
    return makers[node.op_type]()


class _MeanOverPositions(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool1d(x, 1) if x.ndim == 3 else self._mean_2d(x)

    @staticmethod
    def _mean_2d(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 1)


def _filled(layer: nn.Module, tensors: list[torch.Tensor]) -> nn.Module:
    with torch.no_grad():
        layer.weight.copy_(tensors[0])
        if len(tensors) > 1:
            layer.bias.copy_(tensors[1])
    return layer


def _conv(attributes: dict, tensors: list[torch.Tensor]) -> nn.Module:
    axes, group = len(attributes["kernel_shape"]), attributes["group"]
    layer = (nn.Conv1d if axes == 1 else nn.Conv2d)(
        tensors[0].shape[1] * group,
        tensors[0].shape[0],
        tuple(attributes["kernel_shape"]),
        stride=tuple(attributes["strides"]),
        padding=tuple(attributes["pads"][:axes]),
        groups=group,
        bias=len(tensors) > 1,
    )
    return _filled(layer, tensors)


def _max_pool(attributes: dict) -> nn.Module:
    axes = len(attributes["kernel_shape"])
    return (nn.MaxPool1d if axes == 1 else nn.MaxPool2d)(
        tuple(attributes["kernel_shape"]),
        tuple(attributes["strides"]),
        tuple(attributes.get("pads", [0] * axes)[:axes]),
    )


def _batch_norm(tensors: list[torch.Tensor]) -> nn.Module:
    layer = nn.BatchNorm2d(len(tensors[0]))
    _filled(layer, tensors[:2])
    layer.running_mean.copy_(tensors[2])
    layer.running_var.copy_(tensors[3])
    return layer


def open_net(name: str) -> tuple[Epoch, int]:
    """Return one epoch of plain SGD, with BatchNormalization on its stored statistics."""
    net = module_of(model_of(name)).eval()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    inputs, targets = (torch.from_numpy(values) for values in data(name))
    rng = np.random.default_rng(2)

    def epoch() -> float:
        losses = []
        for rows in batches(len(inputs), rng):
            chosen = torch.from_numpy(rows)
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(net(inputs[chosen]), targets[chosen])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    return epoch, sum(1 for _ in batches(len(inputs), np.random.default_rng(0)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve_steps(open_net, {"torch": torch.__version__})
