"""Measure the goals of the gateway, each beside its peer in the same run.

    python -m tests.benchmarks.gateway.goals g1 g2

Needs mosquitto, and the gateway's and the tests' packages. Each side has a process of its own, and
its figures are CPU seconds and memory of that process as the kernel counts them. Sides take turns;
ratios are taken within a turn. Prints a table, and exits with 1 when a bar is missed.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from tests.benchmarks.gateway import (
    cluster_rows,
    connection_rows,
    fanout_rows,
    idle_rows,
    loss_rows,
    offer_rows,
    upload_rows,
    wire_rows,
)
from tests.benchmarks.gateway.settings import Settings
from tests.benchmarks.secagg.results import Result, table, to_json

ROWS: dict[str, Callable[[Settings], Iterator[Result]]] = {
    "g1": upload_rows.measure_throughput,
    "g2": connection_rows.measure,
    "g3": upload_rows.measure_round,
    "g4": wire_rows.measure,
    "g5": idle_rows.measure,
    "g6": offer_rows.measure,
    "g7": fanout_rows.measure,
    "g8": loss_rows.measure_losses,
    "g9": cluster_rows.measure,
    "g10": loss_rows.measure_suite,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether a bar was missed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    unknown = set(options.goals) - set(ROWS)
    if unknown:
        parser.error(f"no goal is called {', '.join(sorted(unknown))}")
    settings = Settings(repeats=1 if options.quick else options.repeats, is_quick=options.quick)
    versions = _versions()
    sys.stderr.write(", ".join(f"{name} {found}" for name, found in versions.items()) + "\n")
    results = []
    for name in options.goals or ROWS:
        for result in ROWS[name](settings):
            sys.stderr.write(
                f"{result.row}: {result.case}: {result.own:.4g} {result.unit}"
                f" (peer {result.peer}, load {os.getloadavg()[0]:.1f})\n"
            )
            results.append(result)
    sys.stdout.write(table(results) + "\n")
    if options.json is not None:
        options.json.write_text(to_json(results, versions) + "\n", encoding="utf-8")
    missed = [result for result in results if result.bar_is_met is False]
    return 1 if missed and not options.quick else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("goals", nargs="*", help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    parser.add_argument("--quick", action="store_true", help="small, no bars")
    return parser


def _versions() -> dict[str, str]:
    said = subprocess.run(["mosquitto", "-h"], capture_output=True, text=True, check=False)
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "mosquitto": said.stdout.split("\n")[0].removeprefix("mosquitto version "),
        "paho-mqtt": metadata.version("paho-mqtt"),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


if __name__ == "__main__":
    raise SystemExit(main())
