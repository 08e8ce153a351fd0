"""The comparison trained beside the fleet: all data in one place, no clip, no noise."""

import numpy as np

from edgefl.data.source import load_source
from edgefl.data.spar import held_out
from edgefl.training.bundle import read_bundle
from edgefl.training.central import central_rounds, pool
from edgefl.training.evaluate import Evaluator
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
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
    bundle = read_bundle(compile_bundle(demo_model(SPAR_RECIPE.model_seed)).bundle_bytes)
    data, evaluation = pool([load_source(source) for source in sources]), held_out()
    evaluator = Evaluator(bundle)
    measured = (
        evaluator.evaluate(parameters, evaluation).accuracy
        for parameters in central_rounds(bundle, data, SPAR_RECIPE, rounds=rounds, seed=seed)
    )
    return [accuracy for accuracy in measured if accuracy is not None]


def majority_share() -> float:
    """Return the accuracy of always guessing the held-out people's most frequent class."""
    labels = held_out().y
    return float(np.bincount(labels).max() / labels.size)
