"""From the noisy sum to the next model: mean, momentum, step; post-processing costs no privacy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
    members: int,
    momentum: float,
    server_lr: float,
) -> ModelState:
    """Return the model after one round.

    Args:
        state: The model before it.
        total: float64 [d], sum of the survivors' noised updates.
        members: Devices in the session plan. The denominator is fixed before any update exists, so
            it does not depend on who survives (docs/privacy.md).
        momentum: Share of the last velocity that is kept.
        server_lr: Factor on the velocity.

    Source: FedAvgM, Hsu, Qi and Brown 2019, section 4.
    """
    velocity = momentum * state.velocity.astype(np.float64) + total / members
    parameters = state.parameters.astype(np.float64) + server_lr * velocity
    return ModelState(
        parameters=parameters.astype(np.float32), velocity=velocity.astype(np.float32)
    )
