"""The `edgefl` command: run one sub-command; every error is one line and an exit code."""

import argparse
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Protocol, cast

import edgefl
from edgefl.errors import ConfigError, EdgeflError, EnvironmentProblem

_COMMANDS = {
    "demo": "train a real fleet on this machine, kill devices, and show what survives",
    "agent": "run the device agent",
    "gateway": "set up, run and look at the gateway: aggregator and MQTT endpoint",
    "devices": "list a fleet's boards, let them in, put them out",
    "rounds": "show how rounds closed, and follow the open one",
    "roster": "sign which devices belong to the fleet",
    "task": "hand training tasks to a gateway, and fetch their models",
    "data": "look into a device's training data, on the device",
    "model": "prepare an ONNX model for training on devices",
    "privacy": "compute epsilons, and read the privacy ledger",
    "secagg": "compute the sizes of secure aggregation's neighbour graph",
    "sim": "simulate a fleet in virtual time",
    "selftest": "check the cryptography on this machine, and time it",
    "doctor": "check this installation",
}
_INTERRUPTED = 130
_SHOWN_PATH_CHARS = 200
_INTERNAL = 1


class CommandModule(Protocol):
    """One file of `edgefl.cli`: a sub-tree of commands, imported only when it is asked for."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add options and sub-commands; each sets `run` in the parser's defaults."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 ok, 1 internal error, 2 usage or bad input, 3 refused by policy,
        4 environment, 5 peer unreachable, 6 integrity, 130 interrupted.
    """
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        # Anywhere: a board imports for seconds before a command begins.
        sys.stderr.write("edgefl: interrupted\n")
        return _INTERRUPTED


def _run(words: list[str]) -> int:
    foreign = _foreign_package()
    if foreign is not None:
        sys.stderr.write(f"edgefl: {foreign}\n")
        return foreign.exit_code
    options = _parse(words)
    logging.basicConfig(
        level=logging.DEBUG if options.debug else logging.INFO,
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )
    try:
        code = options.run(options)
    except EdgeflError as error:
        return _fail(str(error), error.exit_code, options)
    except MemoryError as error:
        problem = EnvironmentProblem(
            "E-MEMORY",
            "enough free memory",
            " ".join(str(error).split()) or "less",
            "end other programs, or take a smaller model or batch",
        )
        return _fail(str(problem), problem.exit_code, options)
    except BrokenPipeError:
        # The reader of our output went away; it wants no message either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the last resort: one line, the rest behind --debug
        if isinstance(error, OSError) and error.filename is not None:
            foreseen = _file_problem(error)
            return _fail(str(foreseen), foreseen.exit_code, options)
        where = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())
        text = f"E-INTERNAL: {type(error).__name__}: {said} ({where.filename}:{where.lineno})"
        return _fail(f"{text}; run again with --debug and report it", _INTERNAL, options)
    return cast("int", code)


def _file_problem(error: OSError) -> EdgeflError:
    """Return the line for a path that no command foresaw: too long, a loop of links, a bad disk."""
    path = str(error.filename)[:_SHOWN_PATH_CHARS]
    return ConfigError(
        "E-FILE",
        "files and folders that can be used",
        f"{error.strerror or type(error).__name__}: {path}",
        "check the paths; --debug tells where it was met",
    )


def _foreign_package() -> EdgeflError | None:
    """Say so where the files of PyPI's unrelated `edgefl` lie over ours."""
    if getattr(edgefl, "DISTRIBUTION", None) == "edgefl-runtime":
        return None
    return EnvironmentProblem(
        "E-PACKAGE-OWNER",
        "the import package 'edgefl' of edgefl-runtime",
        f"another one at {edgefl.__file__}",
        "pip uninstall -y edgefl && pip install --force-reinstall edgefl-runtime",
    )


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="edgefl",
        description="Federated learning for battery-powered boards.",
        epilog="Each command explains itself: edgefl COMMAND --help.",
    )
    parser.add_argument("--version", action="version", version=f"edgefl {edgefl.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in words if not word.startswith("-")), None)
    for name, summary in _COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        if name == wanted:
            # Only the wanted sub-tree is imported: a board has no gateway or simulator installed.
            module = cast("CommandModule", importlib.import_module(f"edgefl.cli.{name}"))
            module.add_arguments(command)
    return parser.parse_args(words)


def _fail(text: str, code: int, options: argparse.Namespace) -> int:
    if options.debug and code != _INTERRUPTED:
        traceback.print_exc()
    sys.stderr.write(f"edgefl: {text}\n")
    return code
