"""A gateway that was asked to end with its tasks ends, whatever became of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from broker.demo_task import demo_task
from broker.task_folder import submit_task
from edgefl.data.spar import held_out
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from tests.integration.fleet import real_fleet
from tests.integration.real import Process

pytestmark = pytest.mark.timeout(120)


def idle_gateway(folder: Path, state: Path) -> Process:
    return Process(
        folder,
        "gateway",
        "run",
        "--port",
        "0",
        "--state",
        state,
        "--fleet",
        "test",
        "--stop-when-idle",
    )


def test_it_ends_after_its_tasks_and_at_once_when_started_again(tmp_path: Path) -> None:
    with real_fleet(tmp_path / "fleet", devices=3, rounds=1) as fleet:
        fleet.start()
        fleet.wait_for_end()
        fleet.processes.stop()
        again = idle_gateway(tmp_path / "again", fleet.state)
        assert again.wait().code == 0


def test_it_ends_when_its_only_task_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "gateway"
    spec = replace(demo_task("task", cohort=3, rounds=1, limit_s=5.0), rounds=1)
    folder = submit_task(state, spec, compile_bundle(demo_model(1)).bundle_bytes, held_out())
    (folder / "bundle.efl").write_bytes(b"damaged")
    ended = idle_gateway(tmp_path / "run", state).wait()
    assert ended.code == 0
    assert "E-BUNDLE-DAMAGED" in ended.err


def test_a_task_handed_in_first_makes_a_folder_for_its_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "gateway"
    spec = demo_task("task", cohort=3, rounds=1, limit_s=5.0)
    submit_task(state, spec, compile_bundle(demo_model(1)).bundle_bytes, None)
    assert state.stat().st_mode & 0o077 == 0
