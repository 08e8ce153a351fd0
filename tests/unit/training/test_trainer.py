"""What the trainer refuses, and what it loads."""

import json
import subprocess
import sys

import numpy as np
import pytest

from edgefl.errors import DataError, TrainingError
from edgefl.training.base import Trainer, TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.evaluate import Evaluator
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.session import open_session
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.onnx.runtime.version import require_version


@pytest.fixture(scope="module")
def bundle():
    return read_bundle(compile_bundle(demo_model(1)).bundle_bytes)


@pytest.fixture
def trainer(bundle):
    return OnnxTrainer(bundle)


def examples(n=20, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 64, 6)).astype(np.float32), rng.integers(0, 7, n)


def fit(trainer, x, y, **changes):
    settings = {"epochs": 1, "batch_size": 8, "lr": 0.1, "rng": np.random.default_rng(0)} | changes
    return trainer.fit(x, y, **settings)


def test_it_is_a_trainer(trainer):
    checked: Trainer = trainer
    assert checked.dimension == 1911


def test_update_counts_from_the_received_parameters(trainer, bundle):
    received = bundle.initial_params + np.float32(0.01)
    trainer.set_params(received)
    assert not trainer.delta().any()
    fit(trainer, *examples())
    delta = trainer.delta()
    assert delta.dtype == np.float32
    assert delta.shape == (1911,)
    assert np.array_equal(delta, trainer.params() - received)
    assert 0 < np.linalg.norm(delta) < 10


def test_rounds_do_not_leak_into_each_other(trainer, bundle):
    x, y = examples()
    fit(trainer, x, y)
    first = trainer.delta()
    trainer.set_params(bundle.initial_params)
    fit(trainer, x, y)
    assert np.array_equal(trainer.delta(), first)


def test_changing_the_received_array_later_changes_nothing(trainer, bundle):
    mine = bundle.initial_params.copy()
    trainer.set_params(mine)
    mine[:] = 5
    assert not trainer.delta().any()
    assert np.array_equal(trainer.params(), bundle.initial_params)


def test_a_batch_larger_than_the_data_is_one_step(trainer):
    x, y = examples(5)
    assert np.isfinite(fit(trainer, x, y, batch_size=1000))


def test_divergence_stops_and_gives_no_update(trainer):
    x, y = examples()
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        fit(trainer, x, y, epochs=50, lr=1e30)
    with pytest.raises(TrainingError, match="E-TRAIN-DIVERGED"):
        trainer.delta()


@pytest.mark.parametrize("label", [-1, 7])
def test_labels_out_of_range_are_refused_before_any_step(trainer, label):
    x, y = examples()
    y[3] = label
    with pytest.raises(DataError, match=f"E-DATA-LABEL.* {label} at index 3"):
        fit(trainer, x, y)
    assert not trainer.delta().any()


def test_data_that_are_not_finite_are_refused(trainer):
    x, y = examples()
    x[2, 5, 1] = np.nan
    with pytest.raises(DataError, match=r"E-DATA-NOT-FINITE.*\[2, 5, 1\]"):
        fit(trainer, x, y)


def test_another_shape_is_refused_with_both_shapes(trainer):
    x, y = examples()
    with pytest.raises(DataError, match=r"E-DATA-SHAPE.*\['n', 64, 6\].*\[20, 6, 64\]"):
        fit(trainer, np.ascontiguousarray(x.transpose(0, 2, 1)), y)
    with pytest.raises(DataError, match="E-DATA-DTYPE"):
        fit(trainer, x.astype(np.float64), y)
    with pytest.raises(DataError, match="E-DATA-LENGTH"):
        fit(trainer, x, y[:-1])


@pytest.mark.parametrize(
    "changes", [{"epochs": 0}, {"batch_size": 0}, {"lr": -0.1}, {"lr": float("nan")}]
)
def test_settings_without_meaning_are_refused(trainer, changes):
    with pytest.raises(TrainingError, match="E-TRAIN-SETTING"):
        fit(trainer, *examples(), **changes)


def test_parameters_that_do_not_fit_are_refused(trainer, bundle):
    with pytest.raises(TrainingError, match=r"E-PARAMS-SHAPE.*\[1911\].*\[1910\]"):
        trainer.set_params(bundle.initial_params[:-1])
    with pytest.raises(TrainingError, match="E-PARAMS-DTYPE"):
        trainer.set_params(bundle.initial_params.astype(np.float64))
    broken = bundle.initial_params.copy()
    broken[17] = np.inf
    with pytest.raises(TrainingError, match=r"E-PARAMS-NOT-FINITE.*index 17"):
        trainer.set_params(broken)


def test_graphs_that_the_runtime_refuses_give_one_line(bundle):
    with pytest.raises(TrainingError, match="E-GRAPH-REFUSED") as caught:
        open_session(bundle.content("train.onnx")[:100])
    assert "\n" not in str(caught.value)
    with pytest.raises(TrainingError, match="E-TRAIN-THREADS"):
        open_session(bundle.content("train.onnx"), threads=0)


def test_an_onnxruntime_older_than_the_bundle_is_refused_with_the_range(bundle):
    for old in ("1.16.2", "1.9.0", "0.5"):
        with pytest.raises(TrainingError, match=r"E-RUNTIME-VERSION.*1\.16\.3 or newer") as caught:
            require_version(bundle.manifest, old)
        assert old in caught.value.found
    for new in ("1.16.3", "1.32.0", "2.0.0+cu12"):
        require_version(bundle.manifest, new)


def test_evaluation_is_that_of_the_logits(trainer, bundle):
    x, y = examples(300)
    logits = trainer.predict(x).astype(np.float64)
    assert logits.shape == (300, 7)
    result = trainer.evaluate(x, y)
    assert result.accuracy == (logits.argmax(axis=1) == y).mean()
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert result.loss == pytest.approx(-np.log(probabilities[np.arange(300), y]).mean())
    data = TrainingData(x=x, y=y)
    assert Evaluator(bundle).evaluate(bundle.initial_params, data) == result


def test_evaluation_refuses_what_training_refuses(bundle):
    x, y = examples()
    y[0] = 7
    with pytest.raises(DataError, match="E-DATA-LABEL"):
        Evaluator(bundle).evaluate(bundle.initial_params, TrainingData(x=x, y=y))
    with pytest.raises(DataError, match="E-DATA-SHAPE"):
        Evaluator(bundle).predict(bundle.initial_params, x[:, :32])


DEVICE_PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.onnx.runtime.version import require_version
trainer = OnnxTrainer(Path(sys.argv[1]))
rng = np.random.default_rng(0)
x = rng.normal(size=(100, 64, 6)).astype(np.float32)
trainer.fit(x, rng.integers(0, 7, 100), epochs=5, batch_size=16, lr=0.1, rng=rng)
loaded = [name for name in ("onnx", "torch", "scipy", "google.protobuf") if name in sys.modules]
# Not getrusage: its peak also covers the parent's memory between fork and exec.
status = Path("/proc/self/status").read_text().splitlines()
peak_kib = int(next(line for line in status if line.startswith("VmHWM")).split()[1])
print(json.dumps({"loaded": loaded, "peak_mib": peak_kib / 1024, "delta": trainer.delta().size}))
"""


def test_a_device_loads_no_compiler_and_stays_small(tmp_path):
    path = tmp_path / "demo.efl"
    path.write_bytes(compile_bundle(demo_model(1)).bundle_bytes)
    run = subprocess.run(
        [sys.executable, "-c", DEVICE_PROGRAM, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    report = json.loads(run.stdout)
    print(f"peak resident memory of a training process: {report['peak_mib']:.0f} MiB")
    assert report["loaded"] == []
    assert report["delta"] == 1911
    assert report["peak_mib"] < 110
