"""The comparison trained beside the fleet: all data in one place, no clip, no noise."""

import numpy as np

from edgefl.data.source import load_source
from edgefl.data.spar import held_out
from edgefl.training.bundle import read_bundle
from edgefl.training.central import pool
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.recipe import SPAR_RECIPE


def central_accuracies(sources: list[str], rounds: int, seed: int) -> list[float]:
    """Train centrally with the fleet's model, data, preprocessing and budget.

    Args:
        sources: Data sources of the fleet's devices.
        rounds: Rounds of the fleet.
        seed: Seed of the shuffle.

    Returns:
        Accuracy on the held-out people after as many passes over the data as the fleet makes in
        each round.
    """
    recipe = SPAR_RECIPE
    trainer = OnnxTrainer(read_bundle(compile_bundle(demo_model(recipe.model_seed)).bundle_bytes))
    data, evaluation = pool([load_source(source) for source in sources]), held_out()
    rng = np.random.default_rng(seed)
    accuracies = []
    for _ in range(rounds):
        trainer.fit(
            data.x,
            data.y,
            epochs=recipe.local_epochs,
            batch_size=recipe.batch_size,
            lr=recipe.central_lr,
            rng=rng,
        )
        accuracies.append(trainer.evaluate(evaluation.x, evaluation.y).accuracy)
    return accuracies


def majority_share() -> float:
    """Return the accuracy of always guessing the held-out people's most frequent class."""
    labels = held_out().y
    return float(np.bincount(labels).max() / labels.size)
