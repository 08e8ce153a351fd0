"""The demo's task: shipped recordings, studied recipe, and the privacy that goes with them."""

import math
from dataclasses import replace

from broker.task import TaskSpec, default_survivor_floor, least_survivor_floor
from edgefl.training.recipe import SPAR_RECIPE

DEMO_DELTA = 1e-5
DEMO_EPSILON_BUDGET = 2000.0
"""The demo's own written budget. It shows that the mechanism stops; it protects nobody."""


def demo_task(name: str, *, cohort: int, rounds: int, limit_s: float) -> TaskSpec:
    """Return the demo's task for a cohort.

    Args:
        name: Of the task.
        cohort: Devices.
        rounds: Committed rounds to reach.
        limit_s: How long each phase waits for a silent device.
    """
    recipe = SPAR_RECIPE
    floor = default_survivor_floor(cohort, least_survivor_floor(cohort))
    return TaskSpec(
        name=name,
        rounds=rounds,
        cohort=cohort,
        quorum=cohort,
        survivor_floor=floor,
        colluders=min(1, floor - 1),
        clip_norm=recipe.clip_norm,
        noise_multiplier=recipe.noise_multiplier,
        # More rounds than the recipe's get a budget in proportion, so that the demo can finish.
        epsilon_budget=DEMO_EPSILON_BUDGET * max(1, math.ceil(rounds / recipe.rounds)),
        delta=DEMO_DELTA,
        local_epochs=recipe.local_epochs,
        batch_size=recipe.batch_size,
        learning_rate=recipe.lr,
        server_momentum=recipe.server_momentum,
        server_lr=recipe.server_lr,
        check_in_s=limit_s,
        share_keys_s=limit_s,
        masked_input_s=limit_s,
        unmasking_s=limit_s,
        deadlines="fixed",
    )


def against_malicious_gateway(task: TaskSpec) -> TaskSpec:
    """Return the same task for devices that do not trust the gateway.

    One device of the cohort may collude with it, or one in twenty.
    """
    return replace(task, adversary="malicious", corrupt_permille=max(50, 1000 // task.cohort))
