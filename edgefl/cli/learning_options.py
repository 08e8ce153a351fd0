"""Options of commands that train or predict on this machine."""

import argparse

from edgefl.errors import ConfigError
from edgefl.training.backends import Backend, ProbedBackend, choose_backend
from edgefl.training.kinds import Provider, Runtime

_AUTO = "auto"
_MOST_THREADS = 256


def add_data(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Add the option that names a data source."""
    parser.add_argument(
        "--data",
        required=is_required,
        help="the device's examples: a .npz file with x and y, a folder of CSV files, an SQLite "
        "table, a Python function, a sensor.toml that describes one of them (docs/data.md), or "
        "spar:PERSON-ARM for the shipped recordings, for example spar:1-left",
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose library, processor and threads."""
    parser.add_argument(
        "--backend",
        choices=[_AUTO, *(runtime.value for runtime in Runtime)],
        default=_AUTO,
        help="library that trains; auto takes what works, onnxruntime first",
    )
    parser.add_argument(
        "--provider",
        choices=[_AUTO, *(provider.value for provider in Provider)],
        default=_AUTO,
        help="processor; auto tries a GPU in a child process and takes the CPU where it fails",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads for training")


def asked_backends(options: argparse.Namespace) -> tuple[ProbedBackend, ...]:
    """Return the backends that train here, best first, as far as the user asked for them.

    Each is probed in a child process, unless the user named library and processor: then their word
    counts, and a failure shows when the first bundle is opened.

    Raises:
        ConfigError: E-THREADS.
        EnvironmentProblem: E-NO-BACKEND.
    """
    if not 1 <= options.threads <= _MOST_THREADS:
        # A library starts as many as it is told, whatever the board has.
        raise ConfigError("E-THREADS", f"1 to {_MOST_THREADS} threads", str(options.threads))
    runtime = None if options.backend == _AUTO else Runtime(options.backend)
    provider = None if options.provider == _AUTO else Provider(options.provider)
    if runtime is not None and provider is not None:
        named = Backend(runtime=runtime, provider=provider)
        return (ProbedBackend(backend=named, infers=True, trains=True),)
    return choose_backend(runtime=runtime, provider=provider)
