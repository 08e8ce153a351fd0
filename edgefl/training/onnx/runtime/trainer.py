"""Runs a bundle's training graph step by step on stock onnxruntime."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import TrainingError
from edgefl.training.base import Evaluation, Inputs, Targets, TrainingData
from edgefl.training.bundle import TRAIN_ONNX, Bundle, check_flat_params, read_bundle
from edgefl.training.evaluate import Evaluator, split_params
from edgefl.training.fit_checks import (
    check_sample_weight,
    require_input,
    require_settings,
    require_targets,
)
from edgefl.training.kinds import Provider
from edgefl.training.manifest import Manifest
from edgefl.training.onnx import names
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.session import open_session
from edgefl.types import Update

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
    ) -> None:
        """Read and verify the bundle and open its training graph.

        Args:
            bundle: A bundle, its path or its bytes.
            threads: Threads within an operator.
            optimize: False runs the nodes as written; for tests.
            provider: Processor for the training graph; predictions run on the CPU.

        Raises:
            TrainingError: The bundle is damaged or the graph cannot be run.
        """
        self._bundle = bundle if isinstance(bundle, Bundle) else read_bundle(bundle)
        self._threads = threads
        self._optimize = optimize
        session = open_session(
            self._bundle.content(TRAIN_ONNX), threads=threads, optimize=optimize, provider=provider
        )
        self._stepper = _Stepper(session, self._bundle.manifest)
        self._evaluator: Evaluator | None = None
        self._local = self._bundle.initial_local
        self._received = self._bundle.initial_params
        self.set_params(self._bundle.initial_params)

    @property
    def manifest(self) -> Manifest:
        """Return what the graphs expect."""
        return self._bundle.manifest

    @property
    def dimension(self) -> int:
        """Return d, the number of trainable parameters."""
        return self.manifest.dimension

    def set_params(self, flat: NDArray[np.float32]) -> None:
        """Take received parameters; `delta` counts from here.

        Args:
            flat: float32 [d], finite.

        Raises:
            TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
        """
        self._received = check_flat_params(flat, self.dimension).copy()
        self._stepper.load(self._received)

    def params(self) -> NDArray[np.float32]:
        """Return a copy of the present parameters: float32 [d]."""
        return self._stepper.flat()

    def delta(self) -> Update:
        """Return trained minus received parameters.

        Returns:
            float32 [d], finite.

        Raises:
            TrainingError: E-TRAIN-DIVERGED when the parameters are no longer finite.
        """
        delta = self._stepper.flat() - self._received
        if not np.isfinite(delta).all():
            raise _diverged("a parameter that is not finite")
        return delta

    def set_local(self, flat: NDArray[np.float32]) -> None:
        """Take the values of the tensors that stay on the device: float32 [local d], finite.

        Raises:
            TrainingError: E-PARAMS-SHAPE, E-PARAMS-DTYPE or E-PARAMS-NOT-FINITE.
        """
        self._local = check_flat_params(flat, self.manifest.local_dimension).copy()

    def local(self) -> NDArray[np.float32]:
        """Return a copy of the values that stay on the device: float32 [local d]."""
        return self._local.copy()

    def fit(
        self,
        x: Inputs,
        y: Targets,
        *,
        epochs: int,
        batch_size: int,
        lr: float,
        rng: np.random.Generator,
        sample_weight: NDArray[np.float32] | None = None,
        prox_mu: float = 0.0,
        max_gradient_norm: float | None = None,
        example_clip: float | None = None,
    ) -> float:
        """Run the optimiser over shuffled batches; see `Trainer.fit`.

        Raises:
            DataError: The data do not fit the model, or x is not finite.
            TrainingError: E-TRAIN-SETTING, or E-TRAIN-DIVERGED at a loss or parameter that is not
                finite; there is no update to send then.
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
        self._stepper.set_batch(min(batch_size, data.examples), lr)
        loss = math.nan
        for _ in range(epochs):
            loss = self._stepper.run_epoch(data, weights, rng.permutation(data.examples))
        return loss

    def predict(self, x: Inputs) -> NDArray[np.float32]:
        """Return the output of each row, before any softmax or sigmoid: float32 [n, ...]."""
        return self._open_evaluator().predict(self.params(), x, self._local)

    def evaluate(self, x: Inputs, y: Targets) -> Evaluation:
        """Compare predictions with targets; nothing is trained."""
        data = TrainingData(x=x, y=y)
        return self._open_evaluator().evaluate(self.params(), data, self._local)

    def _open_evaluator(self) -> Evaluator:
        # A device that only trains never pays for the second session.
        if self._evaluator is None:
            self._evaluator = Evaluator(
                self._bundle, threads=self._threads, optimize=self._optimize
            )
        return self._evaluator


class _Stepper:
    """Two sets of parameter buffers that take turns as input and output of the step.

    Input and output never share a buffer: nothing orders the last read of a weight (by its layer's
    backward pass) before its update is written.
    """

    def __init__(self, session: onnxruntime.InferenceSession, manifest: Manifest) -> None:
        self._session = session
        self._manifest = manifest
        self._sets = [_allocate(manifest) for _ in range(2)]
        self._current = 0
        self._loss = onnxruntime.OrtValue.ortvalue_from_shape_and_type([], np.float32)
        self._bindings = [self._bind(0, 1), self._bind(1, 0)]
        self._set_batch_buffers(1, 0.0)

    def _bind(self, source: int, target: int) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        for slot in self._manifest.parameters:
            binding.bind_ortvalue_input(slot.name, self._sets[source][slot.name])
            binding.bind_ortvalue_output(names.updated(slot.name), self._sets[target][slot.name])
        binding.bind_ortvalue_output(names.LOSS, self._loss)
        return binding

    def _set_batch_buffers(self, rows: int, lr: float) -> None:
        self._x = np.zeros((rows, *self._manifest.input.shape), np.float32)
        self._y = np.zeros(rows, np.int64)
        self._weight = np.zeros(rows, np.float32)
        self._lr = np.full(1, lr, np.float32)

    def set_batch(self, rows: int, lr: float) -> None:
        """Fix the batch shape: one shape for all steps lets onnxruntime plan its memory once."""
        self._set_batch_buffers(rows, lr)

    def load(self, flat: NDArray[np.float32]) -> None:
        for name, tensor in split_params(flat, self._manifest.parameters).items():
            self._sets[self._current][name].update_inplace(tensor)

    def flat(self) -> NDArray[np.float32]:
        flat = np.empty(self._manifest.dimension, np.float32)
        for slot in self._manifest.parameters:
            tensor = self._sets[self._current][slot.name].numpy()
            flat[slot.offset : slot.offset + slot.size] = tensor.reshape(-1)
        return flat

    def run_epoch(
        self, data: TrainingData, weights: NDArray[np.float32], order: NDArray[np.int64]
    ) -> float:
        rows = len(self._y)
        loss_sum = 0.0
        for start in range(0, len(order), rows):
            chosen = order[start : start + rows]
            weight = weights[chosen]
            loss = self._step(data.x[chosen], data.y[chosen], weight)
            if not math.isfinite(loss):
                raise _diverged(f"loss {loss} at step {start // rows + 1} of an epoch")
            loss_sum += loss * float(weight.sum(dtype=np.float64))
        return loss_sum / max(float(weights.sum(dtype=np.float64)), _SMALLEST_WEIGHT_SUM)

    def _step(self, x: Inputs, y: Targets, weight: NDArray[np.float32]) -> float:
        filled = len(y)
        self._x[:filled], self._x[filled:] = x, 0.0
        self._y[:filled], self._y[filled:] = y, 0
        self._weight[:filled], self._weight[filled:] = weight, 0.0
        binding = self._bindings[self._current]
        binding.bind_cpu_input(self._manifest.input.name, self._x)
        binding.bind_cpu_input(names.TARGET, self._y)
        binding.bind_cpu_input(names.SAMPLE_WEIGHT, self._weight)
        binding.bind_cpu_input(names.LEARNING_RATE, self._lr)
        self._session.run_with_iobinding(binding)
        self._current = 1 - self._current
        return float(self._loss.numpy())


def _allocate(manifest: Manifest) -> dict[str, onnxruntime.OrtValue]:
    # Memory of onnxruntime's own: a buffer made from a numpy array would share the array's memory.
    make = onnxruntime.OrtValue.ortvalue_from_shape_and_type
    return {slot.name: make(list(slot.shape), np.float32) for slot in manifest.parameters}


def _diverged(found: str) -> TrainingError:
    return TrainingError(
        "E-TRAIN-DIVERGED",
        "finite loss and parameters",
        found,
        "lower the learning rate or check the data; no update is sent",
    )
