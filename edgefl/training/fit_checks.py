"""Refuses data and settings that do not fit a bundle, before anything is trained or predicted."""

import math

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import DataError, TrainingError
from edgefl.training.base import Inputs, Targets, TrainingData
from edgefl.training.kinds import Loss
from edgefl.training.manifest import Manifest


def require_fit(data: TrainingData, manifest: Manifest) -> None:
    """Refuse data that the model cannot take; see `require_input` and `require_targets`."""
    require_input(data.x, manifest)
    require_targets(data.y, manifest)


def require_input(x: Inputs, manifest: Manifest) -> None:
    """Refuse rows that the model cannot take.

    Raises:
        DataError: E-DATA-DTYPE or E-DATA-SHAPE, naming both shapes.
    """
    wanted = manifest.input.element_type.value
    if str(x.dtype) != wanted:
        raise DataError("E-DATA-DTYPE", f"x of {wanted}", str(x.dtype), f"convert x to {wanted}")
    if x.shape[1:] != manifest.input.shape or len(x) == 0:
        raise DataError(
            "E-DATA-SHAPE",
            f"x of shape {['n', *manifest.input.shape]}",
            str(list(x.shape)),
            "prepare the data as the model's input, or the model for this data",
        )


def require_targets(y: Targets, manifest: Manifest) -> None:
    """Refuse targets that the loss cannot take.

    Raises:
        DataError: E-DATA-DTYPE, E-DATA-SHAPE or E-DATA-LABEL with the first bad index.
    """
    if manifest.loss.takes_labels:
        if y.dtype != np.int64 or y.ndim != 1:
            raise _wrong_targets(y, f"int64 labels of shape ['n'] for {manifest.loss.value}")
        _require_labels(y, manifest.classes)
        return
    wanted = ["n", *manifest.output.shape]
    if y.dtype != np.float32 or y.shape[1:] != manifest.output.shape:
        raise _wrong_targets(y, f"float32 values of shape {wanted} for {manifest.loss.value}")
    if manifest.loss is Loss.BINARY_CROSS_ENTROPY:
        _require_probabilities(y)


def _wrong_targets(y: Targets, wanted: str) -> DataError:
    return DataError(
        "E-DATA-TARGET",
        wanted,
        f"{y.dtype} of shape {list(y.shape)}",
        "choose the loss for the data with 'edgefl model prepare --loss', or convert y",
    )


def _require_labels(y: Targets, classes: int) -> None:
    # The check stands here since onnxruntime's OneHot takes -1 as the last class and gives loss 0
    # for a label too large.
    bad = (y < 0) | (y >= classes)
    if bad.any():
        first_bad = int(np.argmax(bad))
        raise DataError(
            "E-DATA-LABEL",
            f"labels from 0 to {classes - 1}",
            f"{int(y[first_bad])} at index {first_bad}",
            "check the label column and the model's number of classes",
        )


def _require_probabilities(y: Targets) -> None:
    bad = ~((y >= 0.0) & (y <= 1.0))
    if bad.any():
        first_bad = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), y.shape))
        raise DataError(
            "E-DATA-LABEL",
            "targets from 0 to 1 for binary_cross_entropy",
            f"{y[first_bad]} at index {list(first_bad)}",
            "scale the targets, or prepare the bundle with another loss",
        )


def require_settings(
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    prox_mu: float,
    max_gradient_norm: float | None,
    example_clip: float | None,
    manifest: Manifest,
) -> None:
    """Refuse settings out of range, and example clipping that the bundle lacks or needs.

    Raises:
        TrainingError: E-TRAIN-SETTING.
    """
    wrong = [
        (epochs < 1 or batch_size < 1, "at least 1 epoch and 1 row per batch"),
        (not (math.isfinite(lr) and lr >= 0.0), "a finite learning rate of at least 0"),
        (not (math.isfinite(prox_mu) and prox_mu >= 0.0), "a finite FedProx mu of at least 0"),
        (
            max_gradient_norm is not None and not 0.0 < max_gradient_norm < math.inf,
            "a finite gradient norm bound above 0",
        ),
        (
            example_clip is not None and not 0.0 < example_clip < math.inf,
            "a finite bound of each example's gradient above 0",
        ),
        (
            manifest.clips_examples != (example_clip is not None),
            "a bound of each example's gradient exactly for bundles that clip examples",
        ),
    ]
    for is_wrong, expected in wrong:
        if is_wrong:
            raise TrainingError(
                "E-TRAIN-SETTING",
                expected,
                f"{epochs} epochs, {batch_size} rows, lr {lr}, mu {prox_mu}, norm bound "
                f"{max_gradient_norm}, example bound {example_clip}",
                "correct the task's training settings",
            )


def check_sample_weight(
    sample_weight: NDArray[np.float32] | None, rows: int
) -> NDArray[np.float32]:
    """Return the weight of each row: float32 [n], all 1 for None.

    Raises:
        DataError: E-DATA-WEIGHT.
    """
    if sample_weight is None:
        return np.ones(rows, np.float32)
    found = sample_weight
    is_good = found.dtype == np.float32 and found.shape == (rows,)
    if not is_good or not (np.isfinite(found) & (found >= 0.0)).all():
        raise DataError(
            "E-DATA-WEIGHT",
            f"float32 [{rows}] weights, finite and at least 0",
            f"{found.dtype} of shape {list(found.shape)}",
            "weigh rows by numbers from 0",
        )
    return found


def require_finite_tensors(averaged: NDArray[np.float32], local: NDArray[np.float32]) -> None:
    """Refuse what the last step of a training made: the loss tells only of those before it.

    Args:
        averaged: float32 [d].
        local: float32 [local d]; it is no part of the update, and would stay on the device.

    Raises:
        TrainingError: E-TRAIN-DIVERGED.
    """
    for name, values in (("averaged", averaged), ("local", local)):
        if not np.isfinite(values).all():
            raise TrainingError(
                "E-TRAIN-DIVERGED",
                "finite loss and parameters",
                f"{name} parameters that are no longer finite",
                "lower the learning rate or check the data; no update is sent",
            )
