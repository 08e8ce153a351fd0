"""Runs training steps; the state lives in numpy and goes through the interpreter at each step."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Targets
from edgefl.training.bundle import MODEL_TFLITE
from edgefl.training.litert.format.outline import (
    read_outline,
    require_builtins,
    require_inputs_of_rank,
)
from edgefl.training.litert.names import INFER, TRAIN
from edgefl.training.litert.runtime.fitting import (
    batch_rows_of,
    infer_inputs,
    require_entry,
    require_tensors,
    rounding_inputs,
    tensors,
    train_inputs,
    train_outputs,
)
from edgefl.training.litert.runtime.interpreter import (
    SignatureRunner,
    open_interpreter,
    refusals,
)
from edgefl.training.manifest import Manifest, ParameterSlot
from edgefl.training.onnx import names
from edgefl.training.randomness import Randomness, SmallRandomness

Arrays = Mapping[str, NDArray[np.generic]]


class LitertModel:
    """A bundle's `model.tflite`, checked against its manifest and opened.

    Attributes:
        rows: Rows of every call.
        rounding: Random numbers that a step reads, by name.
        infers_from_input: Whether inference reads the model's input, not the features.
    """

    def __init__(self, content: bytes, manifest: Manifest, *, threads: int) -> None:
        """Check and open the file.

        Args:
            content: The file of a verified bundle.
            manifest: The bundle's manifest.
            threads: Threads within an operator.

        Raises:
            TrainingError: E-TFLITE-DAMAGED, E-TFLITE-OPERATORS, E-TFLITE-RANK, E-TFLITE-SIGNATURE,
                E-GRAPH-REFUSED or E-TRAIN-THREADS.
            EnvironmentProblem: There is no interpreter that fits.
        """
        outline = read_outline(content, name=MODEL_TFLITE)
        require_builtins(outline, name=MODEL_TFLITE)
        require_inputs_of_rank(outline, name=MODEL_TFLITE)
        train = require_entry(outline, TRAIN, file_name=MODEL_TFLITE, subgraph=0)
        infer = require_entry(outline, INFER, file_name=MODEL_TFLITE)
        self.rows = batch_rows_of(train, names.SAMPLE_WEIGHT)
        self.rounding = rounding_inputs(manifest, train)
        wanted = {**train_inputs(manifest, self.rows), **self.rounding}
        require_tensors(train.inputs, wanted, what="inputs of a step")
        require_tensors(train.outputs, train_outputs(manifest, self.rows), what="outputs of a step")
        require_tensors(
            infer.inputs, infer_inputs(manifest, infer, self.rows), what="inputs of inference"
        )
        output = tensors((manifest.output,), self.rows)
        require_tensors(infer.outputs, output, what="outputs of inference")
        self.infers_from_input = manifest.input.name in infer.inputs
        self._train = train
        self._manifest = manifest
        self._content = content
        self._threads = threads
        self._interpreter = open_interpreter(content, threads=threads, name=MODEL_TFLITE)
        with refusals(MODEL_TFLITE):
            self._interpreter.allocate_tensors()
        self._infer: SignatureRunner | None = None

    def step(self, feed: Arrays) -> dict[str, NDArray[np.generic]]:
        """Run one training step and return copies of its outputs."""
        # A plain call of the first subgraph: a call by name would plan its memory at each step.
        indices = self._train.indices
        with refusals(MODEL_TFLITE):
            for name, value in feed.items():
                self._interpreter.set_tensor(indices[name], value)
            self._interpreter.invoke()
            return {
                name: self._interpreter.get_tensor(indices[name]) for name in self._train.outputs
            }

    def infer(self, feed: Arrays) -> NDArray[np.generic]:
        """Run inference and return a copy of the output."""
        with refusals(MODEL_TFLITE):
            if self._infer is None:
                # An interpreter of its own: after a call by name, plain calls are refused. A device
                # that only trains never pays for it.
                interpreter = open_interpreter(
                    self._content, threads=self._threads, name=MODEL_TFLITE
                )
                self._infer = interpreter.get_signature_runner(INFER)
            return self._infer(**feed)[self._manifest.output.name]


class Stepper:
    """The state of a training, and its steps.

    The state is one flat vector: averaged tensors, local tensors, then for each kind of optimiser
    state the same two groups again.

    Args:
        model: An open file.
        manifest: The bundle's manifest.
    """

    def __init__(self, model: LitertModel, manifest: Manifest) -> None:
        """Allocate the state; all values are zero."""
        self._model = model
        self._manifest = manifest
        self._trained_size = manifest.dimension + manifest.local_dimension
        size = self._trained_size * (1 + len(manifest.optimizer.states))
        self._state = np.zeros(size, np.float32)
        self._received = np.zeros(manifest.dimension, np.float32)
        self._steps = 0
        self._feed: dict[str, NDArray[np.generic]] = {}
        self._results: dict[str, NDArray[np.float32]] = {}
        self._rng: Randomness = SmallRandomness(0)
        self._place_state()
        self._place_batch()

    @property
    def averaged(self) -> NDArray[np.float32]:
        """Return a view of the averaged tensors: float32 [d]; steps change it."""
        return self._state[: self._manifest.dimension]

    @property
    def local(self) -> NDArray[np.float32]:
        """Return a view of the local tensors: float32 [local d]; steps change it."""
        return self._state[self._manifest.dimension : self._trained_size]

    @property
    def received(self) -> NDArray[np.float32]:
        """Return a view of the averaged tensors as they were received: float32 [d]."""
        return self._received

    @property
    def trained(self) -> dict[str, NDArray[np.float32]]:
        """Return views of all trained tensors by name, as inference reads them."""
        slots = (*self._manifest.parameters, *self._manifest.local)
        offsets = [
            *(slot.offset for slot in self._manifest.parameters),
            *(self._manifest.dimension + slot.offset for slot in self._manifest.local),
        ]
        return {
            slot.name: _tensor(self._state[offset:], slot)
            for slot, offset in zip(slots, offsets, strict=True)
        }

    def receive(self, flat: NDArray[np.float32]) -> None:
        """Start from received tensors, with optimiser states of zero."""
        self._received[:] = flat
        self._state[: len(flat)] = flat
        self._state[self._trained_size :] = 0.0
        self._steps = 0

    def set_local(self, flat: NDArray[np.float32]) -> None:
        """Replace the local tensors."""
        self.local[:] = flat

    def set_rng(self, rng: Randomness) -> None:
        """Take the source of the numbers that weights are rounded onto their grid with."""
        self._rng = rng

    def set_rates(
        self,
        *,
        lr: float,
        prox_mu: float,
        max_gradient_norm: float | None,
        example_clip: float | None,
    ) -> None:
        """Set the numbers that all steps share; None bounds nothing."""
        bound = math.inf if max_gradient_norm is None else max_gradient_norm
        numbers = {
            names.LEARNING_RATE: lr,
            names.PROX_MU: prox_mu,
            names.MAX_GRADIENT_NORM: bound,
            names.STEP: 0.0,
            names.EXAMPLE_CLIP: math.inf if example_clip is None else example_clip,
        }
        for name in numbers.keys() & self._wanted.keys():
            self._feed[name] = np.full(1, numbers[name], np.float32)

    def step(
        self,
        data: Sequence[NDArray[np.generic]],
        targets: Targets,
        weights: NDArray[np.float32],
    ) -> float:
        """Run one step; what is missing to the file's rows is padded with rows of weight 0.

        Args:
            data: The input, or each feature: [m, ...], m at most the file's rows.
            targets: [m, ...].
            weights: float32 [m].

        Returns:
            The loss before the step.
        """
        filled = len(weights)
        for name, source in zip(self._batch, [*data, targets, weights], strict=True):
            buffer = self._feed[name]
            buffer[:filled] = source
            buffer[filled:] = 0
        self._steps += 1
        if names.STEP in self._feed:
            self._feed[names.STEP][0] = self._steps
        for name in self._model.rounding:
            self._feed[name][...] = self._rng.random(self._feed[name].shape, np.float32)
        results = self._model.step(self._feed)
        for name, place in self._results.items():
            place[...] = results[name].reshape(place.shape)
        return float(results[names.LOSS].reshape(-1)[0])

    def _place_state(self) -> None:
        """Let each input and output of a step be a view of its part of the state."""
        self._wanted = train_inputs(self._manifest, self._model.rows)
        groups = [(self._manifest.parameters, 0), (self._manifest.local, self._manifest.dimension)]
        kinds = [None, *self._manifest.optimizer.states]
        for index, kind in enumerate(kinds):
            for slots, start in groups:
                for slot in slots:
                    view = _tensor(
                        self._state[index * self._trained_size + start + slot.offset :], slot
                    )
                    before = slot.name if kind is None else names.state(kind, slot.name)
                    after = (
                        names.updated(slot.name)
                        if kind is None
                        else names.new_state(kind, slot.name)
                    )
                    self._feed[before] = view
                    self._results[after] = view
        for slot in self._manifest.parameters:
            self._feed[names.received(slot.name)] = _tensor(self._received[slot.offset :], slot)

    def _place_batch(self) -> None:
        specs = self._manifest.features or (self._manifest.input,)
        self._batch = [*(spec.name for spec in specs), names.TARGET, names.SAMPLE_WEIGHT]
        for name in self._batch:
            shape, element_type = self._wanted[name]
            self._feed[name] = np.zeros(shape, element_type.value)
        for name, (shape, _) in self._model.rounding.items():
            self._feed[name] = np.zeros(shape or (1,), np.float32)
        self.set_rates(lr=0.0, prox_mu=0.0, max_gradient_norm=None, example_clip=None)


def _tensor(flat: NDArray[np.float32], slot: ParameterSlot) -> NDArray[np.float32]:
    """Return the first values of a vector in a slot's shape; single numbers have one axis."""
    return flat[: slot.size].reshape(slot.shape or (1,))
