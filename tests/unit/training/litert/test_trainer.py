"""Training with TFLite files: the same steps as onnxruntime's and as plain numpy's."""

import numpy as np
import pytest

from edgefl.errors import DataError, TrainingError
from edgefl.training.base import Trainer
from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import Loss, Optimizer, Runtime
from edgefl.training.litert.compile.bundle import with_litert
from edgefl.training.litert.format.decode import read_model
from edgefl.training.litert.format.kinds import Builtin
from edgefl.training.litert.runtime.trainer import LitertTrainer
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.unit.training.litert.nets import Net, image_net, labelled, mlp, sound_net, word_net
from tests.unit.training.numpy_cnn import NumpyCnn

BATCH = 16
NETS = {
    "mlp": (mlp, 3, 0.2),
    "squashed mlp": (lambda: mlp(activation="Tanh"), 3, 0.2),
    "image": (image_net, 4, 0.4),
    "sound": (sound_net, 3, 0.4),
    "words": (word_net, 3, 0.1),
}


def prepare(model, *, batch_rows=BATCH, **options):
    prepared = compile_with(model, CompileOptions(**options))
    return read_bundle(with_litert(prepared.bundle_bytes, batch_rows=batch_rows))


def fit(trainer, x, y, **changes):
    settings = {"epochs": 1, "batch_size": BATCH, "lr": 0.1, "rng": np.random.default_rng(0)}
    return trainer.fit(x, y, **settings | changes)


@pytest.fixture(scope="module")
def bundle():
    return prepare(demo_model(7))


def windows(n, seed=11):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 7, n)
    x = rng.normal(size=(7, 1, 6))[y] + rng.normal(size=(n, 64, 6))
    return x.astype(np.float32), y


def test_it_is_a_trainer(bundle):
    checked: Trainer = LitertTrainer(bundle)
    assert checked.dimension == 1911
    assert checked.manifest.program(Runtime.LITERT).facts["batch_rows"] == BATCH


@pytest.mark.parametrize(("steps", "tolerance"), [(1, 1e-6), (300, 1e-5)])
def test_steps_follow_the_float64_reference(bundle, steps, tolerance):
    x, y = windows(steps * BATCH)
    trainer, reference = LitertTrainer(bundle), NumpyCnn(bundle.initial_params)
    order = np.random.default_rng(3).permutation(len(x)).reshape(steps, BATCH)
    losses = [reference.step(x[rows].astype(np.float64), y[rows], 0.02) for rows in order]
    loss = fit(trainer, x, y, lr=0.02, rng=np.random.default_rng(3))
    moved = np.abs(reference.flat() - bundle.initial_params).max()
    assert moved > 1e-3
    assert np.abs(trainer.params() - reference.flat()).max() <= tolerance
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    if steps > 1:
        assert losses[-1] < losses[0] / 2, "the case must be one in which training does something"


def test_padded_rows_change_nothing_at_all(bundle):
    x, y = windows(BATCH)
    results = []
    for extra in (0, 5):
        trainer = LitertTrainer(bundle)
        weights = np.ones(BATCH, np.float32)
        weights[BATCH - 5 :] = 0.0
        noisy = x.copy()
        noisy[BATCH - 5 :] *= 1.0 + extra
        # Every row in the same place of the batch: an order of sums is an order of roundings.
        order = _InOrder()
        fit(trainer, noisy, y, sample_weight=weights, rng=order)
        results.append(trainer.params())
    short = LitertTrainer(bundle)
    fit(short, x[: BATCH - 5], y[: BATCH - 5], rng=_InOrder())
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], short.params())
    assert short.delta().any()


class _InOrder(np.random.Generator):
    """Does not shuffle."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def permutation(self, n):
        return np.arange(n)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("optimizer", list(Optimizer))
def test_both_runtimes_take_the_same_steps(net, optimizer):
    make, classes, lr = NETS[net]
    model = make()
    x, y = labelled(model, 40, classes)
    bundle = prepare(model, optimizer=OptimizerSettings(kind=optimizer))
    lr = 0.01 if optimizer is Optimizer.ADAMW else lr
    for extras in ({}, {"prox_mu": 0.3, "max_gradient_norm": 0.2}):
        trainers = OnnxTrainer(bundle), LitertTrainer(bundle)
        losses = [fit(trainer, x, y, epochs=2, lr=lr, **extras) for trainer in trainers]
        deltas = [trainer.delta() for trainer in trainers]
        largest = np.abs(deltas[0]).max()
        assert largest > 1e-3
        # AdamW divides by the root of squares: where a gradient is nearly 0 its rounding shows.
        tolerance = 2e-3 if optimizer is Optimizer.ADAMW else 1e-4
        assert np.abs(deltas[0] - deltas[1]).max() < tolerance * largest
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        outputs = [trainer.predict(x) for trainer in trainers]
        assert np.abs(outputs[0] - outputs[1]).max() < 1e-2 * np.abs(outputs[0]).max()


@pytest.mark.parametrize("net", NETS)
def test_the_loss_falls(net):
    make, classes, lr = NETS[net]
    model = make()
    x, y = labelled(model, 48, classes)
    trainer = LitertTrainer(prepare(model))
    first = fit(trainer, x, y, lr=lr)
    last = fit(trainer, x, y, epochs=24, lr=lr)
    assert last < 0.8 * first


@pytest.mark.parametrize("loss", [Loss.MSE, Loss.HUBER, Loss.BINARY_CROSS_ENTROPY])
def test_losses_of_values_agree(loss):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(30, 12)).astype(np.float32)
    y = rng.random((30, 3)).astype(np.float32)
    bundle = prepare(mlp(), loss=loss)
    trainers = OnnxTrainer(bundle), LitertTrainer(bundle)
    losses = [fit(trainer, x, y, epochs=3) for trainer in trainers]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert np.abs(trainers[0].delta()).max() > 1e-2
    assert np.abs(trainers[0].delta() - trainers[1].delta()).max() < 1e-6
    assert trainers[1].evaluate(x, y).loss == pytest.approx(trainers[0].evaluate(x, y).loss)


def test_a_trainable_mlp_is_small():
    bundle = prepare(mlp(inputs=384, hidden=32, classes=6))
    assert len(bundle.content("model.tflite")) <= 10_000


def test_frozen_front_part_runs_once_for_each_row():
    bundle = prepare(demo_model(7), trainable="head")
    assert bundle.manifest.features
    x, y = windows(40)
    trainers = (
        OnnxTrainer(bundle),
        LitertTrainer(bundle),
        LitertTrainer(bundle, feature_cache_bytes=0),
    )
    for trainer in trainers:
        fit(trainer, x, y, epochs=4)
    assert trainers[1].feature_rows_computed == 40
    assert trainers[2].feature_rows_computed == 160
    assert np.array_equal(trainers[1].delta(), trainers[2].delta())
    assert np.abs(trainers[0].delta() - trainers[1].delta()).max() < 1e-6
    assert trainers[1].delta().any()


def test_local_tensors_stay_apart():
    bundle = prepare(demo_model(7), local="head")
    x, y = windows(40)
    trainers = OnnxTrainer(bundle), LitertTrainer(bundle)
    for trainer in trainers:
        trainer.set_local(bundle.initial_local + np.float32(0.1))
        fit(trainer, x, y)
    assert trainers[1].local().shape == bundle.initial_local.shape
    assert np.abs(trainers[0].local() - trainers[1].local()).max() < 1e-6
    assert np.abs(trainers[1].local() - bundle.initial_local - 0.1).max() > 1e-3


def test_rounds_do_not_leak_into_each_other():
    bundle = prepare(demo_model(7), optimizer=OptimizerSettings(kind=Optimizer.MOMENTUM))
    x, y = windows(32)
    trainer = LitertTrainer(bundle)
    fit(trainer, x, y)
    first = trainer.delta()
    trainer.set_params(bundle.initial_params)
    assert not trainer.delta().any()
    fit(trainer, x, y)
    assert np.array_equal(trainer.delta(), first)


def test_results_are_copies(bundle):
    trainer = LitertTrainer(bundle)
    x, y = windows(BATCH)
    before, logits = trainer.params(), trainer.predict(x)
    kept_before, kept_logits = before.copy(), logits.copy()
    fit(trainer, x, y)
    trainer.predict(x + 1)
    assert np.array_equal(before, kept_before)
    assert np.array_equal(logits, kept_logits)


def test_any_number_of_rows_is_predicted(bundle):
    trainer = LitertTrainer(bundle)
    x, _ = windows(37)
    whole = trainer.predict(x)
    assert whole.shape == (37, 7)
    assert (
        np.abs(whole - np.concatenate([trainer.predict(x[:1]), trainer.predict(x[1:])])).max()
        < 1e-6
    )
    assert np.abs(whole - OnnxTrainer(bundle).predict(x)).max() < 1e-5


def test_more_rows_than_the_file_has_are_refused(bundle):
    x, y = windows(40)
    with pytest.raises(TrainingError, match=r"E-LITERT-BATCH.*16 rows.*32"):
        fit(LitertTrainer(bundle), x, y, batch_size=32)


def test_a_batch_larger_than_the_data_is_as_large_as_the_data(bundle):
    x, y = windows(9)
    trainer = LitertTrainer(bundle)
    fit(trainer, x, y, batch_size=64)
    assert trainer.delta().any()


def test_divergence_gives_no_update(bundle):
    x, y = windows(64)
    trainer = LitertTrainer(bundle)
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        fit(trainer, x, y, lr=1e30, epochs=5)
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        trainer.delta()


def test_bad_data_and_settings_are_refused(bundle):
    trainer = LitertTrainer(bundle)
    x, y = windows(20)
    with pytest.raises(DataError, match="E-DATA-SHAPE"):
        fit(trainer, x[:, :10], y)
    with pytest.raises(DataError, match="E-DATA-LABEL"):
        fit(trainer, x, y + 7)
    with pytest.raises(TrainingError, match="E-TRAIN-SETTING"):
        fit(trainer, x, y, lr=float("nan"))
    with pytest.raises(TrainingError, match="E-TRAIN-THREADS"):
        LitertTrainer(bundle, threads=0)


def test_a_bundle_without_a_tflite_program_says_so():
    with pytest.raises(TrainingError, match=r"E-BUNDLE-PART.*model\.tflite"):
        LitertTrainer(compile_with(demo_model(7), CompileOptions()).bundle_bytes)


def test_two_threads_give_the_same_to_rounding(bundle):
    x, y = windows(32)
    trainers = [LitertTrainer(bundle, threads=threads) for threads in (1, 2)]
    for trainer in trainers:
        fit(trainer, x, y)
    assert np.abs(trainers[0].delta() - trainers[1].delta()).max() < 1e-6


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("trainable", ["lora:2", "last:2", "biases"])
def test_parts_of_a_model_train_alike(net, trainable):
    make, classes, lr = NETS[net]
    model = make()
    _compare(prepare(model, trainable=trainable), labelled(model, 32, classes), lr)


@pytest.mark.parametrize("net", NETS)
def test_clipped_examples_train_alike(net):
    make, classes, lr = NETS[net]
    model = make()
    bundle = prepare(model, clips_examples=True)
    _compare(bundle, labelled(model, 32, classes), lr, example_clip=0.3)


def _compare(bundle, data, lr, **settings):
    trainers = OnnxTrainer(bundle), LitertTrainer(bundle)
    for trainer in trainers:
        fit(trainer, *data, epochs=2, lr=lr, **settings)
    deltas = [trainer.delta() for trainer in trainers]
    largest = np.abs(deltas[0]).max()
    assert largest > 1e-3
    assert np.abs(deltas[0] - deltas[1]).max() < 1e-4 * largest


def test_small_weight_gradients_are_one_convolution_each():
    codes = _codes_of_a_step(demo_model(7))
    # Two forward, one for each weight.
    assert codes.count(Builtin.CONV_2D) == 4
    assert codes.count(Builtin.BATCH_MATMUL) == 3


def test_large_weight_gradients_stay_products():
    net = Net(0)
    z = net.emit("Relu", net.emit("Conv", "x", net.weight("c", 64, 64, 3), net.weight("cb", 64)))
    z = net.emit("ReduceMean", z, axes=[2], keepdims=0)
    head = net.weight("head", 3, 64), net.weight("head.bias", 3)
    codes = _codes_of_a_step(net.model(net.emit("Gemm", z, *head, transB=1), 3, 64, 32))
    assert codes.count(Builtin.CONV_2D) == 1


def _codes_of_a_step(model):
    file = read_model(prepare(model).content("model.tflite"))
    return [operator.code for operator in file.subgraphs[0].operators]
