"""Writes perexample_torch.json: clipped sums of single examples' gradients, by torch.func.

Run with PyTorch and onnxscript installed, from the repository's root:
python tests/vectors/make_perexample_torch.py
"""

import base64
import io
import json
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

BATCH, CLASSES = 6, 3
DIGITS = 9


class Recurrent(nn.Module):
    """Two stacked layers over time, the last hidden state to a linear layer."""

    def __init__(self, kind: type[nn.Module]) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = kind(4, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits; x is [N, T, 4]."""
        return self.head(self.layers(x)[0][:, -1])


class Attention(nn.Module):
    """An embedding, one attention head, a residual and layer normalisation."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.query, self.key, self.value = (nn.Linear(6, 6) for _ in range(3))
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits; x is [N, T] of whole numbers."""
        h = self.embedding(x)
        scores = self.query(h) @ self.key(h).transpose(1, 2) / 6**0.5
        h = self.norm(h + torch.softmax(scores, -1) @ self.value(h))
        return self.head(h.mean(1))


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Return the networks with the shape of one example."""
    mlp = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, CLASSES))
    cnn = nn.Sequential(
        nn.Conv1d(4, 6, 3, padding=1, stride=2),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.Conv1d(6, 6, 3, groups=6),
        nn.PReLU(6),
        nn.Conv1d(6, 4, 1, bias=False),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4, CLASSES),
    )
    cnn[1].running_mean.normal_(0, 0.2)
    cnn[1].running_var.uniform_(0.5, 1.5)
    return {
        "MLP": (mlp, (5,)),
        "1-D CNN": (cnn, (4, 14)),
        "attention": (Attention(), (5,)),
        "LSTM": (Recurrent(nn.LSTM), (7, 4)),
        "GRU": (Recurrent(nn.GRU), (7, 4)),
    }


def single_gradients(
    network: nn.Module, x: torch.Tensor, target: torch.Tensor
) -> dict[str, np.ndarray]:
    """Return each example's own gradient, [N, ...] by name, in float64."""
    wide = network.double()
    parameters = {name: value.detach() for name, value in wide.named_parameters()}

    def loss(values: dict[str, torch.Tensor], one: torch.Tensor, label: torch.Tensor):
        logits = functional_call(wide, values, (one[None],))
        return nn.functional.cross_entropy(logits, label[None])

    x = x.double() if x.is_floating_point() else x
    if isinstance(network, Recurrent):
        # torch.func.vmap has no batching rule for recurrent layers.
        each = [grad(loss)(parameters, *pair) for pair in zip(x, target, strict=True)]
        found = {name: torch.stack([one[name] for one in each]) for name in parameters}
    else:
        found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, target)
    return {name: value.numpy() for name, value in found.items()}


def plain(array: np.ndarray) -> list:
    """Return nested lists of floats with enough digits for float32."""
    return np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"), otypes=[float])(array).tolist()


def case(name: str, network: nn.Module, shape: tuple[int, ...]) -> dict[str, object]:
    """Return a network with examples, norms and the norm of its clipped gradient by layer."""
    network.eval()
    is_text = isinstance(network, Attention)
    x = torch.randint(0, 9, (BATCH, *shape)) if is_text else torch.randn(BATCH, *shape)
    target = torch.randint(0, CLASSES, (BATCH,))
    weights = torch.rand(BATCH).double() + 0.5
    file = io.BytesIO()
    torch.onnx.export(
        network,
        (x,),
        file,
        input_names=["x"],
        output_names=["y"],
        opset_version=17,
        dynamo=False,
        # Every parameter stays a tensor of its own, under its own name.
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        dynamic_axes={"x": {0: "N"}, "y": {0: "N"}},
    )
    single = single_gradients(network, x, target)
    flat = np.concatenate([value.reshape(BATCH, -1) for value in single.values()], axis=1)
    norms = np.linalg.norm(flat, axis=1)
    clip = float(np.float32(np.median(norms)))
    factors = weights.numpy() / weights.numpy().sum() * np.minimum(1, clip / norms)
    clipped = {
        name: np.tensordot(factors, value, 1)
        for name, value in single.items()
        if "layers" not in name
    }
    return {
        "name": name,
        "onnx": base64.b64encode(file.getvalue()).decode(),
        "x": x.tolist() if is_text else plain(x.numpy()),
        "target": target.tolist(),
        "weights": plain(weights.numpy()),
        "clip": clip,
        "norms": plain(norms),
        "clipped_norm": float(f"{np.linalg.norm(factors @ flat):.{DIGITS}g}"),
        "clipped": {name: plain(value) for name, value in clipped.items()},
    }


def main() -> None:
    """Write the file beside this script."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    cases = [case(name, *net) for name, net in networks().items()]
    document = {
        "provenance": f"PyTorch {torch.__version__.split('+')[0]}: models by torch.onnx.export, "
        "norms and clipped gradients by torch.func (vmap of grad; a loop for recurrent layers) in "
        "float64; written by tests/vectors/make_perexample_torch.py. Gradients of recurrent layers "
        "are in the norms alone, as the exporter reorders their gates.",
        "cases": cases,
    }
    path = Path(__file__).with_name("perexample_torch.json")
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
