"""Speed of local training, beside the same network in plain numpy.

python -m pytest tests/benchmarks/test_training.py --benchmark-enable --benchmark-only
"""

import numpy as np
import pytest

from edgefl.data import Arm, device_shard
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.unit.training.numpy_cnn import NumpyCnn

BATCH = 16
LR = 0.05


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(compile_bundle(demo_model(1)).bundle_bytes)


@pytest.fixture(scope="module")
def shard():
    return device_shard(1, Arm.LEFT)


@pytest.mark.benchmark(group="one epoch of one device's data")
def test_epoch_with_onnxruntime(benchmark, bundle, shard):
    trainer = OnnxTrainer(bundle)
    rng = np.random.default_rng(0)

    def epoch():
        trainer.set_params(bundle.initial_params)
        return trainer.fit(shard.x, shard.y, epochs=1, batch_size=BATCH, lr=LR, rng=rng)

    assert np.isfinite(benchmark(epoch))


@pytest.mark.benchmark(group="one epoch of one device's data")
def test_epoch_with_numpy(benchmark, bundle, shard):
    rng = np.random.default_rng(0)

    def epoch():
        network = NumpyCnn(bundle.initial_params)
        order = rng.permutation(shard.examples)
        starts = range(0, shard.examples, BATCH)
        rows = [order[start : start + BATCH] for start in starts]
        return np.mean([network.step(shard.x[chosen], shard.y[chosen], LR) for chosen in rows])

    assert np.isfinite(benchmark(epoch))


@pytest.mark.benchmark(group="preparation")
def test_preparing_the_demo_bundle(benchmark):
    model = demo_model(1)
    assert benchmark(compile_bundle, model).manifest.dimension == 1911


@pytest.mark.benchmark(group="preparation")
def test_opening_the_training_session(benchmark, bundle):
    assert benchmark(OnnxTrainer, bundle).dimension == 1911
