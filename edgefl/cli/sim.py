"""`edgefl sim`: simulate a fleet in virtual time."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgefl.cli.options import HelpFormatter, add_common, add_json
from edgefl.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from broker.events import Json, Reported

_PROGRESS = frozenset({"task", "phase", "round", "evaluated", "waiting", "task-ended"})
_MOST_DEVICES = 16_384
_MOST_ROUNDS = 10_000
_MOST_REPORT_BYTES = 1 << 28


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands."""
    commands = parser.add_subparsers(metavar="ACTION", required=True)
    run = commands.add_parser(
        "run",
        help="train a simulated fleet",
        description="Train a fleet of virtual boards with the agent's and the gateway's own code, "
        "in virtual time. The same seed gives the same messages and the same model.",
        formatter_class=HelpFormatter,
    )
    run.add_argument("--devices", type=int, default=200, help="virtual boards, all in one cohort")
    run.add_argument("--rounds", type=int, default=3, help="committed rounds to reach")
    run.add_argument("--seed", type=int, default=1, help="everything random follows from it")
    run.add_argument(
        "--deaths-per-device-hour",
        type=float,
        default=60.0,
        help="how often a board loses power, in virtual time; rounds take seconds",
    )
    run.add_argument(
        "--loss", type=float, default=0.0, help="chance that a transmission is lost, below 1"
    )
    run.add_argument(
        "--mode",
        choices=["secagg", "one-upload"],
        default="secagg",
        help="EXPERIMENTAL one-upload: each board publishes once in a round and a committee "
        "unmasks; its security argument is not complete (docs/threat-model.md)",
    )
    run.add_argument("--out", type=Path, help="write the report as JSON for 'edgefl sim report'")
    add_json(run)
    add_common(run)
    run.set_defaults(run=run_simulation)
    report = commands.add_parser(
        "report",
        help="show the report of an earlier run",
        description="Show a report that 'edgefl sim run --out' wrote.",
    )
    report.add_argument("file", type=Path, help="the report")
    add_common(report)
    report.set_defaults(run=run_report)


def run_simulation(options: argparse.Namespace) -> int:
    """Simulate; progress goes to stderr, the report to stdout."""
    from edgefl.cli.packages import require_packages

    _require_range("--devices", options.devices, 3, _MOST_DEVICES)
    _require_range("--rounds", options.rounds, 1, _MOST_ROUNDS)
    _require_range("--seed", options.seed, 0, 2**63 - 1)
    if options.out is not None and not options.out.parent.is_dir():
        raise ConfigError(
            "E-OUT-FOLDER", "a folder for --out", f"no folder {str(options.out.parent)!r}"
        )
    require_packages("onnxruntime", "onnx")
    from firmware_sim.memory import require_memory
    from firmware_sim.report import format_table

    require_memory(options.devices)
    report = _simulate(options)
    text = json.dumps(report)
    if options.out is not None:
        _write(options.out, json.dumps(report, indent=2) + "\n")
    sys.stdout.write((text if options.json else format_table(report)) + "\n")
    # A task that failed or spent its budget is a result of the simulation, not an error of it.
    return 0


def _simulate(options: argparse.Namespace) -> "dict[str, Json]":
    from broker.console import format_report
    from firmware_sim.report import make_report
    from firmware_sim.spar_scenario import spar_scenario
    from firmware_sim.stopwatch import run_timed

    scenario = spar_scenario(
        devices=options.devices,
        rounds=options.rounds,
        seed=options.seed,
        deaths_per_device_hour=options.deaths_per_device_hour,
        loss=options.loss,
        mode=options.mode,
    )

    def show(line: "Reported") -> None:
        if line.kind in _PROGRESS:
            sys.stderr.write(_shorten(format_report(line)) + "\n")

    result, effort = run_timed(scenario, show)
    return make_report(scenario, result, effort)


def run_report(options: argparse.Namespace) -> int:
    """Print the table of a stored report."""
    from edgefl.storage.files import read_file
    from firmware_sim.report import format_table

    try:
        report = json.loads(read_file(options.file, _MOST_REPORT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            "E-SIM-REPORT",
            "a simulation report in JSON",
            f"{options.file}: {getattr(error, 'strerror', None) or error}",
            "make one with 'edgefl sim run --out FILE.json'",
        ) from error
    if not isinstance(report, dict):
        raise ConfigError("E-SIM-REPORT", "a JSON object", type(report).__name__)
    sys.stdout.write(format_table(report) + "\n")
    return 0


def _shorten(line: str, most: int = 200) -> str:
    return line if len(line) <= most else line[: most - 3] + "..."


def _require_range(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError("E-SIM-RANGE", f"{option} from {least} to {most}", str(value))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise StorageError(
            "E-OUT-WRITE", f"room and permission to write {path}", error.strerror or str(error)
        ) from error
