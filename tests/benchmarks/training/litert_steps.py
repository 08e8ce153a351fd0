"""Times a training step of the demo's net and of an MLP on each runtime, side by side.

    python -m tests.benchmarks.training.litert_steps [--tflite .venv-tflite/bin/python]

Each side runs in a process of its own, several times in turn, one thread; what counts is the median
processor time of all steps, data copying and Python's part of a step included: other load on the
machine hardly touches it. `scripts/test` makes the
environment for tflite-runtime.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from edgefl.training.base import Trainer

SIDES = ("onnxruntime", "litert", "tflite-runtime")
BATCH, STEPS, TURNS = 16, 60, 5


def make_bundles(folder: Path) -> None:
    """Write one bundle for both runtimes per net."""
    from edgefl.training.kinds import Runtime
    from edgefl.training.onnx.compile.bundle import compile_with
    from edgefl.training.onnx.compile.options import CompileOptions
    from edgefl.training.onnx.demo_model import demo_model
    from tests.unit.training.litert.nets import mlp

    options = CompileOptions(runtimes=(Runtime.ONNX, Runtime.LITERT))
    models = {"demo net": demo_model(1), "mlp 384-32-6": mlp(inputs=384, hidden=32, classes=6)}
    for name, model in models.items():
        (folder / f"{name}.efl").write_bytes(compile_with(model, options).bundle_bytes)


def time_steps(side: str, bundle_path: Path) -> list[float]:
    """Return the processor time of a step, microseconds, each value the mean of ten."""
    trainer: Trainer
    if side == "onnxruntime":
        from edgefl.training.onnx.runtime.trainer import OnnxTrainer

        trainer = OnnxTrainer(bundle_path)
    else:
        from edgefl.training.litert.runtime.trainer import LitertTrainer

        trainer = LitertTrainer(bundle_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, *trainer.manifest.input.shape)).astype(np.float32)
    y = rng.integers(0, trainer.manifest.classes, BATCH)
    times_us = []
    for _ in range(STEPS):
        started_s = time.process_time()
        trainer.fit(x, y, epochs=10, batch_size=BATCH, lr=0.01, rng=rng)
        times_us.append((time.process_time() - started_s) * 1e5)
    return times_us[5:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tflite", type=Path, default=Path(".venv-tflite/bin/python"))
    parser.add_argument("--side", nargs=2, metavar=("SIDE", "BUNDLE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(time_steps(options.side[0], Path(options.side[1]))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_bundles(folder)
        for bundle in sorted(folder.iterdir()):
            times_us: dict[str, list[float]] = {side: [] for side in SIDES}
            for _ in range(TURNS):
                for side in SIDES:
                    python = str(options.tflite) if side == "tflite-runtime" else sys.executable
                    module = "tests.benchmarks.training.litert_steps"
                    command = [python, "-m", module, "--side", side, str(bundle)]
                    ended = subprocess.run(command, capture_output=True, check=True, text=True)
                    times_us[side] += json.loads(ended.stdout.splitlines()[-1])
            medians = {side: float(np.median(times)) for side, times in times_us.items()}
            print(bundle.stem, {side: f"{median:.0f} us" for side, median in medians.items()})
            slowest = max(medians["litert"], medians["tflite-runtime"])
            fastest = min(medians["litert"], medians["tflite-runtime"])
            print(f"  litert / onnxruntime: {medians['litert'] / medians['onnxruntime']:.2f}")
            print(f"  slower / faster TFLite runtime: {slowest / fastest:.2f}")


if __name__ == "__main__":
    main()
