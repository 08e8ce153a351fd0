"""How far federated training stays behind central training, over five pairs of left-out people.

    python -m tests.benchmarks.federated_gap [--seeds 3] [--seed 0]

For each pair of people, the 16 devices of the other eight train the demo's model for the recipe's
rounds, with int8 in mind; so does one trainer with their pooled data and as many epochs, in plain
float32. Both are measured on the pair, the devices' model as float32 and as int8.

It is a plain simulation: float updates, clipped, with Gaussian noise of the recipe's std on their
sum, and 10 to 25 % of the devices missing from every round. The demo does the same with masks,
integers and real processes. Nothing is secret here and every number follows from the seed.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefl.data import Arm, device_shard
from edgefl.data.spar import CLASSES, persons
from edgefl.training.base import TrainingData
from edgefl.training.bundle import Bundle, read_bundle
from edgefl.training.central import central_rounds, pool
from edgefl.training.evaluate import Evaluator
from edgefl.training.int8_evaluate import evaluate_int8
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_bundle, demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.recipe import SPAR_RECIPE, Recipe

PAIRS = ((1, 2), (3, 4), (5, 6), (7, 8), (9, 10))
DEMO_PAIR = (9, 10)
"""Left out of every choice of a setting; the other four pairs chose the recipe."""

SURVIVOR_FLOOR = 10
ASSUMED_COLLUDERS = 1
DROPOUT_SHARE = (0.10, 0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One pair and seed.

    Attributes:
        federated: Accuracy after each round, float32.
        int8: Accuracy of the last round's int8 model.
        central: Accuracy after the last epoch.
        majority: Share of the most frequent class.
        clipped_share: Share of updates longer than the clip norm.
    """

    federated: NDArray[np.float64]
    int8: float
    central: float
    majority: float
    clipped_share: float


def compare(pair: tuple[int, int], recipe: Recipe, *, seed: int) -> Comparison:
    """Train both ways without the pair and measure on it."""
    bundle = read_bundle(demo_bundle(recipe.model_seed + seed))
    plain = read_bundle(compile_bundle(demo_model(recipe.model_seed + seed)).bundle_bytes)
    shards = [
        device_shard(person, arm) for person in range(1, 11) if person not in pair for arm in Arm
    ]
    left_out = persons(pair)
    federated, params, clipped_share = train_federated(bundle, shards, left_out, recipe, seed=seed)
    *_, central = central_rounds(plain, pool(shards), recipe, rounds=recipe.rounds, seed=seed)
    return Comparison(
        federated=federated,
        int8=evaluate_int8(bundle, params, left_out).accuracy or 0.0,
        central=Evaluator(plain).evaluate(central, left_out).accuracy,
        majority=float(np.bincount(left_out.y, minlength=CLASSES).max() / left_out.examples),
        clipped_share=clipped_share,
    )


def train_federated(
    bundle: Bundle,
    shards: list[TrainingData],
    left_out: TrainingData,
    recipe: Recipe,
    *,
    seed: int,
) -> tuple[NDArray[np.float64], NDArray[np.float32], float]:
    """Return the accuracy after each round, the last parameters, the share of clipped updates."""
    rng = np.random.default_rng([seed, len(shards)])
    trainer, evaluator = OnnxTrainer(bundle), Evaluator(bundle)
    params = bundle.initial_params.astype(np.float64)
    velocity = np.zeros_like(params)
    accuracies, norms = [], []
    for _ in range(recipe.rounds):
        survivors = draw_survivors(rng, len(shards))
        total = np.zeros_like(params)
        for index in survivors:
            trainer.set_params(params.astype(np.float32))
            trainer.fit(
                shards[index].x,
                shards[index].y,
                epochs=recipe.local_epochs,
                batch_size=recipe.batch_size,
                lr=recipe.lr,
                rng=rng,
            )
            update = trainer.delta().astype(np.float64)
            norms.append(np.linalg.norm(update))
            total += update * min(1.0, recipe.clip_norm / norms[-1])
        total += rng.normal(0.0, noise_std(recipe, len(survivors)), len(params))
        velocity = recipe.server_momentum * velocity + total / len(shards)
        params = params + recipe.server_lr * velocity
        accuracies.append(evaluator.evaluate(params.astype(np.float32), left_out).accuracy)
    clipped_share = float(np.mean(np.array(norms) > recipe.clip_norm))
    return np.array(accuracies), params.astype(np.float32), clipped_share


def draw_survivors(rng: np.random.Generator, devices: int) -> NDArray[np.int64]:
    """Draw a round's survivors, at least the survivor floor."""
    while True:
        alive = rng.random(devices) >= rng.uniform(*DROPOUT_SHARE)
        if alive.sum() >= SURVIVOR_FLOOR:
            return np.flatnonzero(alive)


def noise_std(recipe: Recipe, survivors: int) -> float:
    """Return the std on the sum: one share of z C / sqrt(n_min) from each survivor."""
    promised = SURVIVOR_FLOOR - ASSUMED_COLLUDERS
    return recipe.noise_multiplier * recipe.clip_norm * float(np.sqrt(survivors / promised))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="runs per pair")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    options = parser.parse_args()
    started = time.perf_counter()
    print(f"{SPAR_RECIPE}\n")
    print("left out  central  federated  (least of seeds)  int8   gap    majority  clipped")
    gaps = []
    for pair in PAIRS:
        runs = [
            compare(pair, SPAR_RECIPE, seed=options.seed + index) for index in range(options.seeds)
        ]
        central = np.mean([run.central for run in runs])
        int8 = np.mean([run.int8 for run in runs])
        finals = [run.federated[-1] for run in runs]
        gaps.append(central - np.mean(finals))
        print(
            f"{pair!s:9} {central:.3f}    {np.mean(finals):.3f}      {min(finals):.3f}"
            f"             {int8:.3f}  {100 * gaps[-1]:+.1f}   {runs[0].majority:.3f}"
            f"     {np.mean([run.clipped_share for run in runs]):.0%}",
            flush=True,
        )
    print(f"\nmean gap over the five pairs: {100 * np.mean(gaps):+.1f} points")
    print(f"{options.seeds} seeds, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
