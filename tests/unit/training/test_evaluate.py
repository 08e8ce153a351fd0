"""Evaluation some rows at a time: the same numbers, and memory that does not grow with the rows."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from edgefl.training import evaluate
from edgefl.training.base import TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.evaluate import Evaluator, rows_at_once
from edgefl.training.kinds import Loss
from edgefl.training.loss_values import measure, row_losses
from edgefl.training.selftest import PROBE_CASE
from edgefl.training.selftest_cases import __file__ as CASES  # noqa: N812

BUNDLE = read_bundle((Path(CASES).parent / f"{PROBE_CASE}.efl").read_bytes())


def test_rows_at_once_go_by_their_size():
    assert rows_at_once(np.zeros((5, 12), np.float32)) == 256
    assert rows_at_once(np.zeros((5, 96, 96, 3), np.float32)) == 9
    assert rows_at_once(np.zeros((5, 1024, 1024), np.int64)) == 1
    assert rows_at_once(np.zeros((0, 12), np.float32)) == 256


@pytest.mark.parametrize("rows", [1, 7, 600])
def test_any_number_of_rows_at_a_time_gives_the_same(monkeypatch, rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 12)).astype(np.float32)
    data = TrainingData(x=x, y=rng.integers(0, 5, 600))
    evaluator = Evaluator(BUNDLE)
    outputs = evaluator.predict(BUNDLE.initial_params, x)
    found = evaluator.evaluate(BUNDLE.initial_params, data)
    monkeypatch.setattr(evaluate, "rows_at_once", lambda _: rows)
    np.testing.assert_allclose(evaluator.predict(BUNDLE.initial_params, x), outputs, atol=1e-6)
    again = evaluator.evaluate(BUNDLE.initial_params, data)
    assert again.accuracy == found.accuracy
    assert again.loss == pytest.approx(found.loss, rel=1e-6)


@pytest.mark.parametrize("loss", list(Loss))
def test_a_loss_of_many_outputs_takes_little_memory_beside_them(loss):
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(2000, 500)).astype(np.float32)
    targets = rng.integers(0, 500, 2000)
    if loss is not Loss.CROSS_ENTROPY:
        targets = rng.random(size=(2000, 500)).astype(np.float32)
    expected = row_losses(loss, outputs, targets).mean()
    tracemalloc.start()
    found = measure(loss, outputs, targets)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.loss == expected
    assert peak_bytes < 2 * outputs.nbytes
