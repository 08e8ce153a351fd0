"""Which libraries on this machine can train: each is tried in a child process.

One that crashes then takes nothing with it. A package that is installed may still be unable to
train (a wheel without training kernels, a provider without a kernel image for this GPU), so
inference and training are tried on their own.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefl.errors import EnvironmentProblem
from edgefl.training.child import run_child
from edgefl.training.kinds import Provider, Runtime
from edgefl.training.manifest import Manifest

_PROBE_TIMEOUT_S = 120.0
PROBE = "edgefl.training.probe"
"""Module that runs in the child process."""
_PACKAGES = {
    Runtime.ONNX: ("onnxruntime",),
    Runtime.LITERT: ("ai_edge_litert", "tflite_runtime"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A library and the processor that it runs on."""

    runtime: Runtime
    provider: Provider = Provider.CPU

    def __str__(self) -> str:
        """Return `onnx/cpu` and the like."""
        return f"{self.runtime.value}/{self.provider.value}"


CHOICES = (
    Backend(runtime=Runtime.ONNX, provider=Provider.CUDA),
    Backend(runtime=Runtime.ONNX),
    Backend(runtime=Runtime.LITERT),
)
"""Every backend there is, the one that is preferred first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedBackend:
    """What a backend was seen to do on this machine.

    Attributes:
        backend: Which one.
        version: The package and its release; empty if it is not there.
        infers: A small model gave the known outputs.
        trains: A step of training gave the known parameters.
        reason: Why not, where something failed; one line.
    """

    backend: Backend
    version: str = ""
    infers: bool = False
    trains: bool = False
    reason: str = ""

    def __str__(self) -> str:
        """Return one line for a person."""
        infers, trains = ("yes" if able else "no" for able in (self.infers, self.trains))
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.version or 'not there'}: inference {infers}, training {trains}{reason}"


def probe(backend: Backend, *, timeout_s: float = _PROBE_TIMEOUT_S) -> ProbedBackend:
    """Try a backend in a child process.

    Args:
        backend: Which one.
        timeout_s: How long the child may take; cold starts of a board are slow.

    Returns:
        What it did; a crash or a hang is a reason, never an exception.
    """
    report = run_child(PROBE, ("probe", backend.runtime.value, backend.provider.value), timeout_s)
    if isinstance(report, str):
        return ProbedBackend(backend=backend, reason=report)
    line = report[-1] if report else {"reason": "it ended without an answer"}
    return ProbedBackend(
        backend=backend,
        version=str(line.get("version", "")),
        infers=line.get("infers") is True,
        trains=line.get("trains") is True,
        reason=str(line.get("reason", "")),
    )


def choose_backend(
    *, runtime: Runtime | None = None, provider: Provider | None = None
) -> tuple[ProbedBackend, ...]:
    """Return the backends that train here, best first, as far as they were asked for.

    Args:
        runtime: None takes any.
        provider: None takes a GPU that works, else the CPU.

    Raises:
        EnvironmentProblem: E-NO-BACKEND, with the reason for each that was tried.
    """
    asked = [
        backend
        for backend in CHOICES
        if runtime in (None, backend.runtime) and provider in (None, backend.provider)
    ]
    # A processor that was asked for by name is tried whatever /dev shows: the reason is wanted.
    probed = [probe(one) for one in asked if provider is not None or may_be_there(one)]
    able = tuple(one for one in probed if one.trains)
    if able:
        return able
    reasons = "; ".join(f"{one.backend}: {one.reason}" for one in probed)
    wanted = "/".join(kind.value if kind is not None else "any" for kind in (runtime, provider))
    raise EnvironmentProblem(
        "E-NO-BACKEND",
        f"a training backend ({wanted}) that works on this machine",
        reasons or "neither onnxruntime nor LiteRT in this environment",
        "install 'edgefl-runtime[onnx]' or 'edgefl-runtime[litert]'; 'edgefl doctor' tells more",
    )


def may_be_there(backend: Backend) -> bool:
    """Spare the child process where there is nothing that it could load, or no GPU."""
    is_installed = any(
        importlib.util.find_spec(package) is not None for package in _PACKAGES[backend.runtime]
    )
    return is_installed and (backend.provider is Provider.CPU or _has_gpu())


def _has_gpu() -> bool:
    """Tell whether the kernel shows a device of NVIDIA: a card's, or a Jetson's own GPU."""
    return any(any(Path("/dev").glob(pattern)) for pattern in ("nvidia*", "nvhost*", "nvgpu*"))


def backend_for(manifest: Manifest, able: Sequence[ProbedBackend]) -> Backend:
    """Return the best backend for which a bundle has a program.

    Args:
        manifest: Of the bundle.
        able: Backends that train here, best first.

    Raises:
        EnvironmentProblem: E-BUNDLE-RUNTIME.
    """
    for one in able:
        if manifest.program(one.backend.runtime) is not None:
            return one.backend
    raise EnvironmentProblem(
        "E-BUNDLE-RUNTIME",
        f"a bundle for {' or '.join(sorted({str(one.backend) for one in able}))}",
        f"one for {', '.join(program.runtime.value for program in manifest.programs)}",
        "install the extra for its runtime on this device, or prepare the bundle for both: "
        "'edgefl model prepare --runtime onnx,litert'",
    )
