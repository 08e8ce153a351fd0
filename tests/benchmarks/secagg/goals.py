"""Measure the goals of secure aggregation, each beside its peer in the same run.

    python -m tests.benchmarks.secagg.goals --flower-python VENV/bin/python

VENV is an environment of its own with `flwr` (`pip install flwr`); without it our side is measured
alone. Sides take turns on one core; figures are CPU time; ratios are taken within a turn. Prints a
table, and exits with 1 when a bar is missed.
"""

import argparse
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from tests.benchmarks.goal_rows import add_options, measure_rows, stay_on_one_core
from tests.benchmarks.peers import openssl
from tests.benchmarks.secagg import (
    abuse_rows,
    client_rows,
    drop_rows,
    mask_rows,
    message_rows,
    server_rows,
    shamir_rows,
)
from tests.benchmarks.secagg.results import Result
from tests.benchmarks.secagg.settings import Settings
from tests.benchmarks.secagg.turns import PeerProcess

ROWS: dict[str, Callable[[Settings], Iterator[Result]]] = {
    "masks": mask_rows.measure,
    "client": client_rows.measure,
    "server": server_rows.measure,
    "server-chacha20": server_rows.measure_without_aes,
    "shamir": shamir_rows.measure,
    "bytes": message_rows.measure,
    "drops": drop_rows.measure,
    "abuse": abuse_rows.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether a bar was missed."""
    options = _parser().parse_args(arguments)
    stay_on_one_core(options.core)
    with ExitStack() as stack:
        settings = _settings(options, stack)
        versions = _versions(settings)
        return measure_rows(ROWS, settings, versions, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flower-python", help="interpreter of an environment with flwr")
    parser.add_argument(
        "--slow-repeats", type=int, default=3, help="turns where the peer takes seconds"
    )
    add_options(parser, ROWS, quick="small, own side only")
    return parser


def _settings(options: argparse.Namespace, stack: ExitStack) -> Settings:
    if options.quick:
        return Settings(repeats=1, slow_repeats=1, is_quick=True)
    flower = python_aes = None
    if options.flower_python is not None:
        flower, python_aes = (
            stack.enter_context(
                PeerProcess(options.flower_python, f"tests.benchmarks.peers.{name}")
            )
            for name in ("flower_secagg", "python_aes")
        )
    return Settings(
        repeats=options.repeats,
        slow_repeats=options.slow_repeats,
        flower=flower,
        python_aes=python_aes,
        has_openssl=shutil.which("openssl") is not None,
    )


def _versions(settings: Settings) -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for peer in (settings.flower, settings.python_aes):
        if peer is not None:
            found |= {name: str(version) for name, version in peer.ask("versions").items()}
    if settings.has_openssl:
        found["openssl"] = openssl.version().split(" ")[1]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
