"""A training whose last step is not finite ends in an error, with local tensors as before."""

import numpy as np
import pytest

from edgefl.errors import TrainingError
from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import Runtime
from edgefl.training.litert.runtime.trainer import LitertTrainer
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.small_models import two_layers

OPTIONS = CompileOptions(runtimes=(Runtime.ONNX, Runtime.LITERT), local="second.*")


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(compile_with(two_layers(4, 5, 3), OPTIONS).bundle_bytes)


@pytest.fixture(params=[OnnxTrainer, LitertTrainer])
def trainer(request, bundle):
    return request.param(bundle)


def fit(trainer, x, lr):
    rng = np.random.default_rng(0)
    labels = np.array([0, 1, 2, 0])
    # One step: its loss is that before it, and finite.
    return trainer.fit(x, labels, epochs=1, batch_size=4, lr=lr, rng=rng)


def test_the_last_step_counts_too(trainer):
    x = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    before = trainer.local()
    with pytest.raises(TrainingError, match=r"E-TRAIN-DIVERGED.*no longer finite"):
        fit(trainer, x * 1e10, lr=1e38)
    np.testing.assert_array_equal(trainer.local(), before)
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        trainer.delta()


def test_local_tensors_alone_count_too(trainer):
    # All units of the first layer are off, so that only the local bias has a gradient.
    params = np.zeros(trainer.dimension, np.float32)
    params[-5:] = -1.0
    trainer.set_params(params)
    huge = np.full(trainer.manifest.local_dimension, 3e38, np.float32)
    huge[: 3 * 5] = 0.0
    huge[-3:] = [3.3e38, -3.3e38, 0.0]
    trainer.set_local(huge)
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        fit(trainer, np.zeros((4, 4), np.float32), lr=3e38)
    np.testing.assert_array_equal(trainer.local(), huge)


def test_a_gentle_step_goes_on(trainer):
    x = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    assert np.isfinite(fit(trainer, x, lr=0.1))
    assert np.abs(trainer.delta()).max() > 0
