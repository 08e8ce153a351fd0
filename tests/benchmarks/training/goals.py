"""Measure the goals of on-device training, each beside its peer in the same run.

    python -m tests.benchmarks.training.goals \\
        --torch-python A/bin/python --ort-training-python B/bin/python --litert-python C/bin/python

A is an environment of its own with `pip install torch onnx numpy`; B one with Python 3.12 at most
and `pip install onnxruntime-training-cpu==1.19.2 onnx==1.17.0 torch`; C one with what a device with
LiteRT has. What is not given is left out. Sides take turns on one core with one thread; figures of
steps are CPU time of whole epochs, batching included, divided by their steps; ratios are taken
within a turn. Prints a table, and exits with 1 when a bar is missed.
"""

import argparse
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata

from tests.benchmarks.goal_rows import add_options, measure_rows, stay_on_one_core
from tests.benchmarks.secagg.results import Result
from tests.benchmarks.secagg.turns import PeerProcess
from tests.benchmarks.training import memory_rows, prepare_rows, step_rows
from tests.benchmarks.training.settings import Settings

ROWS: dict[str, Callable[[Settings], Iterator[Result]]] = {
    "steps": step_rows.measure_steps,
    "int8-head": step_rows.measure_int8_head,
    "clipping": step_rows.measure_clipping,
    "memory": memory_rows.measure_peaks,
    "agent": memory_rows.measure_agents,
    "prepare": prepare_rows.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether a bar was missed."""
    options = _parser().parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    stay_on_one_core(options.core)
    settings = _settings(options)
    versions = _versions(settings)
    return measure_rows(ROWS, settings, versions, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch-python", help="interpreter of an environment with torch")
    parser.add_argument("--ort-training-python", help="one with onnxruntime-training-cpu")
    parser.add_argument("--litert-python", help="one with a LiteRT library and our dependencies")
    add_options(parser, ROWS, quick="one short turn, own side only")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    if options.quick:
        return Settings(repeats=1, turn_s=0.01, is_quick=True)
    return Settings(
        repeats=options.repeats,
        torch_python=options.torch_python,
        ort_python=options.ort_training_python,
        litert_python=options.litert_python,
    )


def _versions(settings: Settings) -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found["onnxruntime"] = metadata.version("onnxruntime")
    for name, (python, module) in settings.sides().items():
        if name != "ours":
            with PeerProcess(python, module) as side:
                found |= {key: str(value) for key, value in side.ask("versions").items()}
    return found


if __name__ == "__main__":
    raise SystemExit(main())
