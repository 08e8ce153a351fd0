"""The central baseline: the same model, steps and budget, with all devices' data in one place."""

import numpy as np
from numpy.typing import NDArray

from edgefl.training.base import TrainingData
from edgefl.training.bundle import Bundle
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.recipe import Recipe


def pool(shards: list[TrainingData]) -> TrainingData:
    """Return the rows of all shards as one set.

    Args:
        shards: At least one, with rows of one shape.
    """
    return TrainingData(
        x=np.concatenate([shard.x for shard in shards]),
        y=np.concatenate([shard.y for shard in shards]),
    )


def central_epochs(recipe: Recipe) -> int:
    """Return the passes over the data that a device makes when it drops out of no round."""
    return recipe.rounds * recipe.local_epochs


def train_central(
    bundle: Bundle, data: TrainingData, recipe: Recipe, *, seed: int
) -> NDArray[np.float32]:
    """Train on pooled data with the recipe's batch size and central learning rate.

    Nothing is clipped and no noise is added: this is what is given up for keeping data on the
    devices.

    Args:
        bundle: The model, from its first parameters.
        data: Rows of all training devices.
        recipe: The federated recipe it is compared with.
        seed: Seed of the shuffle.

    Returns:
        float32 [d].

    Raises:
        TrainingError: Training diverged.
        DataError: The data do not fit the model.
    """
    trainer = OnnxTrainer(bundle)
    trainer.fit(
        data.x,
        data.y,
        epochs=central_epochs(recipe),
        batch_size=recipe.batch_size,
        lr=recipe.central_lr,
        rng=np.random.default_rng(seed),
    )
    return trainer.params()
