"""Trains and exports the four models that the tests fine-tune as a device would.

    python -m tests.vectors.training.make_real

Three recognise the exercises of the demo's data from one window of a watch's sensors; they are
trained on the left arms of eight people, so that the other people are new to them. The fourth, in
the manner of MobileNetV2, tells ten kinds of drawn stripes apart; it is trained on one camera.
Needs an environment of its own: `pip install torch onnx onnxscript numpy`.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from edgefl.data import Arm, device_shard
from tests.stripes import Camera, stripes
from tests.vectors.training.make_torch import export

FOLDER = Path(__file__).parent / "real"
PEOPLE = range(1, 9)
CLASSES = 7
STEPS, BATCH, LR = 600, 32, 3e-3
OPSET = 18


class Cnn(nn.Module):
    """Two strided convolutions, as small boards use them; reads [N, 64, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(6, 24, 5, 2, 2), nn.Conv1d(24, 32, 5, 2, 2)
        self.norm_first, self.norm_second = nn.BatchNorm1d(24), nn.BatchNorm1d(32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm_first(self.first(x.transpose(1, 2))))
        x = functional.relu(self.norm_second(self.second(x)))
        return self.head(x.mean(2))


class Gru(nn.Module):
    """One GRU over every second sample."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(12, 32, batch_first=True), nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(x.reshape(x.shape[0], 32, 12))
        return self.head(states.mean(1))


class Attention(nn.Module):
    """One encoder layer over sixteen pieces of a window, each of four samples."""

    def __init__(self) -> None:
        super().__init__()
        self.piece = nn.Linear(24, 24)
        self.position = nn.Parameter(0.02 * torch.randn(16, 24))
        self.encoder = nn.TransformerEncoderLayer(
            24, 2, 48, 0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.piece(x.reshape(x.shape[0], 16, 24)) + self.position
        return self.head(self.norm(self.encoder(x)).mean(1))


class InvertedResidual(nn.Module):
    """MobileNetV2's block."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = 3 * inputs
        self.is_residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.layers(x)
        return out + x if self.is_residual else out


def mobilenet() -> nn.Module:
    """Return a small MobileNetV2 for [N, 3, 32, 32]."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        InvertedResidual(8, 12, 2),
        InvertedResidual(12, 12, 1),
        InvertedResidual(12, 16, 2),
        InvertedResidual(16, 16, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, 10),
    )


def people() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the windows of the left arms of the people trained on."""
    shards = [device_shard(user, Arm.LEFT) for user in PEOPLE]
    return np.concatenate([s.x for s in shards]), np.concatenate([s.y for s in shards])


def train(net: nn.Module, x: NDArray[np.float32], y: NDArray[np.int64], steps: int) -> float:
    """Train with Adam; return the share of right answers on the same data."""
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    rng = np.random.default_rng(0)
    net.train()
    for _ in range(steps):
        rows = torch.from_numpy(rng.integers(0, len(x), BATCH))
        optimizer.zero_grad()
        functional.cross_entropy(net(inputs[rows]), targets[rows]).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        return float((net(inputs).argmax(1) == targets).float().mean())


def main() -> None:
    """Train, export and say what was reached."""
    FOLDER.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    windows, images = people(), stripes(2000, Camera(), seed=1)
    cases = {
        "har-cnn": (Cnn, windows, "dynamo"),
        "har-gru": (Gru, windows, "torchscript"),
        "har-attention": (Attention, windows, "dynamo"),
        "mobilenet": (mobilenet, images, "torchscript"),
    }
    for name, (make, (x, y), exporter) in cases.items():
        torch.manual_seed(0)
        net = make()
        accuracy = train(net, x, y, STEPS)
        exported = export(net, torch.from_numpy(x[:2]), exporter, OPSET)
        (FOLDER / f"{name}.onnx").write_bytes(exported)
        sys.stderr.write(f"{name}: {accuracy:.3f} at home, {len(exported)} bytes\n")


if __name__ == "__main__":
    main()
