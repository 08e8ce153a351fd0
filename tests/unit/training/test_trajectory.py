"""The demo model's training against an independent numpy implementation, over 50 steps."""

import numpy as np
import pytest

from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer

STEPS = 50
BATCH = 16
LR = 0.1


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
        hidden1 = np.maximum(rows1 @ w1.transpose(2, 1, 0).reshape(-1, 16) + b1, 0)
        rows2 = windows_of(hidden1)
        hidden2 = np.maximum(rows2 @ w2.transpose(2, 1, 0).reshape(-1, 16) + b2, 0)
        features = hidden2.mean(axis=1)
        return rows1, hidden1, rows2, hidden2, features, features @ w3.T + b3

    def step(self, x, y, lr):
        rows1, hidden1, rows2, hidden2, features, logits = self.forward(x)
        _, _, w2, _, w3, _ = self.tensors
        shifted = logits - logits.max(axis=1, keepdims=True)
        probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
        loss = -np.log(probabilities[np.arange(len(y)), y]).mean()
        d_logits = (probabilities - np.eye(7)[y]) / len(y)
        d_hidden2 = (d_logits @ w3)[:, None, :] / hidden2.shape[1] * (hidden2 > 0)
        d_w2 = np.einsum("nor,nof->rf", rows2, d_hidden2).reshape(5, 16, 16).transpose(2, 1, 0)
        d_rows2 = d_hidden2 @ w2.transpose(0, 2, 1).reshape(16, -1)
        d_windows = d_rows2.reshape(*rows2.shape[:2], 5, 16)
        d_hidden1 = np.zeros_like(hidden1)
        for index in range(rows2.shape[1]):
            d_hidden1[:, 2 * index : 2 * index + 5] += d_windows[:, index]
        d_hidden1 *= hidden1 > 0
        d_w1 = np.einsum("nor,nof->rf", rows1, d_hidden1).reshape(5, 6, 16).transpose(2, 1, 0)
        gradients = [
            d_w1,
            d_hidden1.sum(axis=(0, 1)),
            d_w2,
            d_hidden2.sum(axis=(0, 1)),
            d_logits.T @ features,
            d_logits.sum(axis=0),
        ]
        for tensor, gradient in zip(self.tensors, gradients, strict=True):
            tensor -= lr * gradient
        return loss


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(compile_bundle(demo_model(7)).bundle_bytes)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    y = rng.integers(0, 7, STEPS * BATCH)
    means = rng.normal(size=(7, 1, 6))
    x = means[y] + rng.normal(size=(len(y), 64, 6))
    return x.astype(np.float32), y


def test_fifty_steps_follow_the_numpy_reference(bundle, data):
    x, y = data
    trainer, reference = OnnxTrainer(bundle), NumpyCnn(bundle.initial_params)
    order = np.random.default_rng(3).permutation(len(x))
    losses = [
        reference.step(x[rows].astype(np.float64), y[rows], LR)
        for rows in order.reshape(STEPS, BATCH)
    ]
    trained = trainer.fit(x, y, epochs=1, batch_size=BATCH, lr=LR, rng=np.random.default_rng(3))
    assert losses[-1] < losses[0] / 2, "the case must be one in which training does something"
    assert trained == pytest.approx(np.mean(losses), rel=1e-5)
    moved = np.abs(reference.flat() - bundle.initial_params).max()
    assert moved > 0.1
    assert np.abs(trainer.params() - reference.flat()).max() < 1e-4 * moved


def test_logits_agree_with_the_numpy_reference(bundle, data):
    x, _ = data
    expected = NumpyCnn(bundle.initial_params).logits(x.astype(np.float64))
    assert np.abs(OnnxTrainer(bundle).predict(x) - expected).max() < 1e-5


def test_optimised_and_plain_graphs_train_alike(bundle, data):
    x, y = data
    runs = []
    for optimize in (True, False):
        trainer = OnnxTrainer(bundle, optimize=optimize)
        trainer.fit(x, y, epochs=1, batch_size=BATCH, lr=LR, rng=np.random.default_rng(3))
        runs.append(trainer.delta())
    assert np.linalg.norm(runs[0]) > 0.1
    assert np.abs(runs[0] - runs[1]).max() < 1e-5


def test_padding_of_a_short_last_batch_counts_for_nothing(bundle, data):
    x, y = data[0][:21], data[1][:21]
    trainer, reference = OnnxTrainer(bundle), NumpyCnn(bundle.initial_params)
    order = np.random.default_rng(3).permutation(21)
    losses = [
        reference.step(x[rows].astype(np.float64), y[rows], LR) * len(rows)
        for rows in (order[:16], order[16:])
    ]
    trained = trainer.fit(x, y, epochs=1, batch_size=BATCH, lr=LR, rng=np.random.default_rng(3))
    assert trained == pytest.approx(sum(losses) / 21, rel=1e-5)
    assert np.abs(trainer.params() - reference.flat()).max() < 1e-5


def test_the_same_rng_gives_the_same_update(bundle, data):
    x, y = data
    deltas = []
    for seed in (1, 1, 2):
        trainer = OnnxTrainer(bundle)
        trainer.fit(x, y, epochs=2, batch_size=10, lr=LR, rng=np.random.default_rng(seed))
        deltas.append(trainer.delta())
    assert np.array_equal(deltas[0], deltas[1])
    assert not np.array_equal(deltas[0], deltas[2])
