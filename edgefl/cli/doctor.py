"""`edgefl doctor`: check this installation, and say how to mend what is wrong."""

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import edgefl
from edgefl.agent import clock
from edgefl.cli.doctor_backends import backend_checks
from edgefl.cli.doctor_checks import Check, Status
from edgefl.cli.doctor_network import network_checks
from edgefl.cli.options import (
    DEFAULT_PORT,
    add_common,
    add_json,
    default_state_dir,
    require_port,
)
from edgefl.cli.packages import EXTRAS, is_installed

_OK, _ENVIRONMENT = 0, 4
_LEAST_PYTHON = (3, 11)
_REQUIRED = {"numpy": "numpy", "cbor2": "cbor2", "paho.mqtt.client": "paho-mqtt"}
_PURPOSES = {
    "onnx": "edgefl model prepare",
    "uvicorn": "edgefl gateway run",
    "prometheus_client": "edgefl gateway run",
    "matplotlib": "plots",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; the command has no sub-commands."""
    parser.description = (
        "Check Python, the native module, packages, training libraries, state folder, port, "
        "clock and the ways to a gateway. Exit code 4 if something is wrong; notes do not count."
    )
    parser.add_argument(
        "--selftest",
        action="store_true",
        help="also train one step of several small nets with each training library, and compare "
        "with stored values: run it on a new board",
    )
    parser.add_argument("--state", type=Path, help="a state folder (default: the agent's)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="a gateway's port")
    parser.add_argument(
        "--gateway",
        help="HOST or URL of a gateway: try which ways to it are open (MQTT over TLS, WebSocket) "
        "and which are blocked (default: the gateway that this device is enrolled at, if any)",
    )
    add_json(parser)
    add_common(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    """Run all checks and show them."""
    port = require_port(options.port)
    state_dir = options.state or default_state_dir("agent")
    checks = list(_all_checks(state_dir, port, runs_selftest=options.selftest))
    checks += network_checks(options.gateway, state_dir)
    is_ok = all(check.status is not Status.WRONG for check in checks)
    if options.json:
        rows = [{**asdict(check), "status": check.status.value} for check in checks]
        sys.stdout.write(json.dumps({"ok": is_ok, "checks": rows}) + "\n")
    else:
        for check in checks:
            advice = f"; {check.advice}" if check.advice else ""
            sys.stdout.write(f"{check.status.value:<5}  {check.name}: {check.found}{advice}\n")
    return _OK if is_ok else _ENVIRONMENT


def _all_checks(state_dir: Path, port: int, *, runs_selftest: bool) -> Iterator[Check]:
    yield check_python()
    yield check_word_size(sys.maxsize, platform.machine())
    yield check_native()
    yield check_endpoint()
    yield check_owner(edgefl.second_owner(Path(edgefl.__file__).parent.parent), _owners())
    for module, distribution in _REQUIRED.items():
        yield check_required(module, distribution)
    for module in _PURPOSES:
        yield check_optional(module)
    yield from backend_checks(runs_selftest=runs_selftest)
    yield check_state_dir(state_dir)
    yield check_port(port)
    yield check_clock(datetime.datetime.now(tz=datetime.UTC))


def check_python() -> Check:
    """Check the interpreter's version."""
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info[:2] >= _LEAST_PYTHON:
        return Check(name="python", status=Status.OK, found=found)
    advice = f"use Python {'.'.join(map(str, _LEAST_PYTHON))} or newer"
    return Check(name="python", status=Status.WRONG, found=found, advice=advice)


def check_word_size(largest_size: int, machine: str) -> Check:
    """Tell a 32-bit Python on a 64-bit board, for which no onnxruntime is published.

    Args:
        largest_size: As `sys.maxsize`.
        machine: As `platform.machine()`.
    """
    bits = 64 if largest_size > 2**32 else 32
    found = f"{bits}-bit Python on {machine}"
    if bits == 64:
        return Check(name="word size", status=Status.OK, found=found)
    advice = "install the 64-bit image of the operating system: onnxruntime has no 32-bit build"
    return Check(name="word size", status=Status.NOTE, found=found, advice=advice)


def check_native() -> Check:
    """Load the Rust core and name its backends."""
    try:
        native = importlib.import_module("edgefl._native")
    except ImportError as error:
        advice = f"install edgefl-runtime for this platform ({_platform()})"
        return Check(name="native core", status=Status.WRONG, found=str(error), advice=advice)
    backends: dict[str, list[str]] = native.backends()
    found = ", ".join(f"{prg} {names[0]}" for prg, names in sorted(backends.items()))
    return Check(name="native core", status=Status.OK, found=found)


def check_endpoint() -> Check:
    """Tell whether this build can be a gateway by itself; devices need no endpoint."""
    name = "MQTT endpoint"
    try:
        native = importlib.import_module("edgefl._native")
    except ImportError:
        return Check(name=name, status=Status.NOTE, found="no native core")
    if hasattr(native, "MqttEndpoint"):
        return Check(name=name, status=Status.OK, found="in the native core")
    advice = "a gateway on this machine needs another build, or a broker of others"
    return Check(name=name, status=Status.NOTE, found="not in this build", advice=advice)


def check_owner(other: str | None, owners: list[str]) -> Check:
    """Check that no other distribution brings a package called `edgefl`.

    Args:
        other: A foreign distribution whose metadata lies beside this package.
        owners: Distributions that list the import package.
    """
    foreign = sorted({name for name in owners if name.lower() != edgefl.DISTRIBUTION})
    found = foreign or ([other] if other else [])
    if found:
        return Check(
            name="import package",
            status=Status.WRONG,
            found=f"'edgefl' also belongs to {', '.join(found)}",
            advice=edgefl.mending_line(),
        )
    owner = edgefl.DISTRIBUTION if owners else "this source tree"
    return Check(name="import package", status=Status.OK, found=f"'edgefl' belongs to {owner}")


def _owners() -> list[str]:
    return list(importlib.metadata.packages_distributions().get("edgefl", []))


def check_required(module: str, distribution: str) -> Check:
    """Load a package that nothing works without."""
    problem = _load_problem(module)
    if problem is None:
        return Check(name=distribution, status=Status.OK, found=_version(distribution))
    advice = f"pip install --force-reinstall {distribution}"
    return Check(name=distribution, status=Status.WRONG, found=problem, advice=advice)


def check_optional(module: str) -> Check:
    """Load a package that some commands need: absent is a note, broken is wrong."""
    install = f"install 'edgefl-runtime[{EXTRAS[module]}]' for {_PURPOSES[module]}"
    if not is_installed(module):
        return Check(name=module, status=Status.NOTE, found="not installed", advice=install)
    problem = _load_problem(module)
    if problem is not None:
        return Check(name=module, status=Status.WRONG, found=problem, advice=install)
    return Check(name=module, status=Status.OK, found=_version(module))


def _load_problem(module: str) -> str | None:
    """Import a module, as its native libraries may be missing; return what went wrong."""
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - whatever a broken package raises is its finding
        first_line = str(error).splitlines()[0] if str(error) else ""
        return f"does not load on {_platform()}: {type(error).__name__} {first_line}"[:200]
    return None


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "present"


def _platform() -> str:
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"


def check_state_dir(folder: Path) -> Check:
    """Check that state can be written; the folder itself is not made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    name, found = "state folder", str(folder)
    advice = "choose another --state, or make room and set permissions"
    if not existing.is_dir():
        return Check(name=name, status=Status.WRONG, found=f"{existing} is a file", advice=advice)
    if existing != folder:
        status = Status.OK if os.access(existing, os.W_OK | os.X_OK) else Status.WRONG
        found = f"{folder} (to be made in {existing})"
        advice = "" if status is Status.OK else advice
        return Check(name=name, status=status, found=found, advice=advice)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"edgefl")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        found = f"{folder}: {error.strerror or error}"
        return Check(name=name, status=Status.WRONG, found=found, advice=advice)
    return Check(name=name, status=Status.OK, found=f"{folder} is writable")


def check_port(port: int) -> Check:
    """Check that a gateway could listen; a running one of ours is no fault."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            found = f"{port} on loopback: {error.strerror or error}"
            advice = "if that is not your gateway, give it another --port"
            return Check(name="port", status=Status.NOTE, found=found, advice=advice)
    return Check(name="port", status=Status.OK, found=f"{port} on loopback is free")


def check_clock(now: datetime.datetime) -> Check:
    """Check that the clock was set at all.

    Args:
        now: The present time, with its zone.
    """
    found = now.isoformat(timespec="seconds")
    if clock.is_set(now.timestamp()):
        return Check(name="clock", status=Status.OK, found=found)
    advice = "wait for time synchronisation, or set the clock: certificates need it"
    return Check(name="clock", status=Status.WRONG, found=found, advice=advice)
