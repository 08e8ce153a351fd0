"""Optimisers against float64 numpy over 50 steps, and what keeps a step cheap."""

import math

import numpy as np
import onnx
import pytest

from edgefl.errors import ConfigError
from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import Loss, Optimizer
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.small_models import initializer, linear_model, small_model

STEPS = 50
ROWS = 8
SETTINGS = {
    "sgd": OptimizerSettings(kind=Optimizer.SGD),
    "momentum": OptimizerSettings(kind=Optimizer.MOMENTUM, momentum=0.8),
    "adamw": OptimizerSettings(kind=Optimizer.ADAMW),
    "adamw without decay": OptimizerSettings(
        kind=Optimizer.ADAMW, beta1=0.8, beta2=0.95, epsilon=1e-6, weight_decay=0.0
    ),
}
RATES = {Optimizer.SGD: 0.1, Optimizer.MOMENTUM: 0.05, Optimizer.ADAMW: 0.02}


class Reference:
    """y = x w + b with the mean squared error, trained in float64 as the definitions say."""

    def __init__(self, flat, settings, received=None):
        self.flat = flat.astype(np.float64)
        self.received = self.flat.copy() if received is None else received.astype(np.float64)
        self.settings = settings
        self.first = np.zeros_like(self.flat)
        self.second = np.zeros_like(self.flat)
        self.steps = 0

    def gradient(self, x, y):
        w, b = self.flat[:12].reshape(4, 3), self.flat[12:]
        error = 2.0 * (x @ w + b - y) / y.size
        return np.concatenate([(x.T @ error).reshape(-1), error.sum(axis=0)])

    def step(self, x, y, lr, prox_mu=0.0, max_gradient_norm=math.inf):
        gradient = self.gradient(x, y) + prox_mu * (self.flat - self.received)
        norm = np.linalg.norm(gradient)
        gradient = gradient * min(1.0, max_gradient_norm / norm)
        settings = self.settings
        self.steps += 1
        if settings.kind is Optimizer.SGD:
            self.flat = self.flat - lr * gradient
        elif settings.kind is Optimizer.MOMENTUM:
            self.first = settings.momentum * self.first + gradient
            self.flat = self.flat - lr * self.first
        else:
            self.first = settings.beta1 * self.first + (1 - settings.beta1) * gradient
            self.second = settings.beta2 * self.second + (1 - settings.beta2) * gradient**2
            mean = self.first / (1 - settings.beta1**self.steps)
            variance = self.second / (1 - settings.beta2**self.steps)
            self.flat = self.flat * (1 - lr * settings.weight_decay)
            self.flat = self.flat - lr * mean / (np.sqrt(variance) + settings.epsilon)


def bundle_of(settings, **options):
    prepared = compile_with(
        linear_model(), CompileOptions(loss=Loss.MSE, optimizer=settings, **options)
    )
    return read_bundle(prepared.bundle_bytes)


def data():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(STEPS * ROWS, 4)).astype(np.float32)
    y = (x @ rng.normal(size=(4, 3)) + 0.1 * rng.normal(size=(len(x), 3))).astype(np.float32)
    return x, y


def follow(name, **rates):
    """Train both for 50 steps; return the largest difference and the largest move."""
    settings = SETTINGS[name]
    bundle = bundle_of(settings)
    x, y = data()
    lr = RATES[settings.kind]
    trainer, reference = OnnxTrainer(bundle), Reference(bundle.initial_params, settings)
    trainer.fit(x, y, epochs=1, batch_size=ROWS, lr=lr, rng=np.random.default_rng(2), **rates)
    order = np.random.default_rng(2).permutation(len(x))
    for rows in order.reshape(STEPS, ROWS):
        reference.step(x[rows].astype(np.float64), y[rows].astype(np.float64), lr, **rates)
    moved = np.abs(reference.flat - bundle.initial_params).max()
    return np.abs(trainer.params() - reference.flat).max(), moved


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    "rates",
    [
        {},
        {"prox_mu": 0.5},
        {"max_gradient_norm": 0.3},
        {"prox_mu": 0.5, "max_gradient_norm": 0.3},
    ],
    ids=lambda rates: "+".join(rates) or "plain",
)
def test_fifty_steps_follow_the_definition(name, rates):
    off, moved = follow(name, **rates)
    assert moved > 0.1
    assert off < 2e-5 * max(moved, 1.0)


def test_a_bound_that_is_never_reached_changes_nothing_but_rounding():
    plain, bounded = (trained_with(max_gradient_norm=bound) for bound in (None, 1e6))
    assert np.abs(plain - bounded).max() < 1e-6
    assert np.abs(plain - trained_with(max_gradient_norm=0.01)).max() > 1e-3


def trained_with(**rates):
    x, y = data()
    trainer = OnnxTrainer(bundle_of(SETTINGS["sgd"]))
    rng = np.random.default_rng(0)
    trainer.fit(x, y, epochs=1, batch_size=ROWS, lr=0.1, rng=rng, **rates)
    return trainer.params()


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("rates", [{}, {"prox_mu": 1.0}, {"max_gradient_norm": 1.0}])
def test_a_learning_rate_of_zero_moves_nothing(name, rates):
    x, y = data()
    trainer = OnnxTrainer(bundle_of(SETTINGS[name]))
    rng = np.random.default_rng(0)
    trainer.fit(x, y, epochs=1, batch_size=ROWS, lr=0.0, rng=rng, **rates)
    assert not trainer.delta().any()


@pytest.mark.parametrize("name", ["sgd", "momentum", "adamw without decay"])
@pytest.mark.parametrize("bound", [None, 1.0])
def test_a_batch_without_weight_moves_nothing(name, bound):
    x, y = data()
    trainer = OnnxTrainer(bundle_of(SETTINGS[name]))
    loss = trainer.fit(
        x,
        y,
        epochs=1,
        batch_size=ROWS,
        lr=0.1,
        rng=np.random.default_rng(0),
        sample_weight=np.zeros(len(x), np.float32),
        max_gradient_norm=bound,
    )
    assert loss == 0.0
    assert not trainer.delta().any()


def test_received_parameters_reset_the_states():
    bundle = bundle_of(SETTINGS["adamw"])
    x, y = data()
    fresh, used = OnnxTrainer(bundle), OnnxTrainer(bundle)
    used.fit(x, -y, epochs=3, batch_size=ROWS, lr=0.1, rng=np.random.default_rng(9))
    used.set_params(bundle.initial_params)
    for trainer in (fresh, used):
        trainer.fit(x, y, epochs=1, batch_size=ROWS, lr=0.02, rng=np.random.default_rng(2))
    assert np.array_equal(fresh.params(), used.params())


def test_states_are_kept_between_calls_within_a_round():
    bundle = bundle_of(SETTINGS["momentum"])
    x, y = data()
    once, twice = OnnxTrainer(bundle), OnnxTrainer(bundle)
    once.fit(x, y, epochs=2, batch_size=ROWS, lr=0.02, rng=np.random.default_rng(2))
    rng = np.random.default_rng(2)
    for _ in range(2):
        twice.fit(x, y, epochs=1, batch_size=ROWS, lr=0.02, rng=rng)
    assert np.array_equal(once.params(), twice.params())


def test_fedprox_leaves_local_tensors_free():
    bundle = bundle_of(SETTINGS["sgd"], local="b")
    x, y = data()
    trainer = OnnxTrainer(bundle)
    trainer.fit(
        x, y, epochs=20, batch_size=ROWS, lr=0.01, rng=np.random.default_rng(0), prox_mu=90.0
    )
    # Held this tightly, w stays where it was, and b alone takes up what it can of the error.
    assert np.abs(trainer.delta()).max() < 0.05
    w = bundle.initial_params.reshape(4, 3).astype(np.float64)
    best = (y - x @ w).mean(axis=0)
    assert np.abs(trainer.local() - best).max() < 0.3
    assert np.abs(bundle.initial_local - best).max() > 0.5


@pytest.mark.parametrize("name", SETTINGS)
def test_a_trained_scalar_keeps_its_shape(name):
    model = small_model(
        [("Gemm", ["x", "w", "b"], "h", {}), ("Mul", ["h", "gain"], "y", {})],
        [initializer("w", 4, 3), initializer("b", 3), initializer("gain", value=1.5)],
    )
    options = CompileOptions(loss=Loss.MSE, optimizer=SETTINGS[name], trainable=["w", "b", "gain"])
    trainer = OnnxTrainer(compile_with(model, options).bundle_bytes)
    x, y = data()
    for rates in ({}, {"prox_mu": 0.1, "max_gradient_norm": 1.0}):
        trainer.fit(x, y, epochs=1, batch_size=ROWS, lr=0.01, rng=np.random.default_rng(0), **rates)
    assert trainer.manifest.parameters[-1].shape == ()
    assert trainer.delta()[-1] != 0.0


def test_what_is_seldom_used_stands_in_a_branch_of_its_own():
    graph = onnx.load_from_string(bundle_of(SETTINGS["sgd"]).content("train.onnx")).graph
    outside = [node.op_type for node in graph.node]
    assert outside.count("If") == 1
    assert "ReduceSumSquare" not in outside
    branches = {
        a.name: [n.op_type for n in a.g.node]
        for n in graph.node
        for a in n.attribute
        if n.op_type == "If"
    }
    assert branches["then_branch"] == ["Sub", "Sub"]
    assert "ReduceSumSquare" in branches["else_branch"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"beta1": 1.0},
        {"beta2": math.nan},
        {"epsilon": 0.0},
        {"weight_decay": -1.0},
        {"weight_decay": math.inf},
    ],
)
def test_constants_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match="E-MODEL-OPTIMIZER-SETTING"):
        OptimizerSettings(**wrong)


def test_the_manifest_holds_the_constants_in_use():
    assert bundle_of(SETTINGS["sgd"]).manifest.optimizer_settings == {}
    assert bundle_of(SETTINGS["momentum"]).manifest.optimizer_settings == {"momentum": 0.8}
    assert bundle_of(SETTINGS["adamw"]).manifest.optimizer_settings["weight_decay"] == 0.01
