"""Whole nets against PyTorch's autograd and optimisers, from both of its exporters.

The vectors are made by tests/vectors/training/make_torch.py.
"""

import numpy as np
import pytest

from edgefl.training.bundle import read_bundle
from edgefl.training.evaluate import split_params
from edgefl.training.kinds import Loss, Optimizer
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.optim import OptimizerSettings
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests import torch_vectors

# So large a step that the weights before it are lost in rounding: what is left is the gradient. A
# power of two changes no digit.
HUGE_LR = 2.0**40
# Of the largest gradient; tensors with smaller ones (a shift that a later layer undoes) hold little
# but rounding.
FLOOR = 1e-3
OPTIMIZERS = {
    "sgd": OptimizerSettings(),
    "momentum": OptimizerSettings(
        kind=Optimizer.MOMENTUM, momentum=torch_vectors.PROVENANCE["momentum"]
    ),
    "adamw": OptimizerSettings(
        kind=Optimizer.ADAMW, weight_decay=torch_vectors.PROVENANCE["weight_decay"]
    ),
}


def bundle_of(name, file, optimizer="sgd"):
    options = CompileOptions(
        loss=Loss(torch_vectors.NETS[name]["loss"]), optimizer=OPTIMIZERS[optimizer]
    )
    return read_bundle(compile_with(torch_vectors.model(file), options).bundle_bytes)


def relative_errors(found, expected):
    largest = max(np.abs(value).max() for value in expected.values())
    return {
        name: np.abs(found[name] - value).max() / max(np.abs(value).max(), FLOOR * largest)
        for name, value in expected.items()
    }


def gradients(bundle, x, y, **settings):
    trainer = OnnxTrainer(bundle, **settings)
    loss = trainer.fit(x, y, epochs=1, batch_size=len(x), lr=HUGE_LR, rng=np.random.default_rng(0))
    flat = (trainer.delta() / -HUGE_LR).astype(np.float32)
    return loss, split_params(flat, bundle.manifest.parameters)


@pytest.mark.parametrize(("name", "file"), torch_vectors.all_files())
def test_gradients_agree_with_autograd(name, file):
    stored = torch_vectors.load(name)
    bundle = bundle_of(name, file)
    rows = slice(0, torch_vectors.BATCH)
    x, y = stored.x[rows], torch_vectors.targets(name, stored.y[rows])
    output = OnnxTrainer(bundle).predict(x)
    assert np.abs(output - stored.arrays["output"]).max() < 1e-5
    loss, found = gradients(bundle, x, y)
    assert loss == pytest.approx(float(stored.arrays["loss"]), rel=1e-5)
    expected = stored.lined_up(bundle.manifest, bundle.initial_params, "gradient")
    errors = relative_errors(found, expected)
    assert max(errors.values()) < 1e-5, errors


@pytest.mark.parametrize("name", torch_vectors.NETS)
def test_optimised_and_plain_graphs_agree(name):
    stored = torch_vectors.load(name)
    bundle = bundle_of(name, torch_vectors.NETS[name]["files"][-1])
    x, y = stored.x[:8], torch_vectors.targets(name, stored.y[:8])
    _, plain = gradients(bundle, x, y, optimize=False)
    _, optimised = gradients(bundle, x, y, optimize=True)
    errors = relative_errors(optimised, plain)
    assert max(errors.values()) < 1e-5, errors


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", torch_vectors.NETS)
def test_fifty_steps_agree_with_torch_optim(name, optimizer):
    stored = torch_vectors.load(name)
    net = torch_vectors.NETS[name]
    bundle = bundle_of(name, net["files"][1], optimizer)
    trainer = OnnxTrainer(bundle)
    rng = np.random.default_rng(torch_vectors.ORDER_SEED)
    losses = [
        trainer.fit(
            stored.x,
            torch_vectors.targets(name, stored.y),
            epochs=1,
            batch_size=torch_vectors.BATCH,
            lr=net["lr"][optimizer],
            rng=rng,
        )
        for _ in range(torch_vectors.EPOCHS)
    ]
    assert losses == pytest.approx(stored.arrays[f"losses/{optimizer}"].tolist(), rel=1e-4)
    assert losses[-1] < losses[0], "the case must be one in which training does something"
    trained = split_params(trainer.params(), bundle.manifest.parameters)
    starts = split_params(bundle.initial_params, bundle.manifest.parameters)
    expected = stored.lined_up(bundle.manifest, bundle.initial_params, optimizer)
    moved = max(np.abs(expected[key] - starts[key]).max() for key in starts)
    for key, value in expected.items():
        assert np.abs(trained[key] - value).max() < 1e-3 * moved, key
