"""The central baseline: the same model, steps and budget, with all devices' data in one place."""

from collections.abc import Iterator

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


def central_rounds(
    bundle: Bundle, data: TrainingData, recipe: Recipe, *, rounds: int, seed: int
) -> Iterator[NDArray[np.float32]]:
    """Train on pooled data with the recipe's batch size and central learning rate.

    Nothing is clipped and no noise is added: this is what is given up for keeping data on the
    devices.

    Args:
        bundle: The model, from its first parameters.
        data: Rows of all training devices.
        recipe: The federated recipe it is compared with.
        rounds: Rounds of the fleet.
        seed: Seed of the shuffle.

    Yields:
        float32 [d], each time after as many passes over the data as a device makes in a round.

    Raises:
        TrainingError: Training diverged.
        DataError: The data do not fit the model.
    """
    trainer = OnnxTrainer(bundle)
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        trainer.fit(
            data.x,
            data.y,
            epochs=recipe.local_epochs,
            batch_size=recipe.batch_size,
            lr=recipe.central_lr,
            rng=rng,
        )
        yield trainer.params()
