"""How long `edgefl model prepare` takes for a model of five million parameters."""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.benchmarks.secagg.results import Result, at_most, compare
from tests.benchmarks.training.settings import Settings

BAR_S = 10
WIDTHS = (512, 2048, 1536, 512, 10)
QUICK_WIDTHS = (16, 8, 4)


def measure(settings: Settings) -> Iterator[Result]:
    """Run the command as a user does, from the file to the checked bundle."""
    widths = QUICK_WIDTHS if settings.is_quick else WIDTHS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        parameters = _write_model(path, widths)
        times = [_prepare_s(path) for _ in range(1 if settings.is_quick else 3)]
    yield compare(
        "model prepare",
        f"{parameters / 1e6:.1f} M parameters",
        "s",
        own=[statistics.median(times)],
        bar=at_most(BAR_S),
        note="wall-clock time",
    )


def _write_model(path: Path, widths: tuple[int, ...]) -> int:
    rng = np.random.default_rng(0)
    nodes, tensors, last = [], [], "x"
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        weight = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        names = [f"w{index}", f"b{index}"]
        for name, values in zip(names, (weight, np.zeros(outputs, np.float32)), strict=True):
            tensors.append(numpy_helper.from_array(values, name))
        nodes.append(helper.make_node("Gemm", [last, *names], [f"g{index}"], transB=1))
        nodes.append(helper.make_node("Relu", [f"g{index}"], [f"r{index}"]))
        last = f"r{index}"
    nodes.pop()
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", widths[0]])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["N", widths[-1]])],
        tensors,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return sum(int(np.prod(tensor.dims)) for tensor in tensors)


def _prepare_s(path: Path) -> float:
    command = [sys.executable, "-m", "edgefl.cli", "model", "prepare", str(path)]
    started = time.monotonic()
    bundle = path.with_suffix(".efl")
    subprocess.run([*command, "-o", str(bundle)], check=True, capture_output=True)
    taken_s = time.monotonic() - started
    bundle.unlink()
    return taken_s
