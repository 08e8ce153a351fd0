"""Our training step, in a process of its own like the peers'."""

import tempfile
from pathlib import Path

import numpy as np

from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.benchmarks.training.nets import NETS
from tests.benchmarks.training.step_side import BATCH, LR, Epoch, serve_steps


def open_net(name: str) -> tuple[Epoch, int]:
    """Prepare a bundle and return one epoch of `fit`."""
    from edgefl.training.onnx.compile import compile_bundle

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.bundle"
        path.write_bytes(compile_bundle(NETS[name].model()).bundle_bytes)
        trainer = OnnxTrainer(read_bundle(path))
    x, y = NETS[name].data()
    rng = np.random.default_rng(2)

    def epoch() -> float:
        return trainer.fit(x, y, epochs=1, batch_size=BATCH, lr=LR, rng=rng)

    return epoch, -(-len(x) // BATCH)


if __name__ == "__main__":
    serve_steps(open_net, {"onnxruntime": onnxruntime.__version__, "numpy": np.__version__})
