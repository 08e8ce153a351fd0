"""The demo model's training against an independent numpy implementation, over 50 steps."""

import numpy as np
import pytest

from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.unit.training.numpy_cnn import NumpyCnn

STEPS = 50
BATCH = 16
LR = 0.1


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
