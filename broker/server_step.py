"""From the noisy sum to the next model: mean, momentum, step; post-processing costs no privacy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import LocalProtocolError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """The global model between rounds.

    Attributes:
        parameters: float32 [d].
        velocity: float32 [d], the momentum's memory.
    """

    parameters: NDArray[np.float32]
    velocity: NDArray[np.float32]


def apply_step(
    state: ModelState,
    total: NDArray[np.float64],
    *,
    denominator: float,
    momentum: float,
    server_lr: float,
) -> ModelState:
    """Return the model after one round.

    Args:
        state: The model before it.
        total: float64 [d], sum of the survivors' noised updates.
        denominator: What the sum is divided by, at least 1: in a plain sum the devices in the
            session plan, or those that coins were expected to bring, fixed before any update exists
            (docs/privacy.md); in a weighted one the sum of the survivors' weights, which comes out
            of the same masked vector.
        momentum: Share of the last velocity that is kept.
        server_lr: Factor on the velocity.

    Raises:
        LocalProtocolError: E-DENOMINATOR, nothing was summed.

    Source: FedAvgM, Hsu, Qi and Brown 2019, section 4.
    """
    if denominator < 1:
        raise LocalProtocolError("E-DENOMINATOR", "a denominator of at least 1", str(denominator))
    velocity = momentum * state.velocity.astype(np.float64) + total / denominator
    parameters = state.parameters.astype(np.float64) + server_lr * velocity
    return ModelState(
        parameters=parameters.astype(np.float32), velocity=velocity.astype(np.float32)
    )
