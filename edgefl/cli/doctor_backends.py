"""The part of `edgefl doctor` that tries the training libraries, each in a child process."""

import platform
from collections.abc import Iterator

from edgefl.cli.doctor_checks import Check, Status
from edgefl.cli.packages import is_installed
from edgefl.training.backends import CHOICES, PROBE, Backend, may_be_there, probe
from edgefl.training.child import run_child
from edgefl.training.kinds import Runtime

_SELFTEST_TIMEOUT_S = 900.0
_PACKAGES = {
    Runtime.ONNX: ("onnxruntime",),
    Runtime.LITERT: ("ai_edge_litert", "tflite_runtime"),
}
_ADVICE = {
    Runtime.ONNX: "install 'edgefl-runtime[onnx]' for training with ONNX Runtime",
    Runtime.LITERT: "install 'edgefl-runtime[litert]' for training with LiteRT",
}


def backend_checks(*, runs_selftest: bool) -> Iterator[Check]:
    """Try what is installed; one that works is enough for an agent.

    Args:
        runs_selftest: Also compare training steps of several nets with stored values.
    """
    able = False
    for backend in CHOICES:
        if not may_be_there(backend):
            if not any(is_installed(package) for package in _PACKAGES[backend.runtime]):
                yield _absent(backend)
            continue
        found = probe(backend)
        able |= found.trains
        status = Status.OK if found.trains else Status.WRONG
        advice = "" if found.trains else _why_not(backend)
        yield Check(name=f"backend {backend}", status=status, found=str(found), advice=advice)
        if runs_selftest and found.infers:
            yield from _selftest(backend)
    if not able:
        yield Check(
            name="training",
            status=Status.NOTE,
            found="no backend trains on this machine",
            advice="an agent needs one of those above, a gateway onnxruntime",
        )


def _absent(backend: Backend) -> Check:
    return Check(
        name=f"backend {backend}",
        status=Status.NOTE,
        found="not installed",
        advice=_ADVICE[backend.runtime],
    )


def _why_not(backend: Backend) -> str:
    return (
        f"reinstall it for {platform.machine()} and Python {platform.python_version()}, or use "
        f"another backend: {_ADVICE[next(r for r in Runtime if r is not backend.runtime)]}"
    )


def _selftest(backend: Backend) -> Iterator[Check]:
    arguments = ("selftest", backend.runtime.value, backend.provider.value)
    results = run_child(PROBE, arguments, _SELFTEST_TIMEOUT_S)
    lines = [] if isinstance(results, str) else results
    for line in lines:
        is_right = line.get("infers") is True and line.get("trains") is True
        worst = line.get("worst")
        found = f"largest difference {worst:.1e}" if isinstance(worst, float) else "no result"
        yield Check(
            name=f"selftest {backend} {line.get('name')}",
            status=Status.OK if is_right else Status.WRONG,
            found=found if is_right else str(line.get("reason")),
            advice="" if is_right else "do not train this kind of net on this board; report it",
        )
    if isinstance(results, str):
        yield Check(
            name=f"selftest {backend}",
            status=Status.WRONG,
            found=results,
            advice="reinstall the package, or use another backend",
        )
