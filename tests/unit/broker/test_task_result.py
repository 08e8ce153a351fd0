"""A task's result in every form that its bundle allows, and tasks that do not fit their bundle."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from broker.demo_task import demo_task
from broker.kept_model import read_kept_model
from broker.task_folder import save_model, submit_task
from broker.task_result import (
    FLOAT_ONNX,
    FLOAT_TFLITE,
    INT8_ONNX,
    INT8_TFLITE,
    write_result,
)
from edgefl.errors import ConfigError, StorageError
from edgefl.training.base import TrainingData
from edgefl.training.bundle import export_model, read_bundle
from edgefl.training.int8_evaluate import evaluate_int8
from edgefl.training.kinds import Loss, Runtime
from edgefl.training.onnx.compile.bundle import compile_with
from edgefl.training.onnx.compile.options import CompileOptions
from edgefl.training.onnx.compile.quantize.request import parse_quantization
from edgefl.training.onnx.demo_model import demo_model
from edgefl.training.onnx.runtime.quiet import onnxruntime

BOTH = (Runtime.ONNX, Runtime.LITERT)
SUMMARY = {"task": "t", "rounds_committed": 3, "rounds": 3}


def bundle_bytes(**options: object) -> bytes:
    return compile_with(demo_model(1), CompileOptions(**options)).bundle_bytes  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def all_forms(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    calibration = tmp_path_factory.mktemp("calibration") / "rows.npz"
    rows = np.random.default_rng(0).uniform(-4, 4, (64, 64, 6)).astype(np.float32)
    np.savez(calibration, x=rows)
    return bundle_bytes(runtimes=BOTH, quantization=parse_quantization(f"qat:{calibration}"))


def finished(state: Path, content: bytes) -> np.ndarray:
    """A task with a committed model; returns its parameters."""
    spec = demo_task("t", cohort=4, rounds=3, limit_s=5.0)
    submit_task(state, spec, content, None)
    bundle = read_bundle(content)
    params = bundle.initial_params * np.float32(1.5)
    save_model(state, "t", bundle, params, dict(SUMMARY))
    return params


def test_a_folder_gets_every_form(tmp_path: Path, all_forms: bytes) -> None:
    params = finished(tmp_path, all_forms)
    found = write_result(tmp_path, "t", tmp_path / "out")
    names = {FLOAT_ONNX, INT8_ONNX, FLOAT_TFLITE, INT8_TFLITE, "result.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert {Path(path).name for path in found["files"]} == names
    summary = json.loads((tmp_path / "out" / "result.json").read_text())
    assert SUMMARY.items() <= summary.items()
    model = (tmp_path / "out" / FLOAT_ONNX).read_bytes()
    assert summary["model_sha256"] == hashlib.sha256(model).hexdigest()
    assert (tmp_path / "out" / FLOAT_ONNX).read_bytes() == export_model(
        read_bundle(all_forms), params
    )


@pytest.mark.parametrize("form", [FLOAT_ONNX, INT8_ONNX, FLOAT_TFLITE, INT8_TFLITE])
def test_the_ending_chooses_one_form(tmp_path: Path, all_forms: bytes, form: str) -> None:
    finished(tmp_path, all_forms)
    write_result(tmp_path, "t", tmp_path / "all")
    target = tmp_path / form.replace("model", "mine")
    found = write_result(tmp_path, "t", target)
    assert found["files"] == [str(target)]
    assert target.read_bytes() == (tmp_path / "all" / form).read_bytes()


def test_the_forms_say_nearly_the_same(tmp_path: Path, all_forms: bytes) -> None:
    params = finished(tmp_path, all_forms)
    write_result(tmp_path, "t", tmp_path / "out")
    x = np.random.default_rng(5).uniform(-2, 2, (50, 64, 6)).astype(np.float32)
    logits = {}
    for form in (FLOAT_ONNX, INT8_ONNX):
        session = onnxruntime.InferenceSession(
            str(tmp_path / "out" / form), providers=["CPUExecutionProvider"]
        )
        (logits[form],) = session.run(None, {session.get_inputs()[0].name: x})
    spread = logits[FLOAT_ONNX].std()
    assert 0 < np.abs(logits[FLOAT_ONNX] - logits[INT8_ONNX]).max() < 0.5 * spread
    data = TrainingData(x=x, y=logits[FLOAT_ONNX].argmax(1))
    accuracy = evaluate_int8(read_bundle(all_forms), params, data).accuracy
    assert accuracy is not None
    assert accuracy > 0.8


def test_a_form_that_the_bundle_lacks_is_named(tmp_path: Path) -> None:
    finished(tmp_path, bundle_bytes())
    for name in ("a.int8.onnx", "a.tflite", "a.int8.tflite"):
        with pytest.raises(ConfigError, match=r"E-RESULT-FORM.*model\.onnx"):
            write_result(tmp_path, "t", tmp_path / name)
        assert not (tmp_path / name).exists()
    found = write_result(tmp_path, "t", tmp_path / "out")
    assert [Path(path).name for path in found["files"]] == [FLOAT_ONNX, "result.json"]


def test_an_ending_that_is_no_form_is_named(tmp_path: Path) -> None:
    finished(tmp_path, bundle_bytes())
    with pytest.raises(ConfigError, match=r"E-RESULT-FORM.*model\.h5"):
        write_result(tmp_path, "t", tmp_path / "model.h5")
    assert not (tmp_path / "model.h5").exists()
    (tmp_path / "models.v2").mkdir()
    assert write_result(tmp_path, "t", tmp_path / "models.v2")["files"]


def test_no_model_yet_and_no_such_task_are_named(tmp_path: Path) -> None:
    submit_task(tmp_path, demo_task("t", cohort=4, rounds=3, limit_s=5.0), bundle_bytes(), None)
    for name in ("t", "other"):
        with pytest.raises(ConfigError, match=r"E-NO-RESULT.*tasks: t"):
            write_result(tmp_path, name, tmp_path / "model.onnx")


@pytest.mark.parametrize("content", [b"", b"garbled", b"\x93NUMPY\x01\x00"])
def test_damaged_parameters_are_named(tmp_path: Path, content: bytes) -> None:
    finished(tmp_path, bundle_bytes())
    (tmp_path / "tasks" / "t" / "result" / "parameters.npy").write_bytes(content)
    with pytest.raises(StorageError, match="E-RESULT-DAMAGED"):
        write_result(tmp_path, "t", tmp_path / "model.onnx")


def test_parameters_that_are_not_those_of_the_summary_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut came between the files, or one bit has changed, which numpy does not notice."""
    monkeypatch.setattr("broker.kept_model._PAUSE_S", 0.0)
    finished(tmp_path, bundle_bytes())
    path = tmp_path / "tasks" / "t" / "result" / "parameters.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"E-RESULT-DAMAGED.*hash"):
        write_result(tmp_path, "t", tmp_path / "model.onnx")


def test_a_model_that_is_just_being_replaced_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = finished(tmp_path, bundle_bytes())
    folder = tmp_path / "tasks" / "t" / "result"
    whole = (folder / "parameters.npy").read_bytes()
    (folder / "parameters.npy").write_bytes(whole[:-4] + bytes(4))

    def replaced_meanwhile(_: float) -> None:
        (folder / "parameters.npy").write_bytes(whole)

    monkeypatch.setattr("broker.kept_model.time.sleep", replaced_meanwhile)
    found, _ = read_kept_model(tmp_path, "t")
    np.testing.assert_array_equal(found, params)


def test_a_result_of_an_earlier_version_has_no_hash_and_is_read(tmp_path: Path) -> None:
    params = finished(tmp_path, bundle_bytes())
    (tmp_path / "tasks" / "t" / "result" / "result.json").write_text(json.dumps(SUMMARY))
    np.testing.assert_array_equal(read_kept_model(tmp_path, "t")[0], params)


def test_a_target_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    finished(tmp_path, bundle_bytes())
    (tmp_path / "file").write_text("in the way")
    for target in (tmp_path / "file" / "model.onnx", tmp_path / "file"):
        with pytest.raises(StorageError, match="E-TASK-WRITE"):
            write_result(tmp_path, "t", target)


def test_a_batch_that_litert_cannot_take_is_refused(tmp_path: Path) -> None:
    content = bundle_bytes(runtimes=BOTH, batch_rows=8)
    spec = demo_task("t", cohort=4, rounds=3, limit_s=5.0)
    with pytest.raises(ConfigError, match=r"E-TASK-BATCH.*at most 8 rows"):
        submit_task(tmp_path, dataclasses.replace(spec, batch_size=9), content, None)
    submit_task(tmp_path, dataclasses.replace(spec, batch_size=8), content, None)


def test_bounds_of_examples_and_bundle_must_agree(tmp_path: Path) -> None:
    clips = bundle_bytes(clips_examples=True, loss=Loss.CROSS_ENTROPY)
    spec = demo_task("t", cohort=4, rounds=3, limit_s=5.0)
    bounded = dataclasses.replace(spec, example_clip=1.0)
    for wrong, content in ((bounded, bundle_bytes()), (spec, clips)):
        with pytest.raises(ConfigError, match="E-TASK-EXAMPLE-CLIP"):
            submit_task(tmp_path, wrong, content, None)
    submit_task(tmp_path, bounded, clips, None)
