"""Gradients of whole nets against onnx-ad, a second oracle that differentiates the same files.

The vectors are made by tests/vectors/training/make_onnx_ad.py; onnx-ad refuses nets with grouped
convolutions or reflecting pads.
"""

import numpy as np
import pytest

from edgefl.training.bundle import read_bundle
from edgefl.training.evaluate import split_params
from edgefl.training.kinds import Loss
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests import torch_vectors

HUGE_LR = 2.0**40
NETS = ("mlp", "binary", "huber", "gru", "lstm", "attention")


@pytest.mark.parametrize("name", NETS)
def test_gradients_agree_with_onnx_ad(name):
    stored = torch_vectors.load(name)
    options = CompileOptions(loss=Loss(torch_vectors.NETS[name]["loss"]))
    source = torch_vectors.model(f"{name}-torchscript-17.onnx")
    bundle = read_bundle(compile_with(source, options).bundle_bytes)
    trainer = OnnxTrainer(bundle)
    rows = slice(0, torch_vectors.BATCH)
    y = torch_vectors.targets(name, stored.y[rows])
    rng = np.random.default_rng(0)
    trainer.fit(stored.x[rows], y, epochs=1, batch_size=len(y), lr=HUGE_LR, rng=rng)
    flat = (trainer.delta() / -HUGE_LR).astype(np.float32)
    found = split_params(flat, bundle.manifest.parameters)
    with np.load(torch_vectors.FOLDER / "onnx_ad.npz") as oracle:
        expected = {key: oracle[f"{name}/{key}"] for key in found}
    for key, value in expected.items():
        assert np.abs(found[key] - value).max() <= 1e-5 * np.abs(value).max(), key
