"""One model from the models of several gateways, each of which trained its own shard of a fleet.

The mean is weighted by the tasks' cohorts, which are fixed before any data is seen, so the weights
tell nothing. After one round with full cohorts and plain averaging it equals, but for the rounding
of float32, the model of one gateway with all devices: each shard's step is its sum divided by its
cohort. After more rounds it is an average of models that went apart, as federated averaging is.

Privacy: it reads released models only, so it costs nothing beyond what the shards' ledgers hold.
Each device is in one shard, and its epsilon is that shard's (parallel composition): the noise of a
shard must hide a device among that shard's survivors alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from broker.kept_model import read_kept_model
from broker.task_folder import BUNDLE, SUMMARY, load_spec, result_folder
from edgefl.errors import ConfigError
from edgefl.training.bundle import Bundle, check_flat_params, pack_bundle, read_bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """What one shard's gateway has made of a task.

    Attributes:
        state_dir: The gateway's folder.
        bundle: What the task began with.
        parameters: float32 [d], the model after the last round.
        cohort: Devices in one round, at most; the weight.
        rounds: Committed so far.
    """

    state_dir: Path
    bundle: Bundle
    parameters: NDArray[np.float32]
    cohort: int
    rounds: int


def read_shard(state_dir: Path, task: str) -> ShardResult:
    """Read what a shard has made of a task that has ended.

    Raises:
        ConfigError: E-NO-RESULT: there is no such task, or it has not committed all its rounds.
        StorageError: Its parameters cannot be read.
    """
    folder = result_folder(state_dir, task)
    if not (folder / SUMMARY).exists():
        raise ConfigError("E-NO-RESULT", f"a committed round of task {task!r}", f"no {folder}")
    spec = load_spec(state_dir, task)
    loaded, summary = read_kept_model(state_dir, task)
    rounds = summary.get("rounds_committed")
    if rounds != spec.rounds:
        found = f"{rounds} in {state_dir}"
        raise ConfigError("E-NO-RESULT", f"all {spec.rounds} rounds of the task", found, "wait")
    bundle = read_bundle(folder.parent / BUNDLE)
    parameters = check_flat_params(loaded, bundle.manifest.dimension)
    return ShardResult(
        state_dir=state_dir,
        bundle=bundle,
        parameters=parameters,
        cohort=spec.cohort,
        rounds=spec.rounds,
    )


def merge_shards(shards: Sequence[ShardResult]) -> NDArray[np.float32]:
    """Return the weighted mean of the shards' models.

    Returns:
        float32 [d].

    Raises:
        ConfigError: E-SHARDS: fewer than two, or they did not begin with the same bundle, or made
            another number of rounds.
    """
    folders = {shard.state_dir.absolute() for shard in shards}
    if len(shards) < 2 or len(folders) != len(shards):
        raise ConfigError("E-SHARDS", "two or more gateways' folders", f"{len(folders)}")
    if len({(shard.bundle.sha256, shard.rounds) for shard in shards}) > 1:
        raise ConfigError(
            "E-SHARDS",
            "shards that trained the same bundle for the same number of rounds",
            "others",
            "hand the same .efl file and --rounds to each gateway",
        )
    total = np.zeros(shards[0].parameters.shape, np.float64)
    for shard in shards:
        total += shard.cohort * shard.parameters.astype(np.float64)
    return (total / sum(shard.cohort for shard in shards)).astype(np.float32)


def merged_bundle(shards: Sequence[ShardResult]) -> bytes:
    """Return a bundle that begins where the shards' mean is, for the next task on each of them.

    Raises:
        ConfigError: As `merge_shards`.
    """
    bundle = shards[0].bundle
    return pack_bundle(
        bundle.manifest,
        bundle.contents,
        initial_params=merge_shards(shards),
        initial_local=bundle.initial_local,
    )
