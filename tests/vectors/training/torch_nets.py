"""The nets that PyTorch exports and differentiates as an oracle for the compiler.

Needs an environment of its own with torch; see `make_torch`. Small, so that the files can be kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

TOKENS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """A net with the data it is trained on.

    Attributes:
        make: Returns the module with fresh weights.
        input_shape: Without the batch axis; of tokens if `tokens`.
        classes: Of the labels, or values per row for losses of values.
        loss: As `edgefl model prepare` calls it.
        tokens: Whether inputs are whole numbers below `TOKENS`.
        lr: Learning rate of the 50 steps for SGD; momentum and AdamW take a tenth.
    """

    make: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    classes: int
    loss: str = "cross_entropy"
    tokens: bool = False
    lr: float = 0.1


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 5)
    )


def _binary() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.SiLU(), nn.Linear(16, 8), nn.ELU(), nn.Linear(8, 1))


def _huber() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.Softplus(), nn.Linear(16, 3))


def _cnn_1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(6, 8, 5, padding=2),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.MaxPool1d(3, 2, 1),
        nn.Conv1d(8, 12, 3, dilation=2, padding=2, groups=2),
        nn.SiLU(),
        nn.AvgPool1d(2),
        nn.Conv1d(12, 12, 3, stride=2, padding=1),
        nn.ELU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )


def _cnn_2d() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.PReLU(8),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.Conv2d(8, 12, 1),
        nn.LeakyReLU(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )


class _InvertedResidual(nn.Module):
    """MobileNetV3's block: expand, depthwise, squeeze and excite, project, add."""

    def __init__(self, inputs: int, wide: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.is_residual = stride == 1 and inputs == outputs
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1), nn.BatchNorm2d(wide))
        self.depthwise = nn.Sequential(
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide), nn.BatchNorm2d(wide)
        )
        self.squeeze = nn.Conv2d(wide, 4, 1)
        self.excite = nn.Conv2d(4, wide, 1)
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = functional.hardswish(self.depthwise(functional.hardswish(self.expand(x))))
        scale = functional.adaptive_avg_pool2d(wide, 1)
        scale = functional.hardsigmoid(self.excite(functional.relu(self.squeeze(scale))))
        out = self.project(wide * scale)
        return out + x if self.is_residual else out


def _mobilenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1),
        nn.BatchNorm2d(6),
        nn.Hardswish(),
        _InvertedResidual(6, 12, 6, 1),
        _InvertedResidual(6, 12, 8, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 16),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(16, 5),
    )


class _Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 12, batch_first=True)
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.gru(x)
        return self.head(states[:, -1])


class _Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(x)
        return self.head(states.mean(1))


class _Attention(nn.Module):
    """Two heads, pre-norm, a feed-forward part with GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 16)
        self.position = nn.Parameter(torch.zeros(10, 16))
        self.norm_in, self.norm_out = nn.LayerNorm(16), nn.LayerNorm(16)
        # A bias of the keys has no gradient: softmax does not see it. AdamW would follow its noise.
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16, bias=False)
        self.value, self.mix = nn.Linear(16, 16), nn.Linear(16, 16)
        self.widen, self.narrow = nn.Linear(16, 24), nn.Linear(24, 16)
        self.head = nn.Linear(16, 5)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], x.shape[1], 2, 8).transpose(1, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position
        h = self.norm_in(x)
        q, k, v = self._split(self.query(h)), self._split(self.key(h)), self._split(self.value(h))
        weights = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, -1)
        mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
        x = x + self.mix(mixed)
        x = x + self.narrow(functional.gelu(self.widen(self.norm_out(x))))
        return self.head(x.mean(1))


def _decoder() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 32),
        nn.Unflatten(1, (8, 4)),
        nn.GroupNorm(2, 8),
        nn.GELU(approximate="tanh"),
        # Nor has a bias before an InstanceNorm.
        nn.ConvTranspose1d(8, 6, 4, stride=2, padding=1, bias=False),
        nn.InstanceNorm1d(6, affine=True),
        nn.Mish(),
        nn.Conv1d(6, 2, 3, padding=1, padding_mode="reflect"),
        nn.Flatten(),
    )


NETS: dict[str, Net] = {
    "mlp": Net(make=_mlp, input_shape=(12,), classes=5),
    "binary": Net(make=_binary, input_shape=(12,), classes=1, loss="binary_cross_entropy"),
    "huber": Net(make=_huber, input_shape=(12,), classes=3, loss="huber"),
    "cnn1d": Net(make=_cnn_1d, input_shape=(6, 32), classes=5),
    "cnn2d": Net(make=_cnn_2d, input_shape=(3, 12, 12), classes=5),
    "mobilenet": Net(make=_mobilenet, input_shape=(3, 12, 12), classes=5),
    "gru": Net(make=_Gru, input_shape=(16, 6), classes=5),
    "lstm": Net(make=_Lstm, input_shape=(16, 6), classes=5),
    "attention": Net(make=_Attention, input_shape=(10,), classes=5, tokens=True),
    "decoder": Net(make=_decoder, input_shape=(12,), classes=16, loss="mse"),
}


def seeded(name: str) -> nn.Module:
    """Return the net in evaluation mode; every tensor has values of its own.

    Fresh normalisation layers hold ones and zeros, of which exporters share one copy.
    """
    torch.manual_seed(sorted(NETS).index(name))
    net = NETS[name].make().eval()
    with torch.no_grad():
        for tensor in net.parameters():
            tensor.add_(0.05 * torch.randn_like(tensor))
        for key, buffer in net.named_buffers():
            if key.endswith("running_mean"):
                buffer.normal_(0, 0.3)
            elif key.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return net
