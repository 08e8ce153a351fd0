"""Our training step, in a process of its own like the peers'; it never loads the compiler."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.benchmarks.training.net_data import data
from tests.benchmarks.training.step_side import BATCH, LR, Epoch, serve_steps


def open_net(name: str) -> tuple[Epoch, int]:
    """Return one epoch of `fit`.

    Args:
        name: `NET` or `NET/FORM`, as `make_bundle` knows them.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.efl"
        module = "tests.benchmarks.training.make_bundle"
        subprocess.run([sys.executable, "-m", module, name, str(path)], check=True)
        trainer = OnnxTrainer(read_bundle(path))
    x, y = data(name.partition("/")[0])
    rng = np.random.default_rng(2)
    clip = 1.0 if trainer.manifest.clips_examples else None

    def epoch() -> float:
        return trainer.fit(x, y, epochs=1, batch_size=BATCH, lr=LR, rng=rng, example_clip=clip)

    return epoch, -(-len(x) // BATCH)


if __name__ == "__main__":
    serve_steps(open_net, {"onnxruntime": onnxruntime.__version__, "numpy": np.__version__})
