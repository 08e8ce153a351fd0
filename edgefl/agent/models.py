"""The models that a device keeps: the last good global one, and its own.

One folder for each task below `STATE/models`, each file replaced as a whole, so that a power cut
leaves the old or the new one. At most a few tasks are kept, the newest ones. A round writes
parameters, never the bundle, which comes once.
"""

import hashlib
import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import StorageError
from edgefl.protocol.topics import is_name
from edgefl.storage.files import replace_file
from edgefl.training.bundle import LARGEST_BUNDLE_BYTES, Bundle, read_bundle
from edgefl.training.json_fields import Fields

MOST_TASKS = 4
_BUNDLE, _GOOD, _PERSONAL, _RECORD = "bundle.efl", "good.npz", "personal.npz", "record.json"
_LARGEST_RECORD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """Where the kept models come from.

    Attributes:
        task: The task.
        bundle_sha256: Hex digest of the bundle that they belong to.
        good_round: Round of the task that began with the kept global model; 0 for none.
        good_loss: Its loss on this device's own examples at that time.
        last_round: Newest round that this device trained in.
        is_rolled_back: The newest global model did worse here, so that an older one is kept.
        personal_round: Round whose local training gave the kept model of one's own; 0 for none.
        personal_loss: Its loss, likewise.
        backend: Library and processor that trained last, as onnx/cpu.
    """

    task: str
    bundle_sha256: str
    good_round: int = 0
    good_loss: float = 0.0
    last_round: int = 0
    is_rolled_back: bool = False
    personal_round: int = 0
    personal_loss: float = 0.0
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModel:
    """Parameters of a model: float32 [d], and float32 [local d] of what stays on the device."""

    params: NDArray[np.float32]
    local: NDArray[np.float32]


class ModelShelf:
    """The models of one device.

    Args:
        folder: `STATE/models`; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        """Read nothing yet."""
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Return where everything lies."""
        return self._folder

    def tasks(self) -> list[str]:
        """Return the names of the tasks whose models are kept, the one used last first.

        Raises:
            StorageError: E-MODEL-DAMAGED.
        """
        return [_read_record(folder / _RECORD).task for folder in self._folders()]

    def record(self, task: str) -> ModelRecord | None:
        """Return what is kept for a task, or None.

        Raises:
            StorageError: E-MODEL-DAMAGED.
        """
        path = self._of(task) / _RECORD
        return _read_record(path) if path.exists() else None

    def bundle(self, task: str) -> Bundle:
        """Return the bundle of a task's models.

        Raises:
            TrainingError: It is damaged or gone.
        """
        return read_bundle(self._of(task) / _BUNDLE)

    def require_bundle(self, record: ModelRecord) -> None:
        """Look whether the bundle that a record names is there, whole.

        Raises:
            StorageError: E-MODEL-DAMAGED.
        """
        path = self._of(record.task) / _BUNDLE
        if not path.is_file():
            raise _damaged(path, "no file")
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _damaged(path, error.strerror or type(error).__name__) from error
        if found != record.bundle_sha256:
            raise _damaged(path, "another bundle, or a part of it")

    def good(self, task: str) -> KeptModel | None:
        """Return the last good global model, or None; see `record` for errors."""
        return _read_model(self._of(task) / _GOOD)

    def personal(self, task: str) -> KeptModel | None:
        """Return the device's own model, or None; see `record` for errors."""
        return _read_model(self._of(task) / _PERSONAL)

    def keep(
        self,
        record: ModelRecord,
        *,
        bundle: bytes | None = None,
        good: KeptModel | None = None,
        personal: KeptModel | None = None,
    ) -> None:
        """Replace what is given, then the record; forget the tasks that were not used longest.

        With a new bundle the record goes first: after a power cut there is none, and not one that
        names files of two bundles.

        Raises:
            StorageError: E-MODEL-WRITE; what was kept of the same bundle is still there.
        """
        folder = self._of(record.task)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if bundle is not None:
                (folder / _RECORD).unlink(missing_ok=True)
                replace_file(folder / _BUNDLE, bundle)
            for name, model in ((_GOOD, good), (_PERSONAL, personal)):
                if model is not None:
                    replace_file(folder / name, _pack(model))
            replace_file(folder / _RECORD, json.dumps(asdict(record), indent=1).encode())
        except OSError as error:
            raise StorageError(
                "E-MODEL-WRITE",
                f"room and permission to write {folder}",
                error.strerror or type(error).__name__,
                "make room on the disk; the models that were kept before are still there",
            ) from error
        for old in self._folders()[MOST_TASKS:]:
            shutil.rmtree(old, ignore_errors=True)

    def forget(self, task: str) -> None:
        """Remove what is kept for a task, for example because it belongs to another bundle."""
        shutil.rmtree(self._of(task), ignore_errors=True)

    def _folders(self) -> list[Path]:
        """Return the folders of tasks, the one used last first."""
        if not self._folder.is_dir():
            return []
        found = [path.parent for path in self._folder.glob(f"*/{_RECORD}")]
        return sorted(found, key=lambda path: (path / _RECORD).stat().st_mtime_ns, reverse=True)

    def _of(self, task: str) -> Path:
        # A task's name comes from the gateway; as a path it could lead anywhere.
        if is_name(task):
            return self._folder / task
        return self._folder / hashlib.sha256(task.encode()).hexdigest()


def _read_record(path: Path) -> ModelRecord:
    try:
        with path.open("rb") as file:
            return _parse_record(file.read(_LARGEST_RECORD_BYTES))
    except OSError as error:
        raise _damaged(path, error.strerror or type(error).__name__) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def _parse_record(content: bytes) -> ModelRecord:
    try:
        fields = Fields(json.loads(content), "record")
    except (UnicodeDecodeError, RecursionError) as error:
        message = "no JSON text"
        raise ValueError(message) from error
    return ModelRecord(
        task=fields.text("task"),
        bundle_sha256=fields.text("bundle_sha256"),
        good_round=fields.integer("good_round"),
        good_loss=fields.number("good_loss"),
        last_round=fields.integer("last_round"),
        is_rolled_back=fields.flag("is_rolled_back"),
        personal_round=fields.integer("personal_round"),
        personal_loss=fields.number("personal_loss"),
        backend=fields.text("backend"),
    )


def _pack(model: KeptModel) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, params=model.params, local=model.local)
    return packed.getvalue()


def _read_model(path: Path) -> KeptModel | None:
    try:
        if path.stat().st_size > LARGEST_BUNDLE_BYTES:
            raise _damaged(path, "a file that is too large")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            loaded: Mapping[str, NDArray[np.float32]] = {
                name: arrays[name] for name in ("params", "local")
            }
    except FileNotFoundError:
        return None
    except StorageError:
        raise
    except Exception as error:  # what numpy raises on damaged bytes has no common type
        raise _damaged(path, type(error).__name__) from error
    if not all(_is_flat(array) for array in loaded.values()):
        raise _damaged(path, "arrays of another kind")
    return KeptModel(params=loaded["params"], local=loaded["local"])


def _is_flat(array: NDArray[np.float32]) -> bool:
    return array.dtype == np.float32 and array.ndim == 1 and bool(np.isfinite(array).all())


def _damaged(path: Path, found: str) -> StorageError:
    return StorageError(
        "E-MODEL-DAMAGED",
        f"a model that this device kept, in {path}",
        found,
        "remove the task's folder; the next round brings a global model, its own one begins anew",
    )
