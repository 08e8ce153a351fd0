"""Runs a bundle's TFLite training step on LiteRT or tflite-runtime."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.base import Evaluation, Inputs, Targets, TrainingData
from edgefl.training.bundle import (
    FEATURES_TFLITE,
    MODEL_TFLITE,
    Bundle,
    check_flat_params,
    read_bundle,
)
from edgefl.training.fit_checks import (
    check_sample_weight,
    require_finite_tensors,
    require_input,
    require_settings,
    require_targets,
)
from edgefl.training.litert.runtime.features import FeatureMaker
from edgefl.training.litert.runtime.stepper import LitertModel, Stepper
from edgefl.training.loss_values import measure
from edgefl.training.manifest import Manifest
from edgefl.training.randomness import Randomness
from edgefl.types import Update

DEFAULT_CACHE_BYTES = 32 * 1024 * 1024
_SMALLEST_WEIGHT_SUM = 1e-12


class LitertTrainer:
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
        self._bundle = bundle if isinstance(bundle, Bundle) else read_bundle(bundle)
        self._cache_bytes = feature_cache_bytes
        content = self._bundle.content(MODEL_TFLITE)
        self._model = LitertModel(content, self.manifest, threads=threads)
        self._stepper = Stepper(self._model, self.manifest)
        self._features: FeatureMaker | None = None
        if self.manifest.features:
            front = self._bundle.content(FEATURES_TFLITE)
            self._features = FeatureMaker(front, self.manifest, threads=threads)
        self._has_diverged = False
        self.set_params(self._bundle.initial_params)
        self.set_local(self._bundle.initial_local)

    @property
    def manifest(self) -> Manifest:
        """Return what the graphs expect."""
        return self._bundle.manifest

    @property
    def dimension(self) -> int:
        """Return d, the number of averaged parameters."""
        return self.manifest.dimension

    @property
    def batch_rows(self) -> int:
        """Return the largest number of rows of a step."""
        return self._model.rows

    @property
    def feature_rows_computed(self) -> int:
        """Return how many rows went through the frozen front part so far."""
        return 0 if self._features is None else self._features.rows_computed

    def set_params(self, flat: NDArray[np.float32]) -> None:
        """Take received parameters; `delta` counts from here, and optimisers start anew.

        Args:
            flat: float32 [d], finite.

        Raises:
            TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
        """
        self._stepper.receive(check_flat_params(flat, self.dimension))
        self._has_diverged = False

    def params(self) -> NDArray[np.float32]:
        """Return a copy of the present parameters: float32 [d]."""
        return self._stepper.averaged.copy()

    def set_local(self, flat: NDArray[np.float32]) -> None:
        """Take the values of the tensors that stay on the device: float32 [local d], finite.

        Raises:
            TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
        """
        self._stepper.set_local(check_flat_params(flat, self.manifest.local_dimension))

    def local(self) -> NDArray[np.float32]:
        """Return a copy of the values that stay on the device: float32 [local d]."""
        return self._stepper.local.copy()

    def delta(self) -> Update:
        """Return trained minus received parameters.

        Returns:
            float32 [d], finite.

        Raises:
            TrainingError: E-TRAIN-DIVERGED when the parameters are no longer finite, or a loss was
                not.
        """
        delta = self._stepper.averaged - self._stepper.received
        if self._has_diverged or not np.isfinite(delta).all():
            raise _diverged("a training that ended without a result")
        return delta

    def fit(
        self,
        x: Inputs,
        y: Targets,
        *,
        epochs: int,
        batch_size: int,
        lr: float,
        rng: Randomness,
        sample_weight: NDArray[np.float32] | None = None,
        prox_mu: float = 0.0,
        max_gradient_norm: float | None = None,
        example_clip: float | None = None,
    ) -> float:
        """Run the optimiser over shuffled batches; see `Trainer.fit`.

        Raises:
            DataError: The data do not fit the model, or x is not finite.
            TrainingError: E-TRAIN-SETTING; E-LITERT-BATCH for more rows per step than the file
                has; E-TRAIN-DIVERGED at a loss or parameter that is not finite: there is no update
                to send then, and local tensors are as before.
        """
        require_input(x, self.manifest)
        data = TrainingData(x=x, y=y)
        require_targets(y, self.manifest)
        require_settings(
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            prox_mu=prox_mu,
            max_gradient_norm=max_gradient_norm,
            example_clip=example_clip,
            manifest=self.manifest,
        )
        weights = check_sample_weight(sample_weight, data.examples)
        rows = min(batch_size, data.examples)
        self._require_rows(rows)
        self._stepper.set_rates(
            lr=lr, prox_mu=prox_mu, max_gradient_norm=max_gradient_norm, example_clip=example_clip
        )
        self._stepper.set_rng(rng)
        local_before = self.local()
        kept = self._kept_inputs(x, epochs)
        loss = math.nan
        try:
            for _ in range(epochs):
                order = rng.permutation(data.examples)
                loss = self._run_epoch(data, kept, weights, order, rows)
            require_finite_tensors(self._stepper.averaged, self._stepper.local)
        except TrainingError:
            self._has_diverged = True
            self._stepper.set_local(local_before)
            raise
        return loss

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

    def _require_rows(self, rows: int) -> None:
        if rows > self.batch_rows:
            raise TrainingError(
                "E-LITERT-BATCH",
                f"at most {self.batch_rows} rows per step, as the bundle's TFLite file has",
                f"{rows}",
                "lower the task's batch size, or prepare the bundle with a larger --batch-rows",
            )

    def _kept_inputs(self, x: Inputs, epochs: int) -> list[NDArray[np.generic]] | None:
        """Return what steps read, of all rows; None if each batch computes its own features."""
        if self._features is None:
            return [x]
        if epochs == 1 or len(x) * self._features.bytes_per_row > self._cache_bytes:
            return None
        return self._features.compute(x)

    def _run_epoch(
        self,
        data: TrainingData,
        kept: list[NDArray[np.generic]] | None,
        weights: NDArray[np.float32],
        order: NDArray[np.int64],
        rows: int,
    ) -> float:
        loss_sum = 0.0
        for start in range(0, len(order), rows):
            chosen = order[start : start + rows]
            weight = weights[chosen]
            if kept is not None or self._features is None:
                inputs = [array[chosen] for array in kept or [data.x]]
            else:
                inputs = self._features.compute(data.x[chosen])
            loss = self._stepper.step(inputs, data.y[chosen], weight)
            if not math.isfinite(loss):
                raise _diverged(f"loss {loss} at step {start // rows + 1} of an epoch")
            loss_sum += loss * float(weight.sum(dtype=np.float64))
        return loss_sum / max(float(weights.sum(dtype=np.float64)), _SMALLEST_WEIGHT_SUM)


def _padded(rows: NDArray[np.generic], size: int) -> NDArray[np.generic]:
    """Fill up a batch with zeros."""
    if len(rows) == size:
        return np.ascontiguousarray(rows)
    padded = np.zeros((size, *rows.shape[1:]), rows.dtype)
    padded[: len(rows)] = rows
    return padded


def _diverged(found: str) -> TrainingError:
    return TrainingError(
        "E-TRAIN-DIVERGED",
        "finite loss and parameters",
        found,
        "lower the learning rate or check the data; no update is sent",
    )
