"""Makes the self-test that ships with edgefl: bundles, a batch, and what float64 makes of a step.

    python -m tests.vectors.make_selftest            writes edgefl/training/selftest_cases
    python -m tests.vectors.make_selftest --check    compares with what is there

The MLP's results come from the formulas below, in numpy; those of the other nets from PyTorch, by
way of tests/vectors/training (whose own script says how).
"""

import argparse
import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgefl.training.bundle import read_bundle
from edgefl.training.kinds import Runtime
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from tests import torch_vectors

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "edgefl" / "training" / "selftest_cases"
ROWS, INPUTS, HIDDEN, CLASSES = 8, 12, 10, 5
LEARNING_RATE = 0.125


Case = tuple[bytes, dict[str, NDArray[np.generic]]]


def mlp() -> Case:
    """Return the bundle and the arrays of a two-layer net with ReLU and cross-entropy."""
    rng = np.random.default_rng(4)
    weights = {
        "w1": rng.normal(size=(INPUTS, HIDDEN)) / 3,
        "b1": rng.normal(size=HIDDEN) / 3,
        "w2": rng.normal(size=(HIDDEN, CLASSES)) / 3,
        "b2": rng.normal(size=CLASSES) / 3,
    }
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    x = rng.normal(size=(ROWS, INPUTS)).astype(np.float32)
    y = rng.integers(0, CLASSES, ROWS)
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "w2", "b2"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", INPUTS])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    bundle = compile_with(model, CompileOptions(runtimes=(Runtime.ONNX, Runtime.LITERT)))
    outputs, loss, gradients = _mlp_step(weights, x, y)
    update = np.concatenate([-LEARNING_RATE * gradients[name].reshape(-1) for name in weights])
    arrays = {"x": x, "y": y, "outputs": outputs, "loss": np.array(loss), "update": update}
    return bundle.bundle_bytes, arrays


def from_torch(net: str, runtimes: tuple[Runtime, ...]) -> Case:
    """Return the bundle of a stored net, and what PyTorch says of its first batch."""
    vectors = torch_vectors.load(net)
    model = torch_vectors.model(f"{net}-dynamo-18.onnx")
    bundle_bytes = compile_with(model, CompileOptions(runtimes=runtimes)).bundle_bytes
    bundle = read_bundle(bundle_bytes)
    rows = len(vectors.arrays["output"])
    gradients = vectors.lined_up(bundle.manifest, bundle.initial_params, "gradient")
    flat = [gradients[slot.name].reshape(-1) for slot in bundle.manifest.parameters]
    arrays = {
        "x": vectors.x[:rows],
        "y": vectors.y[:rows],
        "outputs": vectors.arrays["output"].astype(np.float64),
        "loss": vectors.arrays["loss"],
        "update": -LEARNING_RATE * np.concatenate(flat).astype(np.float64),
    }
    return bundle_bytes, arrays


def _mlp_step(
    weights: dict[str, NDArray[np.float32]], x: NDArray[np.float32], y: NDArray[np.int64]
) -> tuple[NDArray[np.float64], float, dict[str, NDArray[np.float64]]]:
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    wide = x.astype(np.float64)
    hidden = wide @ w["w1"] + w["b1"]
    active = np.maximum(hidden, 0)
    logits = active @ w["w2"] + w["b2"]
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = exponentials / exponentials.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(probabilities[rows, y]).mean()
    d_logits = (probabilities - np.eye(CLASSES)[y]) / len(y)
    d_hidden = (d_logits @ w["w2"].T) * (hidden > 0)
    gradients = {
        "w1": wide.T @ d_hidden,
        "b1": d_hidden.sum(0),
        "w2": active.T @ d_logits,
        "b2": d_logits.sum(0),
    }
    return logits, float(loss), gradients


BOTH = (Runtime.ONNX, Runtime.LITERT)
CASES: dict[str, Callable[[], Case]] = {
    "mlp": mlp,
    "cnn1d": partial(from_torch, "cnn1d", BOTH),
    "cnn2d": partial(from_torch, "cnn2d", BOTH),
    "gru": partial(from_torch, "gru", (Runtime.ONNX,)),
    "lstm": partial(from_torch, "lstm", (Runtime.ONNX,)),
    "attention": partial(from_torch, "attention", (Runtime.ONNX,)),
}


def make(name: str) -> dict[str, bytes]:
    """Return the files of a case by name."""
    bundle, arrays = CASES[name]()
    packed = io.BytesIO()
    np.savez(packed, lr=np.array(LEARNING_RATE), tolerance=np.array(1e-4), **arrays)
    return {f"{name}.efl": bundle, f"{name}.npz": packed.getvalue()}


def main() -> int:
    """Write or compare the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args()
    wrong = []
    for name in CASES:
        for file, content in make(name).items():
            path = TARGET / file
            if not options.check:
                path.write_bytes(content)
                print(f"{path.relative_to(ROOT)}: {len(content)} bytes")
            elif not path.is_file() or not _is_same(file, path.read_bytes(), content):
                wrong.append(file)
    if wrong:
        print(f"not as this script makes them: {', '.join(wrong)}")
    return 1 if wrong else 0


def _is_same(name: str, found: bytes, made: bytes) -> bool:
    """Compare what a board relies on.

    A bundle's graphs may change with the compiler, and are run by the tests; numpy writes the time
    into an .npz.
    """
    if name.endswith(".efl"):
        old, new = read_bundle(found), read_bundle(made)
        return old.manifest.parameters == new.manifest.parameters and np.array_equal(
            old.initial_params, new.initial_params
        )
    with np.load(io.BytesIO(found)) as a, np.load(io.BytesIO(made)) as b:
        return set(a.files) == set(b.files) and all(np.array_equal(a[k], b[k]) for k in b.files)


if __name__ == "__main__":
    sys.exit(main())
