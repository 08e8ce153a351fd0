"""Peak memory of a training process beside PyTorch's, and of an agent that has yet to train."""

import sys
from collections.abc import Iterator

from tests.benchmarks.secagg.results import Result, at_least, at_most, compare
from tests.benchmarks.secagg.turns import PeerProcess
from tests.benchmarks.training.agent_memory import resident_kib
from tests.benchmarks.training.settings import Settings

KIB_PER_MIB = 1024
AGENT_BARS_MIB = {"onnx": 80, "litert": 60}


def measure_peaks(settings: Settings) -> Iterator[Result]:
    """Compare the peak of a fresh process that prepared nothing else and trained a few epochs."""
    for net in ("mlp", "cnn1d", "depthwise2d-bn"):
        peaks = {
            name: _peak_mib(python, module, net)
            for name, (python, module) in settings.sides().items()
            if name != "onnxruntime-training"
        }
        yield compare(
            "peak memory",
            net,
            "MiB",
            own=[peaks["ours"]],
            peer=[peaks["torch"]] if "torch" in peaks else [],
            peer_name="torch",
            bar=at_least(3.0),
        )


def _peak_mib(python: str, module: str, net: str) -> float:
    with PeerProcess(python, module) as side:
        side.ask("open", net=net)
        return side.figure("memory", "peak_kib") / KIB_PER_MIB


def measure_agents(settings: Settings) -> Iterator[Result]:
    """Measure what an agent holds when its trainer is open and nothing was trained."""
    pythons = {"onnx": sys.executable, "litert": settings.litert_python}
    for runtime, python in pythons.items():
        found = None if python is None else resident_kib(runtime, python)
        if found is not None:
            yield compare(
                "agent before training",
                runtime,
                "MiB",
                own=[found / KIB_PER_MIB],
                bar=at_most(AGENT_BARS_MIB[runtime]),
            )
