"""The model's step: the sum over its denominator, momentum, learning rate."""

import numpy as np
import pytest

from broker.server_step import ModelState, apply_step
from edgefl.errors import LocalProtocolError

START = ModelState(
    parameters=np.array([1.0, 2.0], dtype=np.float32),
    velocity=np.array([0.5, 0.0], dtype=np.float32),
)


def test_step_is_the_mean_with_momentum() -> None:
    total = np.array([4.0, -8.0])
    state = apply_step(START, total, denominator=4, momentum=0.5, server_lr=2.0)
    assert state.velocity.tolist() == [1.25, -2.0]
    assert state.parameters.tolist() == [3.5, -2.0]


def test_weighted_mean_divides_by_the_summed_weight() -> None:
    """Two devices with 1 and 3 examples: the mean of all examples, not of the devices."""
    updates, weights = np.array([[4.0, 0.0], [0.0, 4.0]]), np.array([1, 3])
    total = (updates * weights[:, None]).sum(axis=0)
    state = apply_step(START, total, denominator=int(weights.sum()), momentum=0.0, server_lr=1.0)
    assert (state.parameters - START.parameters).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("denominator", [0, -1])
def test_nothing_summed_makes_no_step(denominator: int) -> None:
    with pytest.raises(LocalProtocolError, match="E-DENOMINATOR"):
        apply_step(START, np.zeros(2), denominator=denominator, momentum=0.0, server_lr=1.0)
