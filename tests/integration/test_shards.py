"""Two gateways on one cluster, each with its shard of the devices, train one model together."""

import contextlib
import json
import time
from pathlib import Path

import numpy as np
import pytest

from broker.task_merge import merge_shards, read_shard
from edgefl.cli.main import main
from edgefl.training.bundle import read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from tests.integration.brokers import nats
from tests.integration.real import Process, wait_until

SHARDS = {"east": range(3), "west": range(3, 6)}


class Shard:
    """One gateway with its devices."""

    def __init__(self, folder: Path, fleet: str, urls: str) -> None:
        self.state = folder / fleet
        self.fleet = fleet
        self.processes = [
            Process(
                folder / "output", "gateway", "run", "--state", self.state, "--fleet", fleet,
                "--broker", urls, "--http-port", "off",
            )
        ]  # fmt: skip
        for number in SHARDS[fleet]:
            self.processes.append(
                Process(
                    folder / "output", "agent", "run", "--device", f"d{number}",
                    "--data", f"spar:{number + 1}-left", "--state", folder / f"d{number}",
                    "--gateway", urls, "--fleet", fleet, "--max-epsilon", 10_000, "--ignore-power",
                )
            )  # fmt: skip

    def submit(self, bundle: Path, name: str) -> None:
        words = ["task", "submit", bundle, "--name", name, "--cohort", 3, "--rounds", 1,
                 "--noise-multiplier", "0.1", "--epsilon-budget", 10_000, "--state", self.state,
                 "--phase-limit-s", 40]  # fmt: skip
        assert main([str(word) for word in words]) == 0

    def has_ended(self, name: str) -> bool:
        path = self.state / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("}")]
        has_ended = any(e["kind"] == "task-ended" and e["task"] == name for e in events)
        # The model is measured and written meanwhile.
        return has_ended and (self.state / "tasks" / name / "result" / "result.json").exists()

    def ledger_rows(self) -> list[dict]:
        lines = (self.state / "ledger.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_gateways_train_one_model(tmp_path: Path) -> None:
    bundle = tmp_path / "period0.efl"
    bundle.write_bytes(compile_bundle(demo_model(1)).bundle_bytes)
    with nats(tmp_path / "broker", 3) as brokers, contextlib.ExitStack() as stack:
        shards = []
        for fleet in SHARDS:
            shard = Shard(tmp_path, fleet, brokers.urls)
            shards.append(shard)
            for process in shard.processes:
                stack.callback(process.stop)
        for period in range(2):
            name = f"period{period}"
            started_s = time.monotonic()
            for shard in shards:
                shard.submit(bundle, name)
            wait_until(lambda n=name: all(s.has_ended(n) for s in shards), name, timeout_s=60)
            took_s = time.monotonic() - started_s
            print(f"period {period}: {took_s:.2f} s")
            results = [read_shard(shard.state, name) for shard in shards]
            bundle = tmp_path / f"period{period + 1}.efl"
            words = ["task", "merge", name, "-o", bundle]
            for shard in shards:
                words += ["--shard", shard.state]
            assert main([str(word) for word in words]) == 0
            np.testing.assert_array_equal(read_bundle(bundle).initial_params, merge_shards(results))
        # Nobody was in both: each device's spend is its own shard's.
        assert [len(shard.ledger_rows()) for shard in shards] == [2, 2]
        assert all(row["n_survivors"] == 3 for shard in shards for row in shard.ledger_rows())
