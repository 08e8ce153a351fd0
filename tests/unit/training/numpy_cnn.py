"""The demo's network and its gradients in plain numpy: the oracle of tests and benchmarks."""

import numpy as np

HEAD_GAIN = 4.0
HIGHEST = 6.0


def inside(hidden):
    """Where a cut rectifier lets the gradient through."""
    return (hidden > 0) & (hidden < HIGHEST)


def windows_of(signal, taps=5, stride=2):
    """[N, T, C] -> [N, outputs, taps * C]: every window of a convolution as one row."""
    starts = range(0, signal.shape[1] - taps + 1, stride)
    return np.stack([signal[:, s : s + taps].reshape(len(signal), -1) for s in starts], axis=1)


class NumpyCnn:
    """The demo's network as matrix products over windows, time-major unlike the ONNX graph."""

    def __init__(self, flat):
        shapes = [(16, 6, 5), (16,), (16, 16, 5), (16,), (7, 16), (7,)]
        parts = np.split(flat.astype(np.float64), np.cumsum([np.prod(s) for s in shapes])[:-1])
        self.tensors = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def flat(self):
        return np.concatenate([tensor.reshape(-1) for tensor in self.tensors])

    def logits(self, x):
        return self.forward(x)[-1]

    def forward(self, x):
        w1, b1, w2, b2, w3, b3 = self.tensors
        rows1 = windows_of(x)
        hidden1 = np.clip(rows1 @ w1.transpose(2, 1, 0).reshape(-1, 16) + b1, 0, HIGHEST)
        rows2 = windows_of(hidden1)
        hidden2 = np.clip(rows2 @ w2.transpose(2, 1, 0).reshape(-1, 16) + b2, 0, HIGHEST)
        features = hidden2.mean(axis=1)
        return rows1, hidden1, rows2, hidden2, features, HEAD_GAIN * features @ w3.T + b3

    def step(self, x, y, lr):
        rows1, hidden1, rows2, hidden2, features, logits = self.forward(x)
        _, _, w2, _, w3, _ = self.tensors
        shifted = logits - logits.max(axis=1, keepdims=True)
        probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
        loss = -np.log(probabilities[np.arange(len(y)), y]).mean()
        d_logits = (probabilities - np.eye(7)[y]) / len(y)
        d_hidden2 = HEAD_GAIN * (d_logits @ w3)[:, None, :] / hidden2.shape[1] * inside(hidden2)
        d_w2 = np.einsum("nor,nof->rf", rows2, d_hidden2).reshape(5, 16, 16).transpose(2, 1, 0)
        d_rows2 = d_hidden2 @ w2.transpose(0, 2, 1).reshape(16, -1)
        d_windows = d_rows2.reshape(*rows2.shape[:2], 5, 16)
        d_hidden1 = np.zeros_like(hidden1)
        for index in range(rows2.shape[1]):
            d_hidden1[:, 2 * index : 2 * index + 5] += d_windows[:, index]
        d_hidden1 *= inside(hidden1)
        d_w1 = np.einsum("nor,nof->rf", rows1, d_hidden1).reshape(5, 6, 16).transpose(2, 1, 0)
        gradients = [
            d_w1,
            d_hidden1.sum(axis=(0, 1)),
            d_w2,
            d_hidden2.sum(axis=(0, 1)),
            HEAD_GAIN * d_logits.T @ features,
            d_logits.sum(axis=0),
        ]
        for tensor, gradient in zip(self.tensors, gradients, strict=True):
            tensor -= lr * gradient
        return loss
