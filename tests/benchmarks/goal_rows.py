"""What the commands that measure goals have in common: options, one core, rows in turn, a table."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from tests.benchmarks.secagg.results import Result, table, to_json

_S = TypeVar("_S")
Rows = Mapping[str, Callable[[_S], Iterator[Result]]]


def add_options(parser: argparse.ArgumentParser, rows: Rows[_S], *, quick: str) -> None:
    """Add the options of every such command.

    Args:
        parser: Of the command.
        rows: By name, what measures it.
        quick: Help text of `--quick`.
    """
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows))
    parser.add_argument("--repeats", type=int, default=9, help="turns of each side")
    parser.add_argument("--core", type=int, help="the one core to run on; default: the last")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    parser.add_argument("--quick", action="store_true", help=quick)


def stay_on_one_core(core: int | None) -> None:
    """Run on one core, and let the processes that are started later do so too."""
    if hasattr(os, "sched_setaffinity"):
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(allowed) if core is None else core})


def measure_rows(
    rows: Rows[_S], settings: _S, versions: Mapping[str, str], options: argparse.Namespace
) -> int:
    """Measure, print, and return 1 where a bar was missed."""
    sys.stderr.write(", ".join(f"{name} {found}" for name, found in versions.items()) + "\n")
    results = []
    for name in options.rows:
        for result in rows[name](settings):
            sys.stderr.write(f"{result.row}: {result.case}: {result.own:.4g} {result.unit}\n")
            results.append(result)
    sys.stdout.write(table(results) + "\n")
    if options.json is not None:
        options.json.write_text(to_json(results, versions) + "\n", encoding="utf-8")
    missed = [result for result in results if result.bar_is_met is False]
    return 1 if missed and not options.quick else 0
