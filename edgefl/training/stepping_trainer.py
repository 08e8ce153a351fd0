"""What trainers of all runtimes share: checks, epochs and batches around a stepper of their own."""

import abc
import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.base import Inputs, Targets, TrainingData
from edgefl.training.bundle import Bundle, check_flat_params
from edgefl.training.fit_checks import (
    check_sample_weight,
    require_finite_tensors,
    require_input,
    require_settings,
    require_targets,
)
from edgefl.training.manifest import Manifest
from edgefl.training.randomness import Randomness
from edgefl.types import Update

DEFAULT_CACHE_BYTES = 32 * 1024 * 1024
_SMALLEST_WEIGHT_SUM = 1e-12


class Steps(Protocol):
    """The tensors and rates of a runtime's stepper."""

    @property
    def averaged(self) -> NDArray[np.float32]:
        """Return a view of the averaged tensors: float32 [d]."""
        ...

    @property
    def local(self) -> NDArray[np.float32]:
        """Return a view of the tensors that stay on the device: float32 [local d]."""
        ...

    @property
    def received(self) -> NDArray[np.float32]:
        """Return a view of the averaged tensors as they were received: float32 [d]."""
        ...

    def receive(self, flat: NDArray[np.float32]) -> None:
        """Start from received tensors, with optimiser states of zero."""
        ...

    def set_local(self, flat: NDArray[np.float32]) -> None:
        """Replace the local tensors."""
        ...

    def set_rng(self, rng: Randomness) -> None:
        """Take the source of the numbers that round weights onto their grid."""
        ...

    def set_rates(
        self,
        *,
        lr: float,
        prox_mu: float,
        max_gradient_norm: float | None,
        example_clip: float | None,
    ) -> None:
        """Set the numbers that all steps share; None bounds nothing."""
        ...


class Features(Protocol):
    """What a runtime's frozen front part tells of itself."""

    rows_computed: int

    @property
    def bytes_per_row(self) -> int:
        """Return the size of all features of one row."""
        ...


class SteppingTrainer(abc.ABC):
    """The part of a `Trainer` that does not depend on the runtime."""

    def __init__(
        self, bundle: Bundle, stepper: Steps, features: Features | None, *, cache_bytes: int
    ) -> None:
        """Start from the bundle's first values.

        Args:
            bundle: A verified bundle.
            stepper: Runs steps.
            features: The frozen front part; None if steps read the input.
            cache_bytes: Features of all rows are computed once per `fit` and kept if they take no
                more than this, else once per batch.
        """
        self._bundle = bundle
        self._steps = stepper
        self._front = features
        self._cache_bytes = cache_bytes
        self._has_diverged = False
        self.set_params(bundle.initial_params)
        self.set_local(bundle.initial_local)

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
        return 0 if self._front is None else self._front.rows_computed

    def set_params(self, flat: NDArray[np.float32]) -> None:
        """Take received parameters; `delta` counts from here, and optimisers start anew.

        Args:
            flat: float32 [d], finite.

        Raises:
            TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
        """
        self._steps.receive(check_flat_params(flat, self.dimension))
        self._has_diverged = False

    def params(self) -> NDArray[np.float32]:
        """Return a copy of the present parameters: float32 [d]."""
        return self._steps.averaged.copy()

    def delta(self) -> Update:
        """Return trained minus received parameters.

        Returns:
            float32 [d], finite.

        Raises:
            TrainingError: E-TRAIN-DIVERGED when the parameters are no longer finite, or a loss was
                not.
        """
        delta = self._steps.averaged - self._steps.received
        if self._has_diverged or not np.isfinite(delta).all():
            raise _diverged("a training that ended without a result")
        return delta

    def set_local(self, flat: NDArray[np.float32]) -> None:
        """Take the values of the tensors that stay on the device: float32 [local d], finite.

        Raises:
            TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
        """
        self._steps.set_local(check_flat_params(flat, self.manifest.local_dimension))

    def local(self) -> NDArray[np.float32]:
        """Return a copy of the values that stay on the device: float32 [local d]."""
        return self._steps.local.copy()

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
            TrainingError: E-TRAIN-SETTING; E-LITERT-BATCH for more rows per step than a TFLite
                file has; E-TRAIN-DIVERGED at a loss or parameter that is not finite: there is no
                update to send then, and local tensors are as before.
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
        self._steps.set_rates(
            lr=lr, prox_mu=prox_mu, max_gradient_norm=max_gradient_norm, example_clip=example_clip
        )
        rows = min(batch_size, data.examples)
        self._set_batch(rows)
        self._steps.set_rng(rng)
        local_before = self.local()
        kept = self._kept_inputs(x, epochs)
        loss = math.nan
        try:
            for epoch in range(1, epochs + 1):
                order = rng.permutation(data.examples)
                is_last = epoch == epochs
                loss = self._run_epoch(data, kept, weights, order, rows, is_last=is_last)
            require_finite_tensors(self._steps.averaged, self._steps.local)
            self._require_sound(self._steps.received, self._steps.averaged)
        except TrainingError:
            self._has_diverged = True
            self._steps.set_local(local_before)
            raise
        return loss

    def _kept_inputs(self, x: Inputs, epochs: int) -> list[NDArray[np.generic]] | None:
        """Return what steps read, of all rows; None if each batch computes its own features."""
        if self._front is None:
            return [x]
        if epochs == 1 or len(x) * self._front.bytes_per_row > self._cache_bytes:
            return None
        return self._compute_features(x, is_last=False)

    def _run_epoch(
        self,
        data: TrainingData,
        kept: list[NDArray[np.generic]] | None,
        weights: NDArray[np.float32],
        order: NDArray[np.int64],
        rows: int,
        *,
        is_last: bool,
    ) -> float:
        starts = np.arange(0, len(order), rows)
        ordered_weights, targets = weights[order], data.y[order]
        weight_sums: list[float] = np.add.reduceat(ordered_weights, starts, dtype=float).tolist()
        loss_sum = 0.0
        for start, weight_sum in zip(starts.tolist(), weight_sums, strict=True):
            batch = slice(start, start + rows)
            chosen = order[batch]
            is_end = is_last and start + rows >= len(order)
            if kept is not None or self._front is None:
                inputs = [array[chosen] for array in kept or [data.x]]
            else:
                inputs = self._compute_features(data.x[chosen], is_last=is_end)
            loss = self._step(inputs, targets[batch], ordered_weights[batch], is_last=is_end)
            if not math.isfinite(loss):
                raise _diverged(f"loss {loss} at step {start // rows + 1} of an epoch")
            loss_sum += loss * weight_sum
        return loss_sum / max(sum(weight_sums), _SMALLEST_WEIGHT_SUM)

    @abc.abstractmethod
    def _set_batch(self, rows: int) -> None:
        """Fix the rows of all steps, or refuse them."""

    @abc.abstractmethod
    def _compute_features(self, x: Inputs, *, is_last: bool) -> list[NDArray[np.generic]]:
        """Return the features of some rows; after the last batch, memory may be given back."""

    @abc.abstractmethod
    def _step(
        self,
        inputs: list[NDArray[np.generic]],
        targets: Targets,
        weights: NDArray[np.float32],
        *,
        is_last: bool,
    ) -> float:
        """Run one step and return the loss before it; after the last, memory may be given back."""

    def _require_sound(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        """Refuse a training that ended badly though all its numbers are finite."""
        del before, after


def _diverged(found: str) -> TrainingError:
    return TrainingError(
        "E-TRAIN-DIVERGED",
        "finite loss and parameters",
        found,
        "lower the learning rate or check the data; no update is sent",
    )
