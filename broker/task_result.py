"""A task's newest model in every form that its bundle allows: float and int8, ONNX and TFLite."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from broker.kept_model import read_kept_model
from broker.task_folder import BUNDLE, SUMMARY, list_tasks, result_folder
from edgefl.errors import ConfigError, StorageError
from edgefl.storage.files import replace_file
from edgefl.training.bundle import EXPORT_TEMPLATE, Bundle, export_model, read_bundle
from edgefl.training.int8_export import export_int8_model, has_int8_model
from edgefl.training.kinds import Runtime

FLOAT_ONNX, INT8_ONNX = "model.onnx", "model.int8.onnx"
FLOAT_TFLITE, INT8_TFLITE = "model.tflite", "model.int8.tflite"
_SUFFIXES = {
    ".int8.onnx": INT8_ONNX,
    ".onnx": FLOAT_ONNX,
    ".int8.tflite": INT8_TFLITE,
    ".tflite": FLOAT_TFLITE,
}
_Export = Callable[[Bundle, NDArray[np.float32]], bytes]


def write_result(state_dir: Path, name: str, target: Path) -> dict[str, object]:
    """Write a task's newest model.

    Args:
        state_dir: The gateway's.
        name: The task.
        target: A file that ends in .onnx, .int8.onnx, .tflite or .int8.tflite; a name
            without an ending is a folder for all forms that there are, with `result.json`.

    Returns:
        The summary, with the written `files`.

    Raises:
        ConfigError: There is no such task, no model yet, or not in this form.
        TrainingError: The bundle is damaged.
        StorageError: The target cannot be written, or the parameters are damaged.
    """
    folder = result_folder(state_dir, name)
    if not (folder / SUMMARY).exists():
        known = ", ".join(list_tasks(state_dir)) or "none"
        raise ConfigError(
            "E-NO-RESULT",
            f"a committed round of task {name!r}",
            f"none yet (tasks: {known})",
            "wait for the first round",
        )
    bundle = read_bundle(folder.parent / BUNDLE)
    params, summary = read_kept_model(state_dir, name)
    exports = _exports(bundle)
    form = next((form for end, form in _SUFFIXES.items() if target.name.endswith(end)), None)
    if form is None and target.suffix and not target.is_dir():
        raise ConfigError(
            "E-RESULT-FORM",
            f"a file that ends in {', '.join(_SUFFIXES)}, or a folder without an ending",
            repr(target.name),
            "choose the ending of a form; a folder that exists may be called anything",
        )
    if form is None:
        files = _write_all(target, exports, bundle, params, folder / SUMMARY)
    elif form in exports:
        files = [target]
        _write(target, exports[form](bundle, params))
    else:
        raise ConfigError(
            "E-RESULT-FORM",
            f"a form among {', '.join(exports)}",
            f"{target.name} of a bundle that was not prepared for it",
            "name a folder to get all forms; 'edgefl model prepare --help' tells how to get more",
        )
    return {**summary, "files": [str(path) for path in files]}


def _exports(bundle: Bundle) -> dict[str, _Export]:
    """Return how to make each form that there is, by file name."""
    found: dict[str, _Export] = {}
    if EXPORT_TEMPLATE in bundle.contents:
        found[FLOAT_ONNX] = export_model
    if has_int8_model(bundle):
        found[INT8_ONNX] = export_int8_model
    if bundle.manifest.program(Runtime.LITERT) is not None:
        from edgefl.training.litert.export import export_int8_tflite, export_tflite, has_int8_tflite

        found[FLOAT_TFLITE] = export_tflite
        if has_int8_tflite(bundle):
            found[INT8_TFLITE] = export_int8_tflite
    return found


def _write_all(
    target: Path,
    exports: dict[str, _Export],
    bundle: Bundle,
    params: NDArray[np.float32],
    summary: Path,
) -> list[Path]:
    try:
        target.mkdir(parents=True, exist_ok=True)
        content = summary.read_bytes()
    except OSError as error:
        raise _cannot_write(target, error) from error
    files = {target / form: export(bundle, params) for form, export in exports.items()}
    for path, model in {**files, target / SUMMARY: content}.items():
        _write(path, model)
    return [*files, target / SUMMARY]


def _write(path: Path, content: bytes) -> None:
    try:
        replace_file(path, content)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> StorageError:
    return StorageError(
        "E-TASK-WRITE", f"room and permission to write {path}", error.strerror or str(error)
    )
