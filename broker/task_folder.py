"""Tasks on disk: how they are handed in, and where their models are found.

One folder per task below `STATE/tasks`: `task.json`, `bundle.efl`, perhaps `evaluation.npz`, and,
once there is a model, `result/` with `model.onnx`, `parameters.npy` and `result.json`. Every file
is replaced as a whole.
"""

import hashlib
import io
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from broker.task import TaskSpec
from edgefl.data.npz import load_npz, save_npz
from edgefl.errors import ConfigError, StorageError
from edgefl.storage.files import replace_file
from edgefl.training.base import TrainingData
from edgefl.training.bundle import (
    EXPORT_TEMPLATE,
    Bundle,
    export_model,
    pack_for_devices,
    read_bundle,
)
from edgefl.training.fit_checks import require_fit
from edgefl.training.kinds import Runtime
from edgefl.transfer.manifest import MAX_BLOB_BYTES

_TASK = "task.json"
BUNDLE = "bundle.efl"
_EVALUATION = "evaluation.npz"
_RESULT = "result"
MODEL = "model.onnx"
PARAMETERS = "parameters.npy"
SUMMARY = "result.json"
PARAMETERS_HASH = "parameters_sha256"
MODEL_HASH = "model_sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedTask:
    """A task as it lies in its folder, verified.

    Attributes:
        spec: What was asked for.
        bundle: The whole bundle, exports included.
        device_bundle: The bundle's bytes as devices get them, without what only exports need.
        evaluation: Examples that the model is measured on, if the task brought some.
    """

    spec: TaskSpec
    bundle: Bundle
    device_bundle: bytes
    evaluation: TrainingData | None


def submit_task(
    state_dir: Path, spec: TaskSpec, bundle_bytes: bytes, evaluation: TrainingData | None
) -> Path:
    """Hand a task to the gateway of a state folder, which need not be running.

    Returns:
        The task's folder.

    Raises:
        ConfigError: A task of that name exists, or the privacy plan does not hold for the bundle.
        TrainingError: The bundle is damaged.
        StorageError: The folder cannot be written.
    """
    bundle = read_bundle(bundle_bytes)
    spec.privacy_plan(bundle.manifest.dimension)
    _require_same_clipping(spec, bundle)
    _require_batch(spec, bundle)
    _require_sendable(bundle, pack_for_devices(bundle))
    tasks = state_dir / "tasks"
    folder = tasks / spec.name
    if folder.exists():
        raise ConfigError(
            "E-TASK-EXISTS",
            "a new name for the task",
            f"{spec.name!r}, which exists",
            "choose another --name",
        )
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        tasks.mkdir(exist_ok=True, mode=0o700)
        staging = Path(tempfile.mkdtemp(prefix=".incoming-", dir=tasks))
    except OSError as error:
        raise _cannot_write(tasks, error) from error
    try:
        (staging / BUNDLE).write_bytes(bundle_bytes)
        if evaluation is not None:
            save_npz(staging / _EVALUATION, evaluation)
        (staging / _TASK).write_text(spec.to_json())
        staging.rename(folder)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise _cannot_write(tasks, error) from error
    return folder


def _require_same_clipping(spec: TaskSpec, bundle: Bundle) -> None:
    clips = bundle.manifest.clips_examples
    if clips != (spec.example_clip > 0):
        raise ConfigError(
            "E-TASK-EXAMPLE-CLIP",
            "--example-clip above 0 exactly for a bundle that clips examples",
            f"{spec.example_clip} and a bundle that {'does' if clips else 'does not'}",
            "give the bound, or prepare the bundle with or without --clip-examples",
        )


def _require_batch(spec: TaskSpec, bundle: Bundle) -> None:
    """Refuse a batch that devices with LiteRT, whose sizes are fixed, could not take."""
    program = bundle.manifest.program(Runtime.LITERT)
    rows = None if program is None else program.facts.get("batch_rows")
    if isinstance(rows, int) and spec.batch_size > rows:
        raise ConfigError(
            "E-TASK-BATCH",
            f"a batch of at most {rows} rows, which the bundle's LiteRT form was made for",
            str(spec.batch_size),
            f"choose --batch-size {rows}, or 'edgefl model prepare --batch-rows {spec.batch_size}'",
        )


def _require_sendable(bundle: Bundle, device_bundle: bytes) -> None:
    """Refuse a model that no device would take."""
    size_bytes = max(len(device_bundle), bundle.initial_params.nbytes)
    if size_bytes > MAX_BLOB_BYTES:
        raise ConfigError(
            "E-MODEL-SIZE",
            f"a bundle and parameters of at most {MAX_BLOB_BYTES} bytes each",
            f"{size_bytes} bytes",
            "choose a smaller model, or train a part of it",
        )


def list_tasks(state_dir: Path) -> list[str]:
    """Return the names of the tasks handed in, oldest first."""
    tasks = state_dir / "tasks"
    if not tasks.is_dir():
        return []
    folders = [path for path in tasks.iterdir() if not path.name.startswith(".") and path.is_dir()]
    return [
        path.name for path in sorted(folders, key=lambda path: (path.stat().st_mtime, path.name))
    ]


def load_spec(state_dir: Path, name: str) -> TaskSpec:
    """Read what a task asks for, without its bundle.

    Raises:
        ConfigError: It is missing or does not fit.
    """
    folder = state_dir / "tasks" / name
    try:
        return TaskSpec.from_json((folder / _TASK).read_text())
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "a file that is no text"
        raise ConfigError(
            "E-TASK-FOLDER", f"a whole task in {folder}", found or type(error).__name__
        ) from error


def load_task(state_dir: Path, name: str) -> SubmittedTask:
    """Read a task's folder.

    Raises:
        ConfigError: A file is missing or does not fit.
        TrainingError: The bundle is damaged.
    """
    folder = state_dir / "tasks" / name
    try:
        spec = TaskSpec.from_json((folder / _TASK).read_text())
        bundle = read_bundle((folder / BUNDLE).read_bytes())
    except (OSError, UnicodeDecodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "a file that is no text"
        raise ConfigError(
            "E-TASK-FOLDER",
            f"a whole task in {folder}",
            found or type(error).__name__,
            "remove the folder and submit the task again under another name",
        ) from error
    device_bundle = pack_for_devices(bundle)
    _require_sendable(bundle, device_bundle)
    evaluation = None
    if (folder / _EVALUATION).exists():
        evaluation = load_npz(folder / _EVALUATION)
        require_fit(evaluation, bundle.manifest)
    return SubmittedTask(
        spec=spec,
        bundle=bundle,
        device_bundle=device_bundle,
        evaluation=evaluation,
    )


def result_folder(state_dir: Path, name: str) -> Path:
    """Return where a task's newest model lies."""
    return state_dir / "tasks" / name / _RESULT


def save_model(
    state_dir: Path,
    name: str,
    bundle: Bundle,
    parameters: NDArray[np.float32],
    summary: dict[str, object],
) -> None:
    """Put the newest model where its owner finds it; a power cut leaves the old or the new.

    Args:
        state_dir: The gateway's.
        name: The task.
        bundle: The task's bundle.
        parameters: float32 [d].
        summary: For `result.json`, which gets the hashes of the files beside it too.

    Raises:
        StorageError: The disk is full or not writable; the earlier model stands.
    """
    folder = result_folder(state_dir, name)
    encoded = io.BytesIO()
    np.save(encoded, parameters)
    summary = {**summary, PARAMETERS_HASH: hashlib.sha256(encoded.getvalue()).hexdigest()}
    try:
        folder.mkdir(exist_ok=True)
        if EXPORT_TEMPLATE in bundle.contents:
            model = export_model(bundle, parameters)
            summary[MODEL_HASH] = hashlib.sha256(model).hexdigest()
            replace_file(folder / MODEL, model)
        replace_file(folder / PARAMETERS, encoded.getvalue())
        replace_file(folder / SUMMARY, json.dumps(summary, indent=2).encode() + b"\n")
    except OSError as error:
        raise _cannot_write(folder, error) from error


def read_summary(state_dir: Path, name: str) -> dict[str, object]:
    """Return a task's `result.json`; empty if there is no committed round.

    Raises:
        StorageError: It is damaged or cannot be read.
    """
    path = result_folder(state_dir, name) / SUMMARY
    try:
        summary = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise damaged_result(path, "summary", type(error).__name__) from error
    if not isinstance(summary, dict):
        raise damaged_result(path, "summary", type(summary).__name__)
    return summary


def damaged_result(path: Path, what: str, found: str) -> StorageError:
    """Return the error for a task's result that does not fit.

    Args:
        path: The file.
        what: The part of the result that it holds.
        found: What is wrong with it.
    """
    return StorageError(
        "E-RESULT-DAMAGED",
        f"the {what} of a model in {path}",
        found,
        "start the gateway, which writes model and summary of its tasks again",
    )


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(
        "E-TASK-WRITE", f"room and permission to write {path}", error.strerror or str(error)
    )
