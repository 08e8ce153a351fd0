"""The demo's scenario for any number of boards, made from the shipped recordings of real people."""

from dataclasses import replace

import numpy as np

from broker.demo_task import demo_task
from edgefl.data.spar import TRAINING_PERSONS, Arm, device_shard, held_out
from edgefl.protocol.plan import SessionPlan
from edgefl.training.base import TrainingData
from edgefl.training.bundle import read_bundle
from edgefl.training.local_update import local_update
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from edgefl.training.recipe import SPAR_RECIPE
from edgefl.types import Update
from firmware_sim.fleet import Scenario
from firmware_sim.network import LinkQuality

_CHANNELS = 6
_GAIN_SPREAD = 0.1
_OFFSET_SPREAD = 0.05


def virtual_shards(devices: int, seed: int) -> dict[str, TrainingData]:
    """Give each board the recordings of one person and arm.

    The first 16 boards hold the real shards. Every further board holds a copy of one of them seen
    by a sensor of its own: a fixed random gain (10 %) and offset (0.05) per channel.

    Privacy: with more boards than shards, the guarantee covers a board, not the person behind
    several of them.
    """
    shards = [
        device_shard(person, arm) for person in TRAINING_PERSONS for arm in (Arm.LEFT, Arm.RIGHT)
    ]
    rng = np.random.default_rng(seed)
    boards: dict[str, TrainingData] = {}
    for index in range(devices):
        shard = shards[index % len(shards)]
        if index >= len(shards):
            gain = 1 + _GAIN_SPREAD * rng.standard_normal(_CHANNELS).astype(np.float32)
            offset = _OFFSET_SPREAD * rng.standard_normal(_CHANNELS).astype(np.float32)
            shard = TrainingData(x=(shard.x * gain + offset).astype(np.float32), y=shard.y)
        boards[f"board-{index:04d}"] = shard
    return boards


def spar_scenario(
    *,
    devices: int,
    rounds: int,
    seed: int,
    deaths_per_device_hour: float = 60.0,
    loss: float = 0.0,
    limit_s: float = 30.0,
    mode: str = "secagg",
) -> Scenario:
    """Return the scenario.

    Args:
        devices: Boards, 3 or more.
        rounds: Committed rounds to reach.
        seed: Everything random follows from it.
        deaths_per_device_hour: How often a board loses power for no reason of its own.
        loss: Chance that one transmission is lost; the link sends it again.
        limit_s: How long each phase waits for a silent board, in virtual seconds.
        mode: "secagg", or the experimental "one-upload", which the boards' owners accept then.
    """
    bundle = compile_bundle(demo_model(SPAR_RECIPE.model_seed)).bundle_bytes
    shards = virtual_shards(devices, seed)
    positions = {name: index for index, name in enumerate(sorted(shards))}
    # One session serves all boards: parameters are set anew for each, so they share nothing else.
    trainer = OnnxTrainer(read_bundle(bundle))

    def train(device: str, plan: SessionPlan, bundle: bytes, parameters: bytes) -> Update:
        del bundle
        training = plan.training
        stream = [seed, plan.attempt, positions[device]]
        return local_update(
            trainer,
            parameters,
            shards[device],
            epochs=training.local_epochs,
            batch_size=training.batch_size,
            learning_rate=training.learning_rate,
            rng=np.random.default_rng(stream),
        )

    task = demo_task("simulated", cohort=devices, rounds=rounds, limit_s=limit_s)
    # Boards die all the time: a quorum of all of them might never be online at once.
    task = replace(task, quorum=task.survivor_floor, mode=mode)
    return Scenario(
        task=task,
        bundle=bundle,
        examples={name: shard.examples for name, shard in shards.items()},
        train=train,
        evaluation=held_out(),
        max_epsilon=task.epsilon_budget,
        seed=seed,
        deaths_per_device_hour=deaths_per_device_hour,
        link=LinkQuality(loss=loss),
        allows_experimental=mode != "secagg",
    )
