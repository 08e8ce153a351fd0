"""The demo's training recipe: settings chosen by the study in tests/benchmarks/federated_gap.py."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of one federated task, in the order in which they act.

    The aggregator's step, with m = sum of the survivors' clipped, noised updates / devices of the
    cohort: `velocity = server_momentum * velocity + m; params = params + server_lr * velocity`.

    Attributes:
        model_seed: Seed of the first parameters.
        rounds: Number of rounds.
        local_epochs: Passes of one device over its data within a round.
        batch_size: Rows per SGD step.
        lr: Learning rate on the device.
        clip_norm: L2 bound C of one device's update.
        noise_multiplier: z: noise std on the sum / C, at the survivor floor.
        server_momentum: Share of the last velocity that is kept.
        server_lr: Factor on the velocity.
        central_lr: Learning rate of the central comparison, the best of four on the same pairs, so
            that it is no weaker than it need be.
    """

    model_seed: int
    rounds: int
    local_epochs: int
    batch_size: int
    lr: float
    clip_norm: float
    noise_multiplier: float
    server_momentum: float
    server_lr: float
    central_lr: float


SPAR_RECIPE: Final = Recipe(
    model_seed=1,
    rounds=20,
    local_epochs=4,
    batch_size=16,
    lr=0.2,
    clip_norm=1.0,
    noise_multiplier=0.1,
    server_momentum=0.6,
    server_lr=1.5,
    central_lr=0.1,
)
"""Chosen on the pairs (1, 2), (3, 4), (5, 6) and (7, 8) of left-out people, never on 9 and 10."""
