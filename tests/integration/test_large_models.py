"""A model above one packet, in a real fleet: bundle, parameters and masked inputs are transfers."""

from pathlib import Path

import pytest

from edgefl.training.onnx import demo_model
from edgefl.training.onnx.compile.bundle import compile_bundle
from tests.integration.fleet import real_fleet

CHUNK_BYTES = 65_536


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_round_with_a_large_model_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_model, "_FILTERS", 128)
    bundle = compile_bundle(demo_model.demo_model(1)).bundle_bytes
    assert len(bundle) > 5 * CHUNK_BYTES
    with real_fleet(tmp_path, devices=4, rounds=1, limit_s=60.0, bundle=bundle) as fleet:
        fleet.start()
        committed = fleet.wait_for_commit(1)
        assert committed["survivors"] == 4
        assert committed["up_bytes"] > 4 * CHUNK_BYTES
        assert not [event for event in fleet.events if event["kind"] == "refused"]
