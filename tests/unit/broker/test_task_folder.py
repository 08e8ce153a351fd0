"""Task folders that are damaged, or cannot be written: one line, and nothing left behind."""

from pathlib import Path

import pytest

from broker import task_folder
from broker.demo_task import demo_task
from edgefl.errors import ConfigError, StorageError
from edgefl.training.onnx.compile.bundle import compile_bundle
from edgefl.training.onnx.demo_model import demo_model


@pytest.mark.parametrize("content", [b"", b'{"task', b"[1]", b"\xff\xfe"])
def test_a_damaged_summary_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    result = tmp_path / "tasks" / "t" / "result"
    result.mkdir(parents=True)
    (result / task_folder.SUMMARY).write_bytes(content)
    with pytest.raises(StorageError, match="E-RESULT-DAMAGED"):
        task_folder.read_summary(tmp_path, "t")


def test_a_task_that_does_not_fit_on_the_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> int:
        raise OSError(28, "No space left on device")

    spec = demo_task("t", cohort=4, rounds=1, limit_s=5.0)
    bundle = compile_bundle(demo_model(1)).bundle_bytes
    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(StorageError, match="E-TASK-WRITE"):
        task_folder.submit_task(tmp_path, spec, bundle, None)
    assert list((tmp_path / "tasks").iterdir()) == []


def test_a_model_that_no_device_would_take_is_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = demo_task("t", cohort=4, rounds=1, limit_s=5.0)
    bundle = compile_bundle(demo_model(1)).bundle_bytes
    task_folder.submit_task(tmp_path, spec, bundle, None)
    monkeypatch.setattr(task_folder, "MAX_BLOB_BYTES", 20_000)
    with pytest.raises(ConfigError, match=r"E-MODEL-SIZE: .*20000 bytes each; found \d{5} bytes"):
        task_folder.submit_task(tmp_path / "other", spec, bundle, None)
    with pytest.raises(ConfigError, match="E-MODEL-SIZE"):
        task_folder.load_task(tmp_path, "t")
