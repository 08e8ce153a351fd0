"""onnxruntime-training's step over the same nets, weights and data.

Needs an environment of its own with Python 3.12 at most:
`pip install onnxruntime-training-cpu==1.19.2 onnx==1.17.0 torch` (its artifacts module imports
torch; a newer onnx writes files that it cannot read).
"""

import tempfile

import numpy as np
import onnxruntime
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, Module, Optimizer

from tests.benchmarks.training.net_data import data
from tests.benchmarks.training.nets import model as model_of
from tests.benchmarks.training.step_side import LR, Epoch, batches, serve_steps


def open_net(name: str) -> tuple[Epoch, int]:
    """Return one epoch of plain SGD."""
    model = model_of(name)
    statistics = {
        value
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for value in node.input[3:]
    }
    tensors = model.graph.initializer
    trained = [t.name for t in tensors if t.dims and t.name not in statistics]
    folder = tempfile.mkdtemp()
    artifacts.generate_artifacts(
        model,
        requires_grad=trained,
        frozen_params=[t.name for t in tensors if t.name not in trained],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=folder,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
    module = Module(
        f"{folder}/training_model.onnx",
        state,
        f"{folder}/eval_model.onnx",
        session_options=options,
    )
    optimizer = Optimizer(f"{folder}/optimizer_model.onnx", module)
    optimizer.set_learning_rate(LR)
    module.train()
    x, y = data(name)
    rng = np.random.default_rng(2)

    def epoch() -> float:
        losses = []
        for rows in batches(len(x), rng):
            losses.append(float(module(x[rows], y[rows])))
            optimizer.step()
            module.lazy_reset_grad()
        return float(np.mean(losses))

    return epoch, sum(1 for _ in batches(len(x), np.random.default_rng(0)))


if __name__ == "__main__":
    serve_steps(open_net, {"onnxruntime-training": onnxruntime.__version__})
