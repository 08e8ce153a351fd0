"""Runs a bundle's training graph step by step on stock onnxruntime."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.base import Evaluation, Inputs, Targets, TrainingData
from edgefl.training.bundle import TRAIN_ONNX, Bundle, check_flat_params, read_bundle
from edgefl.training.evaluate import Evaluator
from edgefl.training.fit_checks import (
    check_sample_weight,
    require_finite_tensors,
    require_input,
    require_settings,
    require_targets,
)
from edgefl.training.kinds import Provider
from edgefl.training.manifest import Manifest
from edgefl.training.onnx.runtime.features import FeatureMaker
from edgefl.training.onnx.runtime.saturation import GridEnds
from edgefl.training.onnx.runtime.session import open_session
from edgefl.training.onnx.runtime.stepper import Stepper
from edgefl.training.onnx.runtime.version import require_version
from edgefl.training.randomness import Randomness
from edgefl.types import Update

DEFAULT_CACHE_BYTES = 32 * 1024 * 1024
_SMALLEST_WEIGHT_SUM = 1e-12


class OnnxTrainer:
    """The `Trainer` over ONNX; parameters stay in onnxruntime between steps."""

    def __init__(
        self,
        bundle: Bundle | Path | bytes,
        *,
        threads: int = 1,
        optimize: bool = True,
        provider: Provider = Provider.CPU,
        feature_cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Read and verify the bundle and open its training graph.

        Args:
            bundle: A bundle, its path or its bytes.
            threads: Threads within an operator.
            optimize: False runs the nodes as written; for tests.
            provider: Processor for training; predictions run on the CPU.
            feature_cache_bytes: Features of all rows are computed once per `fit` and kept if they
                take no more than this, else once per batch.

        Raises:
            TrainingError: The bundle is damaged or the graph cannot be run.
        """
        self._bundle = bundle if isinstance(bundle, Bundle) else read_bundle(bundle)
        require_version(self._bundle.manifest)
        self._threads = threads
        self._optimize = optimize
        self._cache_bytes = feature_cache_bytes
        session = open_session(
            self._bundle.content(TRAIN_ONNX),
            threads=threads,
            optimize=optimize,
            provider=provider,
            keeps_buffers=True,
        )
        self._stepper = Stepper(session, self._bundle.manifest)
        self._grid_ends = GridEnds(self._bundle)
        self._features: FeatureMaker | None = None
        if self._bundle.manifest.features:
            self._features = FeatureMaker(
                self._bundle, threads=threads, optimize=optimize, provider=provider
            )
        self._evaluator: Evaluator | None = None
        self._has_diverged = False
        self.set_params(self._bundle.initial_params)
        self.set_local(self._bundle.initial_local)

    @property
    def manifest(self) -> Manifest:
        """Return what the graphs expect."""
        return self._bundle.manifest

    @property
    def dimension(self) -> int:
        """Return d, the number of trainable parameters."""
        return self.manifest.dimension

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

    def set_local(self, flat: NDArray[np.float32]) -> None:
        """Take the values of the tensors that stay on the device: float32 [local d], finite.

        Raises:
            TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
        """
        self._stepper.set_local(check_flat_params(flat, self.manifest.local_dimension))

    def local(self) -> NDArray[np.float32]:
        """Return a copy of the values that stay on the device: float32 [local d]."""
        return self._stepper.local.copy()

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
            TrainingError: E-TRAIN-SETTING, or E-TRAIN-DIVERGED at a loss or parameter that is not
                finite; there is no update to send then, and local tensors are as before.
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
        self._stepper.set_rates(
            lr=lr, prox_mu=prox_mu, max_gradient_norm=max_gradient_norm, example_clip=example_clip
        )
        self._stepper.set_batch(min(batch_size, data.examples))
        self._stepper.set_rng(rng)
        local_before = self.local()
        kept = self._kept_inputs(x, epochs)
        loss = math.nan
        try:
            for epoch in range(1, epochs + 1):
                order = rng.permutation(data.examples)
                is_last = epoch == epochs
                loss = self._run_epoch(data, kept, weights, order, is_last=is_last)
            require_finite_tensors(self._stepper.averaged, self._stepper.local)
            self._grid_ends.require_room(self._stepper.received, self._stepper.averaged)
        except TrainingError:
            self._has_diverged = True
            self._stepper.set_local(local_before)
            raise
        return loss

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
        *,
        is_last: bool,
    ) -> float:
        rows = self._stepper.rows
        starts = np.arange(0, len(order), rows)
        ordered_weights, targets = weights[order], data.y[order]
        weight_sums: list[float] = np.add.reduceat(ordered_weights, starts, dtype=float).tolist()
        loss_sum = 0.0
        for start, weight_sum in zip(starts.tolist(), weight_sums, strict=True):
            batch = slice(start, start + rows)
            chosen = order[batch]
            is_end = is_last and start + rows >= len(order)
            if kept is not None or self._features is None:
                inputs = [array[chosen] for array in kept or [data.x]]
            else:
                inputs = self._features.compute(data.x[chosen], gives_back=is_end)
            loss = self._stepper.step(
                inputs, targets[batch], ordered_weights[batch], is_last=is_end
            )
            if not math.isfinite(loss):
                raise _diverged(f"loss {loss} at step {start // rows + 1} of an epoch")
            loss_sum += loss * weight_sum
        return loss_sum / max(sum(weight_sums), _SMALLEST_WEIGHT_SUM)

    def predict(self, x: Inputs) -> NDArray[np.float32]:
        """Return the output of each row, before any softmax or sigmoid: float32 [n, ...]."""
        return self._open_evaluator().predict(self.params(), x, self.local())

    def evaluate(self, x: Inputs, y: Targets) -> Evaluation:
        """Compare predictions with targets; nothing is trained."""
        data = TrainingData(x=x, y=y)
        return self._open_evaluator().evaluate(self.params(), data, self.local())

    def _open_evaluator(self) -> Evaluator:
        # A device that only trains never pays for the second session.
        if self._evaluator is None:
            self._evaluator = Evaluator(
                self._bundle, threads=self._threads, optimize=self._optimize
            )
        return self._evaluator


def _diverged(found: str) -> TrainingError:
    return TrainingError(
        "E-TRAIN-DIVERGED",
        "finite loss and parameters",
        found,
        "lower the learning rate or check the data; no update is sent",
    )
