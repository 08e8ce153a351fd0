"""Runs training steps; tensors and optimiser states stay in memory that onnxruntime shares."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Targets
from edgefl.training.bundle import TRAIN_ONNX
from edgefl.training.kinds import Optimizer
from edgefl.training.manifest import Manifest, ParameterSlot, TensorSpec
from edgefl.training.onnx import names
from edgefl.training.onnx.runtime.quiet import onnxruntime
from edgefl.training.onnx.runtime.session import give_back_buffers, graph_failed
from edgefl.training.randomness import Randomness, SmallRandomness

_State = NDArray[np.float32]


class Stepper:
    """Two sets of buffers that take turns as input and output of the step.

    Input and output never share a buffer: nothing orders the last read of a weight (by its layer's
    backward pass) before its update is written. Each set is one flat vector, so that the whole
    state is copied at once.

    Attributes:
        rows: Rows of a batch.

    Args:
        session: Of the bundle's training graph.
        manifest: What the graph expects.
    """

    def __init__(self, session: onnxruntime.InferenceSession, manifest: Manifest) -> None:
        """Allocate two sets; all values are zero.

        Raises:
            TrainingError: E-GRAPH-FAILED when the graph lacks an input or output of the manifest.
        """
        self._session = session
        self._manifest = manifest
        self._data_specs: Sequence[TensorSpec] = manifest.features or (manifest.input,)
        self._dimension = manifest.dimension
        self._trained_size = manifest.dimension + manifest.local_dimension
        size = self._trained_size * (1 + len(manifest.optimizer.states))
        self._sets = [np.zeros(size, np.float32) for _ in range(2)]
        self._received = np.zeros(self._dimension, np.float32)
        self._loss = np.zeros((), np.float32)
        self._numbers = {
            names.LEARNING_RATE: np.zeros(1, np.float32),
            names.PROX_MU: np.zeros(1, np.float32),
            names.MAX_GRADIENT_NORM: np.full(1, np.inf, np.float32),
        }
        if manifest.optimizer is Optimizer.ADAMW:
            self._numbers[names.STEP] = np.zeros(1, np.float32)
        if manifest.clips_examples:
            self._numbers[names.EXAMPLE_CLIP] = np.full(1, np.inf, np.float32)
        prefix = names.rounding("")
        self._rounding = {
            value.name: np.zeros(value.shape, np.float32)
            for value in session.get_inputs()
            if value.name.startswith(prefix)
        }
        self._rng: Randomness = SmallRandomness(0)
        self._giving_back = give_back_buffers()
        self._current = 0
        self._steps = 0
        try:
            self._bindings = [self._bind(0, 1), self._bind(1, 0)]
        except Exception as error:  # names and types that the graph lacks
            raise graph_failed(TRAIN_ONNX, error) from error
        self._buffers: dict[str, NDArray[np.generic]] = {}
        self.rows = 0
        self.set_batch(1)

    @property
    def _now(self) -> _State:
        return self._sets[self._current]

    @property
    def averaged(self) -> _State:
        """Return a view of the averaged tensors: float32 [d]; steps change it."""
        return self._now[: self._dimension]

    @property
    def local(self) -> _State:
        """Return a view of the local tensors: float32 [local d]; steps change it."""
        return self._now[self._dimension : self._trained_size]

    @property
    def received(self) -> _State:
        """Return a view of the averaged tensors as they were received: float32 [d]."""
        return self._received

    def receive(self, flat: _State) -> None:
        """Start from received tensors, with optimiser states of zero."""
        self._received[:] = flat
        self._now[: self._dimension] = flat
        self._now[self._trained_size :] = 0.0
        self._steps = 0

    def set_local(self, flat: _State) -> None:
        """Replace the local tensors."""
        self._now[self._dimension : self._trained_size] = flat

    def set_rates(
        self,
        *,
        lr: float,
        prox_mu: float,
        max_gradient_norm: float | None,
        example_clip: float | None,
    ) -> None:
        """Set the numbers that all steps share; None bounds nothing."""
        self._numbers[names.LEARNING_RATE][0] = lr
        self._numbers[names.PROX_MU][0] = prox_mu
        bound = math.inf if max_gradient_norm is None else max_gradient_norm
        self._numbers[names.MAX_GRADIENT_NORM][0] = bound
        if example_clip is not None:
            self._numbers[names.EXAMPLE_CLIP][0] = example_clip

    def set_rng(self, rng: Randomness) -> None:
        """Take the source of the numbers that round weights onto their grid, if steps do that."""
        self._rng = rng

    def set_batch(self, rows: int) -> None:
        """Fix the rows of all steps: one shape lets onnxruntime plan its memory once."""
        if rows == self.rows:
            return
        self.rows = rows
        loss = self._manifest.loss
        output = self._manifest.output
        self._buffers = {
            spec.name: np.zeros((rows, *spec.shape), spec.element_type.value)
            for spec in self._data_specs
        }
        self._buffers[names.TARGET] = (
            np.zeros(rows, np.int64)
            if loss.takes_labels
            else np.zeros((rows, *output.shape), np.float32)
        )
        self._buffers[names.SAMPLE_WEIGHT] = np.zeros(rows, np.float32)
        for binding in self._bindings:
            for name, buffer in self._buffers.items():
                try:
                    binding.bind_ortvalue_input(name, _shared(buffer))
                except Exception as error:  # a name or type that the graph lacks
                    raise graph_failed(TRAIN_ONNX, error) from error

    def step(
        self,
        data: Sequence[NDArray[np.generic]],
        targets: Targets,
        weights: NDArray[np.float32],
        *,
        is_last: bool = False,
    ) -> float:
        """Run one step; what is missing to the batch's rows is padded with rows of weight 0.

        Args:
            data: The input, or each feature: [m, ...], m at most the batch's rows.
            targets: [m, ...].
            weights: float32 [m].
            is_last: Whether the memory that steps work in is freed after this one.

        Returns:
            The loss before the step.

        Raises:
            TrainingError: E-GRAPH-FAILED.
        """
        filled = len(weights)
        sources = [*data, targets, weights]
        for source, buffer in zip(sources, self._buffers.values(), strict=True):
            if filled == self.rows:
                buffer[...] = source
            else:
                buffer[:filled] = source
                buffer[filled:] = 0
        self._steps += 1
        if names.STEP in self._numbers:
            self._numbers[names.STEP][0] = self._steps
        for numbers in self._rounding.values():
            numbers[...] = self._rng.random(numbers.shape, np.float32)
        try:
            self._session.run_with_iobinding(
                self._bindings[self._current], self._giving_back if is_last else None
            )
        except Exception as error:  # its exception types share no base
            raise graph_failed(TRAIN_ONNX, error) from error
        self._current = 1 - self._current
        return float(self._loss)

    def _bind(self, source: int, target: int) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        before, after = self._sets[source], self._sets[target]
        offset = 0
        for slots, size in self._groups():
            for slot in slots:
                binding.bind_ortvalue_input(slot.name, _tensor(before[offset:], slot))
                binding.bind_ortvalue_output(
                    names.updated(slot.name), _tensor(after[offset:], slot)
                )
            offset += size
        for kind in self._manifest.optimizer.states:
            for slots, size in self._groups():
                for slot in slots:
                    binding.bind_ortvalue_input(
                        names.state(kind, slot.name), _tensor(before[offset:], slot)
                    )
                    binding.bind_ortvalue_output(
                        names.new_state(kind, slot.name), _tensor(after[offset:], slot)
                    )
                offset += size
        for slot in self._manifest.parameters:
            binding.bind_ortvalue_input(names.received(slot.name), _tensor(self._received, slot))
        for name, number in {**self._numbers, **self._rounding}.items():
            binding.bind_ortvalue_input(name, _shared(number))
        binding.bind_ortvalue_output(names.LOSS, _shared(self._loss))
        return binding

    def _groups(self) -> list[tuple[tuple[ParameterSlot, ...], int]]:
        manifest = self._manifest
        return [
            (manifest.parameters, manifest.dimension),
            (manifest.local, manifest.local_dimension),
        ]


def _tensor(flat: _State, slot: ParameterSlot) -> onnxruntime.OrtValue:
    return _shared(flat[slot.offset : slot.offset + slot.size].reshape(slot.shape))


def _shared(array: NDArray[np.generic]) -> onnxruntime.OrtValue:
    """Return a value that lives in the array's own memory."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)
