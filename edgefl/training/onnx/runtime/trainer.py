"""Runs a bundle's training graph step by step on stock onnxruntime."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Evaluation, Inputs, Targets, TrainingData
from edgefl.training.bundle import TRAIN_ONNX, Bundle, read_bundle
from edgefl.training.evaluate import Evaluator
from edgefl.training.kinds import Provider
from edgefl.training.onnx.runtime.features import FeatureMaker
from edgefl.training.onnx.runtime.saturation import GridEnds
from edgefl.training.onnx.runtime.session import open_session
from edgefl.training.onnx.runtime.stepper import Stepper
from edgefl.training.onnx.runtime.version import require_version
from edgefl.training.stepping_trainer import DEFAULT_CACHE_BYTES, SteppingTrainer


class OnnxTrainer(SteppingTrainer):
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
        whole = bundle if isinstance(bundle, Bundle) else read_bundle(bundle)
        require_version(whole.manifest)
        self._threads = threads
        self._optimize = optimize
        session = open_session(
            whole.content(TRAIN_ONNX),
            threads=threads,
            optimize=optimize,
            provider=provider,
            keeps_buffers=True,
        )
        self._stepper = Stepper(session, whole.manifest)
        self._grid_ends = GridEnds(whole)
        self._features: FeatureMaker | None = None
        if whole.manifest.features:
            self._features = FeatureMaker(
                whole, threads=threads, optimize=optimize, provider=provider
            )
        self._evaluator: Evaluator | None = None
        super().__init__(whole, self._stepper, self._features, cache_bytes=feature_cache_bytes)

    def _set_batch(self, rows: int) -> None:
        self._stepper.set_batch(rows)

    def _compute_features(self, x: Inputs, *, is_last: bool) -> list[NDArray[np.generic]]:
        if self._features is None:
            return [x]
        return self._features.compute(x, gives_back=is_last)

    def _step(
        self,
        inputs: list[NDArray[np.generic]],
        targets: Targets,
        weights: NDArray[np.float32],
        *,
        is_last: bool,
    ) -> float:
        return self._stepper.step(inputs, targets, weights, is_last=is_last)

    def _require_sound(self, before: NDArray[np.float32], after: NDArray[np.float32]) -> None:
        self._grid_ends.require_room(before, after)

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
