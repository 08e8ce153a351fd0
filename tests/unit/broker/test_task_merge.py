"""One model from several gateways: exact after one round, refused where it means nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from broker.demo_task import demo_task
from broker.server_step import ModelState, apply_step
from broker.task_folder import save_model, submit_task
from broker.task_merge import merge_shards, merged_bundle, read_shard
from edgefl.cli.main import main
from edgefl.errors import ConfigError
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model

COHORTS = (3, 5)


@pytest.fixture(scope="module")
def bundle_bytes() -> bytes:
    return compile_bundle(demo_model(1)).bundle_bytes


@pytest.fixture
def shards(tmp_path: Path, bundle_bytes: bytes) -> list[Path]:
    """Make two gateways' folders after one round, with the sums that they would have opened."""
    bundle = read_bundle(bundle_bytes)
    begun = ModelState(
        parameters=bundle.initial_params, velocity=np.zeros_like(bundle.initial_params)
    )
    rng = np.random.default_rng(7)
    folders = []
    for index, cohort in enumerate(COHORTS):
        state = tmp_path / f"shard{index}"
        spec = replace(demo_task("t", cohort=cohort, rounds=1, limit_s=30.0))
        submit_task(state, spec, bundle_bytes, None)
        total = rng.normal(size=begun.parameters.size) * cohort
        np.save(state / "total.npy", total)
        after = apply_step(begun, total, denominator=cohort, momentum=0.0, server_lr=1.0)
        summary = {"task": "t", "rounds_committed": 1, "rounds": 1}
        save_model(state, "t", bundle, after.parameters, summary)
        folders.append(state)
    return folders


def test_after_one_round_the_mean_is_the_model_of_one_gateway(shards, bundle_bytes):
    bundle = read_bundle(bundle_bytes)
    begun = ModelState(
        parameters=bundle.initial_params, velocity=np.zeros_like(bundle.initial_params)
    )
    total = sum(np.load(state / "total.npy") for state in shards)
    alone = apply_step(begun, total, denominator=sum(COHORTS), momentum=0.0, server_lr=1.0)
    merged = merge_shards([read_shard(state, "t") for state in shards])
    # Two roundings to float32 instead of one.
    np.testing.assert_allclose(merged, alone.parameters, rtol=3e-7, atol=3e-7)


def test_the_bundle_differs_in_where_it_begins_alone(shards, bundle_bytes):
    read = [read_shard(state, "t") for state in shards]
    before, after = read_bundle(bundle_bytes), read_bundle(merged_bundle(read))
    assert after.contents == before.contents
    np.testing.assert_array_equal(after.initial_params, merge_shards(read))
    np.testing.assert_array_equal(after.initial_local, before.initial_local)
    assert after.sha256 != before.sha256


def test_the_command_writes_it(shards, tmp_path, capsys):
    out = tmp_path / "next.efl"
    words = ["task", "merge", "t", "-o", str(out)]
    for state in shards:
        words += ["--shard", str(state)]
    assert main(words) == 0
    assert "mean of 2 models after 1 rounds, weighted 3 : 5" in capsys.readouterr().out
    read_bundle(out)


def test_what_means_nothing_is_refused(shards, tmp_path):
    read = [read_shard(state, "t") for state in shards]
    for wrong in (
        read[:1],
        [read[0], read[0]],
        [read[0], replace(read[1], rounds=2)],
        [read[0], replace(read[1], bundle=replace(read[1].bundle, sha256="0" * 64))],
    ):
        with pytest.raises(ConfigError, match="E-SHARDS"):
            merge_shards(wrong)
    with pytest.raises(ConfigError, match="E-NO-RESULT"):
        read_shard(tmp_path / "nowhere", "t")


def test_a_task_that_has_not_ended_is_refused(tmp_path, bundle_bytes):
    spec = demo_task("t", cohort=3, rounds=2, limit_s=30.0)
    submit_task(tmp_path, spec, bundle_bytes, None)
    bundle = read_bundle(bundle_bytes)
    save_model(tmp_path, "t", bundle, bundle.initial_params, {"rounds_committed": 1, "rounds": 2})
    with pytest.raises(ConfigError, match="E-NO-RESULT"):
        read_shard(tmp_path, "t")
