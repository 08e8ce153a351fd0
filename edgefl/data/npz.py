"""Reads and writes examples as one `.npz` with x and y, without pickle and in bounded memory."""

import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from edgefl.data.csv_rows import unreadable
from edgefl.data.folder import require_regular
from edgefl.data.schema import DataSchema
from edgefl.data.settings import MEBIBYTE, Retention
from edgefl.errors import DataError
from edgefl.training.base import Inputs, Targets, TrainingData

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
_WHOLE_FILE = Retention(
    most_windows=2**31, most_bytes=1024 * MEBIBYTE, most_read_bytes=1024 * MEBIBYTE
)
_COPY_BYTES = MEBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzExamples:
    """The newest examples of a file.

    Attributes:
        x: float32 or int64 [n, ...].
        y: int64 [n] or float32 [n, k]; if they were not needed, -1 or NaN where unknown.
        passed_over: Older examples of the file that were not kept.
        note: Why its targets cannot be used, where none are needed; or empty.
    """

    x: Inputs
    y: Targets
    passed_over: int = 0
    note: str = ""


def load_npz(
    path: Path, *, input_shape: tuple[int, ...] | None = None, classes: int | None = None
) -> TrainingData:
    """Read all examples of a file, 1 GiB at most, and check them against a model.

    Args:
        path: An `.npz` with `x` [n, ...], any float or integer type, and `y` [n], any integer type,
            or `y` [n, k], any float type.
        input_shape: Shape of one example that the model takes (the manifest's input); None
            checks nothing.
        classes: Number of classes of the model; None checks only that labels are not negative.

    Returns:
        float32 examples with int64 labels or float32 values.

    Raises:
        DataError: As for `read_npz`; E-DATA-EMPTY, E-DATA-NOT-FINITE, E-DATA-SHAPE or E-DATA-LABEL.
    """
    examples = read_npz(path, None, _WHOLE_FILE)
    data = TrainingData(x=examples.x, y=examples.y)
    shape = data.x.shape[1:] if input_shape is None else input_shape
    if data.y.dtype != np.int64:
        return DataSchema(input_shape=shape, values=data.y.shape[1]).require(data, path.name)
    return DataSchema(input_shape=shape, classes=classes).require(data, path.name)


def save_npz(path: Path, data: TrainingData) -> None:
    """Write a file that `load_npz` reads.

    Args:
        path: Where to write; its folder must exist.
        data: The examples.
    """
    with path.open("wb") as file:
        np.savez(file, x=data.x, y=data.y)


def read_npz(
    path: Path, schema: DataSchema | None, retention: Retention, *, needs_targets: bool = True
) -> NpzExamples:
    """Read the newest (last) examples of a file; their values are not checked.

    Args:
        path: An `.npz` with x and y.
        schema: What the model takes: tokens stay integers, and single values get their axis.
        retention: How much is read and kept.
        needs_targets: Whether y must be there and usable.

    Raises:
        DataError: E-DATA-MISSING, E-DATA-UNREADABLE, E-DATA-DAMAGED, E-DATA-TOO-LARGE, E-DATA-KEYS,
            E-DATA-DTYPE or E-DATA-LENGTH.
        ConfigError: E-DATA-CONFIG: not even one example fits the limit.
    """
    try:
        require_regular(path)
        opened = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        with opened as file, zipfile.ZipFile(file) as archive:
            has_y = "y.npy" in archive.namelist()
            wanted = ("x", "y") if has_y or needs_targets else ("x",)
            _require_members(archive, wanted, path, retention)
            x, x_shape = _member(archive, "x", _newest(retention))
            y, y_shape = None, x_shape[:1]
            if has_y:
                y, y_shape = _member(archive, "y", lambda _shape, _type: len(x) if x.ndim else 0)
    except DataError:
        raise
    except _UNREADABLE as error:
        raise damaged(path, type(error).__name__) from error
    if (needs_targets and x_shape[:1] != y_shape[:1]) or not x_shape:
        raise DataError(
            "E-DATA-LENGTH",
            "for each row of x one label, or one row of values",
            f"x of shape {list(x_shape)} and y of shape {list(y_shape)} in {path.name}",
            "save x as [n, ...], and y as int64 [n] or float32 [n, k]",
        )
    passed_over = x_shape[0] - len(x)
    if needs_targets and y is not None:
        return as_examples(x, y, schema, passed_over)
    if x_shape[:1] != y_shape[:1]:
        # The last rows of both, which were read, need not belong together.
        return replace(as_inputs(x, None, schema, passed_over), note=_not_for_each(y_shape))
    return as_inputs(x, y, schema, passed_over)


def as_examples(
    x: NDArray[np.generic],
    y: NDArray[np.generic],
    schema: DataSchema | None,
    passed_over: int = 0,
) -> NpzExamples:
    """Convert numbers of any type to those that training takes.

    Args:
        x: [n, ...].
        y: [n] or [n, k].
        schema: What the model takes.
        passed_over: Older examples that are not among them.

    Raises:
        DataError: E-DATA-DTYPE.
    """
    examples = _inputs(x, takes_tokens=schema is not None and schema.takes_tokens)
    # Without rows, a list's type says nothing.
    targets = _targets(y, schema) if len(y) else np.zeros(0, np.int64)
    return NpzExamples(x=examples, y=targets, passed_over=passed_over)


def as_inputs(
    x: NDArray[np.generic],
    y: NDArray[np.generic] | None,
    schema: DataSchema | None,
    passed_over: int = 0,
) -> NpzExamples:
    """Convert numbers of any type to those that a model takes, and targets as far as they go.

    Args:
        x: [n, ...].
        y: [n] or [n, k], of whatever type; None where there are none.
        schema: What the model takes.
        passed_over: Older examples that are not among them.

    Raises:
        DataError: E-DATA-DTYPE: x does not hold such numbers.
    """
    examples = _inputs(x, takes_tokens=schema is not None and schema.takes_tokens)
    like = schema or DataSchema(input_shape=examples.shape[1:])
    unknown = like.unknown_targets(len(examples))
    if y is None:
        return NpzExamples(x=examples, y=unknown, passed_over=passed_over)
    if y.shape[:1] != examples.shape[:1]:
        note = _not_for_each(y.shape)
        return NpzExamples(x=examples, y=unknown, passed_over=passed_over, note=note)
    try:
        targets = _targets(y, schema)
    except DataError as error:
        return NpzExamples(x=examples, y=unknown, passed_over=passed_over, note=str(error))
    if schema is not None and not schema.takes_targets_like(targets):
        note = "y is not used: the model gives values, or labels, of another kind"
        return NpzExamples(x=examples, y=unknown, passed_over=passed_over, note=note)
    return NpzExamples(x=examples, y=targets, passed_over=passed_over)


def _not_for_each(shape: tuple[int, ...]) -> str:
    return f"y of shape {list(shape)} is not used: it is not one row for each row of x"


def damaged(path: Path, found: str) -> DataError:
    """Return the error for a file that is no whole `.npz`."""
    return DataError(
        "E-DATA-DAMAGED",
        f"a whole .npz file of plain arrays at {path}",
        found,
        "write the file again with numpy.savez",
    )


def _newest(retention: Retention) -> Callable[[tuple[int, ...], int], int]:
    def rows_kept(shape: tuple[int, ...], itemsize_bytes: int) -> int:
        example_values = _product(shape[1:])
        # float32 is what stays; a wider type is in memory beside it while it is converted.
        return retention.capacity(example_values * max(4, itemsize_bytes))

    return rows_kept


def _require_members(
    archive: zipfile.ZipFile, wanted: Sequence[str], path: Path, retention: Retention
) -> None:
    names = set(archive.namelist())
    missing = [name for name in wanted if f"{name}.npy" not in names]
    if missing:
        raise DataError(
            "E-DATA-KEYS",
            f"arrays named {' and '.join(wanted)}",
            f"no {' and no '.join(missing)} in {path.name}",
            "save with numpy.savez(path, x=..., y=...)",
        )
    size_bytes = sum(archive.getinfo(f"{name}.npy").file_size for name in wanted)
    if size_bytes > retention.most_read_bytes:
        raise DataError(
            "E-DATA-TOO-LARGE",
            f"at most {retention.most_read_bytes} bytes of {' and '.join(wanted)} in {path.name}",
            f"{size_bytes} bytes",
            "save newer examples in files of their own, or raise most_read_bytes in [keep]",
        )


def _member(
    archive: zipfile.ZipFile, name: str, rows_kept: Callable[[tuple[int, ...], int], int]
) -> tuple[NDArray[np.generic], tuple[int, ...]]:
    """Return the last rows of an array and the shape of the whole; ValueError where damaged."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as stream:
        shape, is_fortran, dtype = _header(stream)
        if dtype.hasobject or dtype.itemsize == 0:
            message = "an array of objects"
            raise ValueError(message)
        size_bytes = _product(shape) * dtype.itemsize
        if size_bytes > info.file_size:
            message = "a header that claims more than the file holds"
            raise ValueError(message)
        rows = shape[0] if shape else 1
        kept = rows if is_fortran or not shape else min(rows, rows_kept(shape, dtype.itemsize))
        row_bytes = size_bytes // rows if rows else 0
        _pass_over(stream, (rows - kept) * row_bytes)
        values = _read(stream, kept * row_bytes, dtype)
        if stream.read(1):
            message = "bytes after the array"
            raise ValueError(message)
    if is_fortran:
        return values.reshape(shape, order="F")[-rows_kept(shape, dtype.itemsize) :], shape
    return values.reshape((kept, *shape[1:]) if shape else ()), shape


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        message = "an unknown npy version"
        raise ValueError(message)
    shape, is_fortran, dtype = readers[version](stream)
    if any(size < 0 for size in shape):
        message = "a negative size"
        raise ValueError(message)
    return shape, is_fortran, dtype


def _pass_over(stream: IO[bytes], size_bytes: int) -> None:
    while size_bytes > 0:
        piece = stream.read(min(size_bytes, _COPY_BYTES))
        if not piece:
            message = "a file that ends early"
            raise ValueError(message)
        size_bytes -= len(piece)


def _read(stream: IO[bytes], size_bytes: int, dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
    content = bytearray(size_bytes)
    view = memoryview(content)
    filled_bytes = 0
    while filled_bytes < size_bytes:
        piece = stream.read(min(size_bytes - filled_bytes, _COPY_BYTES))
        if not piece:
            message = "a file that ends early"
            raise ValueError(message)
        view[filled_bytes : filled_bytes + len(piece)] = piece
        filled_bytes += len(piece)
    return np.frombuffer(content, dtype=dtype)


def _inputs(x: NDArray[np.generic], *, takes_tokens: bool) -> Inputs:
    if takes_tokens:
        if x.dtype.kind not in "iu":
            raise DataError(
                "E-DATA-DTYPE", "whole numbers in x", str(x.dtype), "convert x to int64"
            )
        return np.asarray(x, dtype=np.int64, order="C")
    if x.dtype.kind not in "fiu":
        raise DataError(
            "E-DATA-DTYPE", "numbers in x", str(x.dtype), "convert x to float32 before saving it"
        )
    # A float64 beyond float32's range becomes infinite, which the finiteness check then names.
    with np.errstate(over="ignore"):
        return np.asarray(x, dtype=np.float32, order="C")


def _targets(y: NDArray[np.generic], schema: DataSchema | None) -> Targets:
    wants_values = schema is not None and schema.values is not None
    is_values = y.dtype.kind == "f" and y.ndim == 2
    if is_values or (wants_values and y.dtype.kind in "fiu"):
        with np.errstate(over="ignore"):
            values = np.asarray(y, dtype=np.float32, order="C")
        return values[:, np.newaxis] if values.ndim == 1 else values
    if y.dtype.kind not in "iu":
        raise DataError(
            "E-DATA-DTYPE",
            "whole numbers in y",
            str(y.dtype),
            "convert y to int64 before saving it",
        )
    return np.asarray(y, dtype=np.int64, order="C")
