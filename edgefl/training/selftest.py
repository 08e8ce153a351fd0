"""Small bundles with known results, that ship with edgefl: a board runs them to check its runtime.

The known results are formulas in float64 or PyTorch's (tests/vectors/make_selftest.py), never a
runtime's own word.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import EdgeflError
from edgefl.training.backends import Backend
from edgefl.training.bundle import Bundle, read_bundle
from edgefl.training.opening import open_trainer

PACKAGE = "edgefl.training.selftest_cases"
PROBE_CASE = "mlp"
"""The smallest one, with a program for every runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestCase:
    """A bundle, a batch, and what one step of training makes of it.

    Attributes:
        name: Of the case.
        bundle: The bundle.
        lr: Learning rate of the step.
        x: The batch.
        y: Its targets.
        outputs: float64 [n, k] of the first parameters.
        loss: Before the step.
        update: float64 [d]: parameters after the step minus before.
        tolerance: Largest difference that is allowed, relative to the largest value of each kind.
    """

    name: str
    bundle: Bundle
    lr: float
    x: NDArray[np.float32] | NDArray[np.int64]
    y: NDArray[np.float32] | NDArray[np.int64]
    outputs: NDArray[np.float64]
    loss: float
    update: NDArray[np.float64]
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTestResult:
    """How a case went.

    Attributes:
        name: Of the case.
        infers: The outputs are right.
        trains: The loss and the update are right.
        worst: Largest relative difference that was seen; None if there is none to tell.
        reason: What failed, one line; empty if nothing did.
    """

    name: str
    infers: bool
    trains: bool
    worst: float | None
    reason: str = ""


def case_names() -> list[str]:
    """Return the names of all cases that ship."""
    entries = [entry.name for entry in files(PACKAGE).iterdir()]
    return sorted(name.removesuffix(".efl") for name in entries if name.endswith(".efl"))


def load_case(name: str) -> SelfTestCase:
    """Read a case from the package."""
    folder = files(PACKAGE)
    bundle = read_bundle(folder.joinpath(f"{name}.efl").read_bytes())
    with np.load(io.BytesIO(folder.joinpath(f"{name}.npz").read_bytes())) as arrays:
        return SelfTestCase(
            name=name,
            bundle=bundle,
            lr=float(arrays["lr"]),
            x=arrays["x"],
            y=arrays["y"],
            outputs=arrays["outputs"],
            loss=float(arrays["loss"]),
            update=arrays["update"],
            tolerance=float(arrays["tolerance"]),
        )


def run_cases(backend: Backend) -> Iterator[SelfTestResult]:
    """Run every case that has a program for a backend."""
    for name in case_names():
        case = load_case(name)
        if case.bundle.manifest.program(backend.runtime) is not None:
            yield run_case(case, backend)


def run_case(case: SelfTestCase, backend: Backend) -> SelfTestResult:
    """Predict, train one step, and compare."""
    try:
        trainer = open_trainer(case.bundle, backend)
        off_outputs = _difference(trainer.predict(case.x), case.outputs)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is the finding
        return SelfTestResult(
            name=case.name, infers=False, trains=False, worst=None, reason=_line(error)
        )
    infers = off_outputs <= case.tolerance
    try:
        loss = trainer.fit(
            case.x,
            case.y,
            epochs=1,
            batch_size=len(case.x),
            rng=np.random.default_rng(0),
            lr=case.lr,
        )
        off_update = _difference(trainer.delta(), case.update)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is the finding
        return SelfTestResult(
            name=case.name, infers=infers, trains=False, worst=off_outputs, reason=_line(error)
        )
    off_loss = abs(loss - case.loss) / max(abs(case.loss), 1e-3)
    trains = max(off_loss, off_update) <= case.tolerance
    reasons = [
        f"{what} differ by {off:.2g}, allowed {case.tolerance:g}"
        for what, off in (("outputs", off_outputs), ("losses", off_loss), ("updates", off_update))
        if not off <= case.tolerance
    ]
    return SelfTestResult(
        name=case.name,
        infers=infers,
        trains=trains,
        worst=max(off_outputs, off_loss, off_update),
        reason="; ".join(reasons),
    )


def _difference(found: NDArray[np.float32], wanted: NDArray[np.float64]) -> float:
    if found.shape != wanted.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - wanted).max() / max(float(np.abs(wanted).max()), 1e-9))


def _line(error: Exception) -> str:
    if isinstance(error, EdgeflError):
        return str(error)[:300]
    first = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__} {first}"[:300]
