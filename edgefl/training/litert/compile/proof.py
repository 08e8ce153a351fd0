"""Runs a prepared file for some steps and wants to see the loss fall.

A file can load and run and still learn nothing: TensorFlow's own int8 conversion of a training
function ends so on some interpreters. Nothing but trying shows it.
"""

import math

import numpy as np

from edgefl.errors import EnvironmentProblem, TrainingError
from edgefl.training.base import Inputs, Targets
from edgefl.training.bundle import Bundle
from edgefl.training.kinds import ElementType
from edgefl.training.litert.runtime.interpreter import load_interpreter
from edgefl.training.litert.runtime.trainer import LitertTrainer
from edgefl.training.manifest import Manifest

_STEPS = 4
# For one of these, steps on one batch must lower its loss, unless nothing is learned at all.
_LEARNING_RATES = (0.1, 0.01, 1e-3, 1e-4)
_LEAST_FALL = 1e-6


def require_learning(bundle: Bundle) -> str | None:
    """Train on one made-up batch.

    Args:
        bundle: A bundle with a TFLite program.

    Returns:
        Why nothing was tried (no interpreter in this environment), or None.

    Raises:
        TrainingError: E-LITERT-LEARNS-NOTHING, or what the interpreter says of the file.
    """
    try:
        load_interpreter()
    except EnvironmentProblem as problem:
        return f"the TFLite form was not tried: {problem.found}; {problem.advice}"
    trainer = LitertTrainer(bundle)
    x, y = _made_up(bundle.manifest, trainer.batch_rows)
    losses = [_loss_after(trainer, bundle, x, y, lr) for lr in _LEARNING_RATES]
    before = _loss_after(trainer, bundle, x, y, 0.0)
    if not any(loss < before - _LEAST_FALL * max(abs(before), 1.0) for loss in losses):
        raise TrainingError(
            "E-LITERT-LEARNS-NOTHING",
            f"a loss below {before:.6g} after {_STEPS} steps on one batch",
            ", ".join(f"{loss:.6g}" for loss in losses),
            "let 'edgefl model prepare' make the file; never convert a training function with a "
            "representative data set",
        )
    return None


def _made_up(manifest: Manifest, rows: int) -> tuple[Inputs, Targets]:
    """Return random rows with targets, always the same."""
    rng = np.random.default_rng(0)
    shape = (rows, *manifest.input.shape)
    # Small numbers are tokens of any vocabulary.
    x: Inputs = (
        rng.integers(0, 2, shape)
        if manifest.input.element_type is ElementType.INT64
        else rng.standard_normal(shape).astype(np.float32)
    )
    if manifest.loss.takes_labels:
        return x, rng.integers(0, manifest.classes, rows)
    return x, rng.random((rows, *manifest.output.shape)).astype(np.float32)


def _loss_after(trainer: LitertTrainer, bundle: Bundle, x: Inputs, y: Targets, lr: float) -> float:
    """Return the loss of the batch after some steps on it; infinite if training went astray."""
    trainer.set_params(bundle.initial_params)
    trainer.set_local(bundle.initial_local)
    clip = 1.0 if bundle.manifest.clips_examples else None
    try:
        return trainer.fit(
            x,
            y,
            epochs=_STEPS,
            batch_size=len(x),
            lr=lr,
            rng=np.random.default_rng(0),
            example_clip=clip,
        )
    except TrainingError as error:
        if error.code != "E-TRAIN-DIVERGED":
            raise
        return math.inf
