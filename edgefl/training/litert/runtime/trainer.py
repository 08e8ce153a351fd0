"""Runs a bundle's TFLite training step on LiteRT or tflite-runtime."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.base import Evaluation, Inputs, Targets, TrainingData
from edgefl.training.bundle import (
    FEATURES_TFLITE,
    MODEL_TFLITE,
    Bundle,
    read_bundle,
)
from edgefl.training.fit_checks import (
    require_input,
    require_targets,
)
from edgefl.training.litert.runtime.features import FeatureMaker
from edgefl.training.litert.runtime.stepper import LitertModel, Stepper
from edgefl.training.loss_values import measure
from edgefl.training.stepping_trainer import DEFAULT_CACHE_BYTES, SteppingTrainer


class LitertTrainer(SteppingTrainer):
    """The `Trainer` over TFLite; parameters stay in numpy between steps."""

    def __init__(
        self,
        bundle: Bundle | Path | bytes,
        *,
        threads: int = 1,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Read and verify the bundle and open its files.

        Args:
            bundle: A bundle, its path or its bytes.
            threads: Threads within an operator.
            feature_cache_bytes: Features of all rows are computed once per `fit` and kept if they
                take no more than this, else once per batch.

        Raises:
            TrainingError: The bundle is damaged, or its files cannot be run.
            EnvironmentProblem: There is no interpreter that fits.
        """
        whole = bundle if isinstance(bundle, Bundle) else read_bundle(bundle)
        manifest = whole.manifest
        self._model = LitertModel(whole.content(MODEL_TFLITE), manifest, threads=threads)
        self._stepper = Stepper(self._model, manifest)
        self._features: FeatureMaker | None = None
        if manifest.features:
            front = whole.content(FEATURES_TFLITE)
            self._features = FeatureMaker(front, manifest, threads=threads)
        super().__init__(whole, self._stepper, self._features, cache_bytes=feature_cache_bytes)

    @property
    def batch_rows(self) -> int:
        """Return the largest number of rows of a step."""
        return self._model.rows

    def predict(self, x: Inputs) -> NDArray[np.float32]:
        """Return the output of each row, before any softmax or sigmoid: float32 [n, ...].

        Raises:
            DataError: E-DATA-SHAPE or E-DATA-DTYPE.
        """
        require_input(x, self.manifest)
        outputs = np.empty((len(x), *self.manifest.output.shape), np.float32)
        trained = self._stepper.trained
        for start in range(0, len(x), self.batch_rows):
            rows = x[start : start + self.batch_rows]
            if self._model.infers_from_input or self._features is None:
                named: dict[str, NDArray[np.generic]] = {self.manifest.input.name: rows}
            else:
                found = self._features.compute(rows)
                listed = zip(self.manifest.features, found, strict=True)
                named = {spec.name: feature for spec, feature in listed}
            padded = {name: _padded(array, self.batch_rows) for name, array in named.items()}
            outputs[start : start + len(rows)] = self._model.infer(trained | padded)[: len(rows)]
        return outputs

    def evaluate(self, x: Inputs, y: Targets) -> Evaluation:
        """Compare predictions with targets; nothing is trained."""
        data = TrainingData(x=x, y=y)
        require_targets(data.y, self.manifest)
        return measure(self.manifest.loss, self.predict(data.x), data.y)

    def _set_batch(self, rows: int) -> None:
        if rows > self.batch_rows:
            raise TrainingError(
                "E-LITERT-BATCH",
                f"at most {self.batch_rows} rows per step, as the bundle's TFLite file has",
                f"{rows}",
                "lower the task's batch size, or prepare the bundle with a larger --batch-rows",
            )

    def _compute_features(self, x: Inputs, *, is_last: bool) -> list[NDArray[np.generic]]:
        del is_last
        return [x] if self._features is None else self._features.compute(x)

    def _step(
        self,
        inputs: list[NDArray[np.generic]],
        targets: Targets,
        weights: NDArray[np.float32],
        *,
        is_last: bool,
    ) -> float:
        del is_last
        return self._stepper.step(inputs, targets, weights)


def _padded(rows: NDArray[np.generic], size: int) -> NDArray[np.generic]:
    """Fill up a batch with zeros."""
    if len(rows) == size:
        return np.ascontiguousarray(rows)
    padded = np.zeros((size, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded
