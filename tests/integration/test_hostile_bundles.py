"""Bundles with right hashes and wrong graphs, at a real gateway and real agents: all stay."""

import hashlib
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from edgefl.training.bundle import EVAL_ONNX, MANIFEST, PARAMS, TRAIN_ONNX, read_bundle
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.stored_zip import pack_stored, unpack_stored
from tests.integration.fleet import real_fleet

pytestmark = pytest.mark.timeout(120)


def bundle_without_output(name: str) -> bytes:
    """Return a good bundle but that one graph lacks its first output."""
    good = compile_bundle(demo_model(1)).bundle_bytes
    bundle = read_bundle(good)
    model = onnx.load_from_string(bundle.contents[name])
    del model.graph.output[0]
    files = {
        **bundle.contents,
        name: model.SerializeToString(),
        PARAMS: unpack_stored(good)[PARAMS],
    }
    hashes = {part: hashlib.sha256(content).hexdigest() for part, content in files.items()}
    return pack_stored({MANIFEST: replace(bundle.manifest, files=hashes).to_json(), **files})


@pytest.mark.parametrize("name", [TRAIN_ONNX, EVAL_ONNX])
def test_a_graph_that_does_not_run_ends_no_process(tmp_path: Path, name: str) -> None:
    with real_fleet(tmp_path, devices=3, rounds=2, bundle=bundle_without_output(name)) as fleet:
        fleet.start()
        ended = fleet.wait_for_end()
        children = [*fleet.processes.agents.values(), fleet.processes.gateway]
        running = [child.name for child in children if child.is_running]
        logs = {child.name: child.log_path.read_text() for child in children}
    assert ended["outcome"] == "done"
    assert running == ["d0", "d1", "d2", "gateway"]
    for log in logs.values():
        assert "Traceback" not in log
    for device in ("d0", "d1", "d2"):
        assert "training failed: E-GRAPH-" in logs[device]
    assert ("cannot be measured: E-GRAPH-" in logs["gateway"]) == (name == EVAL_ONNX)
