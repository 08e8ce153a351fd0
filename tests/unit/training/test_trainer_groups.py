"""The trainer with local tensors, values as targets, weights of rows, and losses out of bounds."""

import numpy as np
import pytest

from edgefl.errors import DataError, TrainingError
from edgefl.training.base import TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import Loss, Optimizer
from edgefl.training.local_update import local_update
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.small_models import conv_net, linear_model, two_layers


def bundle_of(model, **options):
    return read_bundle(compile_with(model, CompileOptions(**options)).bundle_bytes)


def examples(bundle, rows=24, seed=0):
    rng = np.random.default_rng(seed)
    manifest = bundle.manifest
    x = rng.normal(size=(rows, *manifest.input.shape)).astype(np.float32)
    if manifest.loss.takes_labels:
        return x, rng.integers(0, manifest.classes, rows)
    return x, rng.random((rows, *manifest.output.shape)).astype(np.float32)


def fit(trainer, x, y, **changes):
    settings = {"epochs": 2, "batch_size": 8, "lr": 0.1, "rng": np.random.default_rng(0)}
    return trainer.fit(x, y, **(settings | changes))


@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_local_tensors_train_with_the_others_and_stay_apart(optimizer):
    settings = OptimizerSettings(kind=optimizer)
    together = bundle_of(conv_net(), optimizer=settings)
    apart = bundle_of(conv_net(), optimizer=settings, local="head")
    x, y = examples(together)
    whole, split = OnnxTrainer(together), OnnxTrainer(apart)
    for trainer in (whole, split):
        fit(trainer, x, y, lr=0.01)
    assert np.array_equal(np.concatenate([split.params(), split.local()]), whole.params())
    assert split.delta().size == apart.manifest.dimension
    assert not np.array_equal(split.local(), apart.initial_local)
    assert np.array_equal(split.predict(x), whole.predict(x))


def test_local_tensors_outlive_a_round():
    bundle = bundle_of(conv_net(), local="head")
    trainer = OnnxTrainer(bundle)
    x, y = examples(bundle)
    fit(trainer, x, y)
    personal = trainer.local()
    trainer.set_params(bundle.initial_params)
    assert np.array_equal(trainer.local(), personal)
    fit(trainer, x, y)
    assert not np.array_equal(trainer.local(), personal)
    elsewhere = OnnxTrainer(bundle)
    elsewhere.set_local(personal)
    fit(elsewhere, x, y)
    assert np.array_equal(elsewhere.local(), trainer.local())


def test_local_values_that_do_not_fit_are_refused():
    trainer = OnnxTrainer(bundle_of(conv_net(), local="head"))
    with pytest.raises(TrainingError, match=r"E-PARAMS-SHAPE.*\[20\]"):
        trainer.set_local(np.zeros(19, np.float32))
    with pytest.raises(TrainingError, match="E-PARAMS-NOT-FINITE"):
        trainer.set_local(np.full(20, np.nan, np.float32))
    assert np.isfinite(trainer.local()).all()


def test_divergence_leaves_local_tensors_as_they_were():
    bundle = bundle_of(conv_net(), local="head")
    trainer = OnnxTrainer(bundle)
    x, y = examples(bundle)
    fit(trainer, x, y)
    personal = trainer.local()
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        fit(trainer, x, y, lr=1e30, epochs=20)
    assert np.array_equal(trainer.local(), personal)
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        trainer.delta()
    trainer.set_params(bundle.initial_params)
    assert not trainer.delta().any()


def test_an_infinite_loss_gives_no_update_though_parameters_are_finite():
    bundle = bundle_of(linear_model(), loss=Loss.MSE)
    trainer = OnnxTrainer(bundle)
    x, y = examples(bundle)
    y[0] = 1e30
    with pytest.raises(TrainingError, match=r"E-TRAIN-DIVERGED.*loss inf"):
        fit(trainer, x, y, lr=1e-20)
    assert np.isfinite(trainer.params()).all()
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        trainer.delta()


@pytest.mark.parametrize("loss", [Loss.BINARY_CROSS_ENTROPY, Loss.MSE, Loss.HUBER])
def test_values_as_targets_are_learned(loss):
    bundle = bundle_of(two_layers(), loss=loss)
    trainer = OnnxTrainer(bundle)
    x, _ = examples(bundle, 64)
    y = (x[:, :3] > 0).astype(np.float32)
    before = trainer.evaluate(x, y)
    fit(trainer, x, y, epochs=60)
    after = trainer.evaluate(x, y)
    assert after.loss < 0.6 * before.loss
    assert (after.accuracy is None) == (loss is not Loss.BINARY_CROSS_ENTROPY)
    with pytest.raises(DataError, match="E-DATA-TARGET"):
        fit(trainer, x, np.zeros(64, np.int64))


def test_rows_of_weight_zero_are_as_good_as_absent():
    bundle = bundle_of(two_layers())
    x, y = examples(bundle, 16)
    weights = np.ones(16, np.float32)
    weights[[3, 9, 11]] = 0
    kept = np.flatnonzero(weights)
    weighted, short = OnnxTrainer(bundle), OnnxTrainer(bundle)
    weighted_loss = fit(weighted, x, y, epochs=5, batch_size=16, sample_weight=weights)
    short_loss = fit(short, x[kept], y[kept], epochs=5, batch_size=13)
    assert weighted_loss == pytest.approx(short_loss, rel=1e-5)
    assert np.abs(weighted.delta() - short.delta()).max() < 1e-6


def test_a_row_of_weight_two_counts_twice():
    bundle = bundle_of(two_layers())
    x, y = examples(bundle, 6)
    weights = np.array([1, 2, 1, 1, 1, 1], np.float32)
    twice = np.array([0, 1, 1, 2, 3, 4, 5])
    weighted, repeated = OnnxTrainer(bundle), OnnxTrainer(bundle)
    fit(weighted, x, y, batch_size=6, sample_weight=weights)
    fit(repeated, x[twice], y[twice], batch_size=7)
    assert np.abs(weighted.delta() - repeated.delta()).max() < 1e-6


@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_examples_are_clipped_one_by_one(optimizer):
    """Checked against steps of one example each, whose whole gradient is bounded."""
    lr = 0.1 if optimizer is Optimizer.SGD else 0.01
    settings = OptimizerSettings(kind=optimizer, weight_decay=0.0)
    clipping = bundle_of(two_layers(), optimizer=settings, clips_examples=True)
    plain = bundle_of(two_layers())
    x, y = examples(clipping, 6)
    bound = 0.4
    gradients = []
    for row in range(6):
        single = OnnxTrainer(plain)
        fit(single, x[row : row + 1], y[row : row + 1], epochs=1, lr=1.0, batch_size=1)
        gradient = -single.delta().astype(np.float64)
        gradients.append(gradient * min(1.0, bound / np.linalg.norm(gradient)))
    mean = np.mean(gradients, axis=0)
    trainer = OnnxTrainer(clipping)
    fit(trainer, x, y, epochs=1, lr=lr, batch_size=6, example_clip=bound)
    if optimizer is Optimizer.ADAMW:
        expected = -lr * mean / (np.abs(mean) + settings.epsilon)
        moved = np.abs(mean) > 1e-4
        assert np.allclose(trainer.delta()[moved], expected[moved], atol=1e-5)
    else:
        assert np.allclose(trainer.delta(), -lr * mean, atol=1e-6)


def test_clipping_is_asked_for_exactly_where_the_bundle_has_it():
    x, y = examples(bundle_of(two_layers()))
    for clips, example_clip in ((True, None), (False, 1.0)):
        trainer = OnnxTrainer(bundle_of(two_layers(), clips_examples=clips))
        with pytest.raises(TrainingError, match="E-TRAIN-SETTING"):
            fit(trainer, x, y, example_clip=example_clip)


def test_a_round_passes_its_settings_on():
    bundle = bundle_of(two_layers())
    x, y = examples(bundle)
    data = TrainingData(x=x, y=y)
    parameters = bundle.initial_params.astype("<f4").tobytes()
    settings = {"epochs": 4, "batch_size": 8, "learning_rate": 0.2}

    def norm(**more):
        trainer = OnnxTrainer(bundle)
        rng = np.random.default_rng(0)
        update = local_update(trainer, parameters, data, rng=rng, **settings, **more)
        return float(np.linalg.norm(update))

    free = norm()
    assert norm(prox_mu=5.0) < 0.5 * free
    # Twelve steps of at most lr times the bound each.
    assert norm(max_gradient_norm=0.01) <= 12 * 0.2 * 0.01 * 1.001
    assert norm(prox_mu=0.0, max_gradient_norm=0.0) == free
