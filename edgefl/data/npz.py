"""Reads and writes a device's own training data: one `.npz` with x and y."""

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefl.errors import DataError
from edgefl.training.base import TrainingData

# What numpy and zipfile raise on damaged or hostile bytes.
_UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    zipfile.BadZipFile,
    zlib.error,
)


def load_npz(
    path: Path, *, input_shape: tuple[int, ...] | None = None, classes: int | None = None
) -> TrainingData:
    """Read labelled examples and check them against the model.

    Args:
        path: An `.npz` with `x` [n, ...], any float or integer type, and `y` [n], any integer type.
        input_shape: Shape of one example that the model takes (the manifest's `input_shape`); None
            checks nothing.
        classes: Number of classes of the model; None checks only that labels are not negative.

    Returns:
        float32 examples and int64 labels.

    Raises:
        DataError: E-DATA-MISSING, E-DATA-DAMAGED, E-DATA-KEYS, E-DATA-DTYPE, E-DATA-LENGTH,
            E-DATA-EMPTY, E-DATA-NOT-FINITE, E-DATA-SHAPE or E-DATA-LABEL.
    """
    x, y = _read_arrays(path)
    data = TrainingData(x=_as_float32(x), y=_as_int64(y))
    if input_shape is not None and data.x.shape[1:] != input_shape:
        raise DataError(
            "E-DATA-SHAPE",
            f"examples of shape {list(input_shape)}",
            f"{list(data.x.shape[1:])} in {path.name}",
            "prepare the data as the model's input, or the model for this data",
        )
    if classes is not None and int(data.y.max()) >= classes:
        first_bad = int(np.argmax(data.y >= classes))
        raise DataError(
            "E-DATA-LABEL",
            f"labels from 0 to {classes - 1}",
            f"{int(data.y[first_bad])} at index {first_bad}",
            "check the label column and the model's number of classes",
        )
    return data


def save_npz(path: Path, data: TrainingData) -> None:
    """Write a file that `load_npz` reads.

    Args:
        path: Where to write; its folder must exist.
        data: The examples.
    """
    with path.open("wb") as file:
        np.savez(file, x=data.x, y=data.y)


def _read_arrays(path: Path) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    if not path.is_file():
        raise DataError(
            "E-DATA-MISSING", f"a data file at {path}", "no such file", "check the path"
        )
    try:
        # numpy leaves a file that it opened itself open when the content is no archive.
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise _damaged(path, "a single array")
            missing = sorted({"x", "y"} - set(loaded.files))
            if missing:
                raise DataError(
                    "E-DATA-KEYS",
                    "arrays named x and y",
                    f"no {' and no '.join(missing)} in {path.name}",
                    "save with numpy.savez(path, x=..., y=...)",
                )
            return loaded["x"], loaded["y"]
    except _UNREADABLE as error:
        raise _damaged(path, type(error).__name__) from error


def _damaged(path: Path, found: str) -> DataError:
    return DataError(
        "E-DATA-DAMAGED",
        f"a whole .npz file of plain arrays at {path}",
        found,
        "write the file again with numpy.savez",
    )


def _as_float32(x: NDArray[np.generic]) -> NDArray[np.float32]:
    if x.dtype.kind not in "fiu":
        raise DataError(
            "E-DATA-DTYPE", "numbers in x", str(x.dtype), "convert x to float32 before saving it"
        )
    # A float64 beyond float32's range becomes infinite, which the finiteness check then names.
    with np.errstate(over="ignore"):
        return np.asarray(x, dtype=np.float32, order="C")


def _as_int64(y: NDArray[np.generic]) -> NDArray[np.int64]:
    if y.dtype.kind not in "iu":
        raise DataError(
            "E-DATA-DTYPE",
            "whole numbers in y",
            str(y.dtype),
            "convert y to int64 before saving it",
        )
    return np.asarray(y, dtype=np.int64, order="C")
