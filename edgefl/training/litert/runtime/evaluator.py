"""Inference with given parameters over TFLite, for bundles without an ONNX program."""

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import Evaluation, TrainingData
from edgefl.training.bundle import Bundle
from edgefl.training.litert.runtime.trainer import LitertTrainer


class LitertEvaluator:
    """Measures any parameters; the files are opened once."""

    def __init__(self, bundle: Bundle, *, threads: int = 1) -> None:
        """Open the files.

        Args:
            bundle: A verified bundle with a TFLite program.
            threads: Threads within an operator.

        Raises:
            TrainingError: The files cannot be run.
            EnvironmentProblem: There is no interpreter that fits.
        """
        self._trainer = LitertTrainer(bundle, threads=threads)

    def evaluate(self, flat_params: NDArray[np.float32], data: TrainingData) -> Evaluation:
        """Measure accuracy and loss.

        Args:
            flat_params: float32 [d], finite.
            data: Rows with targets.

        Raises:
            TrainingError: Parameters that do not fit.
            DataError: Data that do not fit.
        """
        self._trainer.set_params(flat_params)
        return self._trainer.evaluate(data.x, data.y)
