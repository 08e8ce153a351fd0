"""One device's part of a round: received parameters in, trained minus received out."""

import numpy as np

from edgefl.errors import TrainingError
from edgefl.training.base import Trainer, TrainingData
from edgefl.training.randomness import Randomness
from edgefl.types import Update


def parse_parameters(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the parameters that a gateway hands out: little-endian float32, flat.

    Raises:
        TrainingError: E-PARAMS-SHAPE for a part of a number.
    """
    if len(content) % 4:
        raise TrainingError(
            "E-PARAMS-SHAPE",
            "whole float32 numbers of 4 bytes",
            f"{len(content)} bytes",
            "take the parameters and the bundle of one task",
        )
    return np.frombuffer(content, dtype="<f4").astype(np.float32)


def local_update(
    trainer: Trainer,
    parameters: bytes,
    data: TrainingData,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    rng: Randomness,
    prox_mu: float = 0.0,
    max_gradient_norm: float = 0.0,
    example_clip: float = 0.0,
) -> Update:
    """Train from the received parameters.

    Args:
        trainer: Any backend.
        parameters: Little-endian float32 [d].
        data: The device's own examples.
        epochs: Passes over the data.
        batch_size: Rows per step.
        learning_rate: Of the device.
        rng: Shuffles the rows; it needs no secrecy.
        prox_mu: FedProx weight; 0 for none.
        max_gradient_norm: L2 bound of a step's gradient; 0 for none.
        example_clip: L2 bound of each example's gradient; 0 for none.

    Returns:
        float32 [d], not yet clipped.

    Raises:
        TrainingError: The parameters do not fit, or training diverged.
        DataError: The data do not fit the model.
    """
    trainer.set_params(parse_parameters(parameters))
    trainer.fit(
        data.x,
        data.y,
        epochs=epochs,
        batch_size=batch_size,
        lr=learning_rate,
        rng=rng,
        prox_mu=prox_mu,
        max_gradient_norm=max_gradient_norm or None,
        example_clip=example_clip or None,
    )
    return trainer.delta()
