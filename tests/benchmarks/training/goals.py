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
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from tests.benchmarks.secagg.results import Result, table, to_json
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
    _stay_on_one_core(options.core)
    settings = _settings(options)
    versions = _versions(settings)
    sys.stderr.write(", ".join(f"{name} {found}" for name, found in versions.items()) + "\n")
    results = []
    for name in options.rows:
        for result in ROWS[name](settings):
            sys.stderr.write(f"{result.row}: {result.case}: {result.own:.4g} {result.unit}\n")
            results.append(result)
    sys.stdout.write(table(results) + "\n")
    if options.json is not None:
        options.json.write_text(to_json(results, versions) + "\n", encoding="utf-8")
    missed = [result for result in results if result.bar_is_met is False]
    return 1 if missed and not options.quick else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torch-python", help="interpreter of an environment with torch")
    parser.add_argument("--ort-training-python", help="one with onnxruntime-training-cpu")
    parser.add_argument("--litert-python", help="one with a LiteRT library and our dependencies")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--repeats", type=int, default=9, help="turns of each side")
    parser.add_argument("--core", type=int, help="the one core to run on; default: the last")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    parser.add_argument("--quick", action="store_true", help="one short turn, own side only")
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


def _stay_on_one_core(core: int | None) -> None:
    """Run on one core, and let the processes that are started later do so too."""
    if hasattr(os, "sched_setaffinity"):
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(allowed) if core is None else core})


if __name__ == "__main__":
    raise SystemExit(main())
