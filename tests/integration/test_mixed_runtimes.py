"""One cohort trained on both runtimes: a real gateway, real agents, real MQTT."""

import math
from pathlib import Path

import numpy as np
import pytest

from edgefl.data.spar import held_out
from edgefl.training.bundle import read_bundle
from edgefl.training.evaluate import Evaluator
from edgefl.training.kinds import Runtime
from edgefl.training.litert.compile.graft import HeadOptions, prepare_head
from edgefl.training.litert.export import export_int8_tflite
from edgefl.training.litert.runtime.trainer import LitertTrainer
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.trainer import OnnxTrainer
from tests.integration.fleet import real_fleet

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def bundle_bytes() -> bytes:
    options = CompileOptions(runtimes=(Runtime.ONNX, Runtime.LITERT))
    return compile_with(demo_model(1), options).bundle_bytes


def test_half_of_a_cohort_trains_with_litert(tmp_path: Path, bundle_bytes: bytes) -> None:
    with real_fleet(tmp_path, devices=4, rounds=3, bundle=bundle_bytes) as fleet:
        fleet.processes.backends = {"d0": "litert", "d2": "litert"}
        fleet.start()
        ended = fleet.wait_for_end()
        logs = {device: fleet.log_of(device) for device in fleet.processes.agents}
    assert ended["outcome"] == "done"
    committed = [
        event
        for event in fleet.events
        if event["kind"] == "round" and event["outcome"] == "COMMITTED"
    ]
    assert [event["round"] for event in committed] == [1, 2, 3]
    assert all(event["sum_check_held"] for event in committed)
    assert {event["survivors"] for event in committed} == {4}
    for device, log in logs.items():
        wanted = "litert/cpu" if device in fleet.processes.backends else "onnx/cpu"
        assert f"training runs on {wanted}" in log
        assert "Traceback" not in log


def test_a_cohort_trains_a_head_on_a_tflite_backbone(tmp_path: Path, bundle_bytes: bytes) -> None:
    source = read_bundle(bundle_bytes)
    backbone = export_int8_tflite(source, source.initial_params)
    head = prepare_head(backbone, HeadOptions(outputs=7)).bundle_bytes
    with real_fleet(tmp_path, devices=4, rounds=2, bundle=head) as fleet:
        fleet.processes.backends = dict.fromkeys(("d0", "d1", "d2", "d3"), "litert")
        fleet.start()
        ended = fleet.wait_for_end()
        logs = [fleet.log_of(device) for device in fleet.processes.agents]
    assert ended["outcome"] == "done"
    measured = [event["loss"] for event in fleet.events if event["kind"] == "evaluated"]
    # The last measurement may end after the task.
    assert len(measured) >= 1
    assert all(math.isfinite(loss) for loss in measured)
    assert not [log for log in logs if "Traceback" in log]


def test_rounds_of_both_runtimes_give_the_same_model(bundle_bytes: bytes) -> None:
    bundle = read_bundle(bundle_bytes)
    data = held_out()
    devices = [slice(start, start + 40) for start in range(0, 160, 40)]
    finals = []
    for kinds in ([OnnxTrainer] * 4, [OnnxTrainer, LitertTrainer] * 2):
        trainers = [kind(bundle) for kind in kinds]
        params = bundle.initial_params
        for _ in range(3):
            deltas = []
            for trainer, rows in zip(trainers, devices, strict=True):
                trainer.set_params(params)
                trainer.fit(
                    data.x[rows],
                    data.y[rows],
                    epochs=2,
                    batch_size=16,
                    lr=0.1,
                    rng=np.random.default_rng(rows.start),
                )
                deltas.append(trainer.delta())
            params = (params + np.mean(deltas, axis=0)).astype(np.float32)
        finals.append(params)
    assert np.abs(finals[0] - bundle.initial_params).max() > 0.01
    assert np.abs(finals[0] - finals[1]).max() < 1e-5
    losses = [Evaluator(bundle).evaluate(params, data).loss for params in finals]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
