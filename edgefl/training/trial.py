"""Runs a bundle's step once in a child process that has only what a device has.

What a compiler believes and what a runtime does are two things. A crash of a native library ends
the child, not the caller.
"""

import json
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefl.errors import EdgeflError, TrainingError
from edgefl.training.backends import Backend
from edgefl.training.base import Inputs, Targets
from edgefl.training.bundle import read_bundle
from edgefl.training.child import run_child
from edgefl.training.kinds import Runtime
from edgefl.training.manifest import Manifest
from edgefl.training.opening import open_trainer

_ROWS = 2
_STEPS = 2
_LR = 1e-4
_TIMEOUT_S = 120.0
_SHOWN_CHARS = 200
# The compiler's package: a device has none.
_FOREIGN = ("onnx", "torch", "tensorflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a bundle's step went.

    Attributes:
        loss: On random inputs, before any step.
        step_s: Time of the last step, of 2 rows.
        peak_bytes: Peak resident memory of the child, the interpreter included.
    """

    loss: float
    step_s: float
    peak_bytes: int


def try_bundle(
    path: Path, *, runtime: Runtime = Runtime.ONNX, timeout_s: float = _TIMEOUT_S
) -> Trial:
    """Train a few steps on random inputs, in a child process.

    Args:
        path: The bundle's file.
        runtime: Which of its programs.
        timeout_s: How long the child may take.

    Raises:
        TrainingError: E-MODEL-TRIAL, with what the runtime said.
    """
    lines = run_child(__name__, (str(path), runtime.value), timeout_s)
    if isinstance(lines, str):
        raise _failed(runtime, lines)
    result = lines[-1] if lines else {"error": "no result"}
    if "error" in result:
        raise _failed(runtime, str(result["error"])[:_SHOWN_CHARS])
    return Trial(
        loss=float(str(result["loss"])),
        step_s=float(str(result["step_s"])),
        peak_bytes=int(str(result["peak_bytes"])),
    )


def main() -> int:
    """Run the child: PATH RUNTIME; print one JSON line."""
    path, runtime = sys.argv[1:]
    try:
        result = _run(Path(path), Runtime(runtime))
    except EdgeflError as error:
        result = {"error": str(error)}
    sys.stdout.write(json.dumps(result) + "\n")
    return 0


def random_rows(manifest: Manifest, rows: int, seed: int) -> tuple[Inputs, Targets]:
    """Return inputs and targets that a bundle takes and that mean nothing.

    Args:
        manifest: Of the bundle.
        rows: How many.
        seed: Of the values.

    Returns:
        x [rows, ...] (tokens are all 0, the only one that every vocabulary has) and y.
    """
    rng = np.random.default_rng(seed)
    shape = (rows, *manifest.input.shape)
    x: Inputs = rng.standard_normal(shape).astype(np.float32)
    if manifest.input.element_type.value == "int64":
        x = np.zeros(shape, np.int64)
    if manifest.loss.takes_labels:
        return x, rng.integers(0, manifest.classes, rows)
    return x, rng.random((rows, *manifest.output.shape)).astype(np.float32)


def _run(path: Path, runtime: Runtime) -> dict[str, object]:
    bundle = read_bundle(path)
    trainer = open_trainer(bundle, Backend(runtime=runtime))
    x, y = random_rows(bundle.manifest, _ROWS, seed=0)
    loss = trainer.evaluate(x, y).loss
    clip = 1.0 if bundle.manifest.clips_examples else None
    step_s = 0.0
    for _ in range(_STEPS):
        started_s = time.perf_counter()
        trainer.fit(
            x,
            y,
            epochs=1,
            batch_size=_ROWS,
            lr=_LR,
            rng=np.random.default_rng(0),
            example_clip=clip,
        )
        step_s = time.perf_counter() - started_s
    trainer.delta()
    foreign = [name for name in _FOREIGN if name in sys.modules]
    if foreign:
        return {"error": f"{', '.join(foreign)} was loaded, which devices do not have"}
    return {"loss": loss, "step_s": step_s, "peak_bytes": _peak_bytes()}


def _peak_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        status = []
    for line in status:
        # Not getrusage where this is there: it also covers the parent between fork and exec.
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _failed(runtime: Runtime, found: str) -> TrainingError:
    return TrainingError(
        "E-MODEL-TRIAL",
        f"a step that runs on {runtime.value} as devices have it",
        found,
        "nothing was written; report the model's operators, or train fewer layers",
    )
